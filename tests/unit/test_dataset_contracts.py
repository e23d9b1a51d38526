"""The rules of rows: transcripts, media, and that no row whatever is a crash."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.data.contracts import CONTRACTS, judge_row
from harness.data.media import media_problem
from harness.data.model import Verdict
from harness.data.page import EXAMPLES, render_contracts
from harness.data.shorten import shortened
from harness.data.transcripts import transcript_problem

USER = {"role": "user", "content": "hi"}


def call(*ids: str | None) -> dict[str, Any]:
    """An assistant's message with these tool calls."""
    return {"role": "assistant", "content": None, "tool_calls": [
        {**({"id": one} if one else {}), "type": "function", "function": {"name": "f", "arguments": "{}"}}
        for one in ids]}


def result(of: str | None) -> dict[str, Any]:
    """A tool's answer."""
    return {"role": "tool", "content": "4", **({"tool_call_id": of} if of else {})}


GOOD = {
    "one turn": [USER, {"role": "assistant", "content": "4"}],
    "a call and its result": [{"role": "system", "content": "s"}, USER, call("a"), result("a"),
                              {"role": "assistant", "content": "4"}],
    "two calls, results in another order": [USER, call("a", "b"), result("b"), result("a")],
    "an open call at the end": [USER, call("a")],
    "calls without ids": [USER, call(None, None), result(None), result(None)],
    "parts": [{"role": "user", "content": [{"type": "text", "text": "a"},
                                           {"type": "image_url", "image_url": {"url": "https://e.org/a.png"}}]}],
    "nulls as a table holds them": [{**USER, "tool_calls": None, "tool_call_id": None}, call("a"), result("a")],
}
BAD = {
    "no list": ({"role": "user"}, "no list"),
    "empty": ([], "no list"),
    "no object": (["hi"], "message 0 is no object"),
    "role": ([{"role": "human", "content": "a"}], "has the role 'human'"),
    "result first": ([USER, result("a"), call("a")], "message 1 is a tool result that follows no call"),
    "other id": ([USER, call("a"), result("b")], "which was not called before it"),
    "result twice": ([USER, call("a", "b"), result("a"), result("a")], "has a result already"),
    "no id": ([USER, call("a"), result(None)], "without a tool_call_id"),
    "next turn": ([USER, call("a"), USER], "comes before the result of the tool call a"),
    "calls of a user": ([{**USER, "tool_calls": []}], "only an assistant"),
    "arguments": ([USER, {"role": "assistant", "content": None, "tool_calls": [
        {"id": "a", "function": {"name": "f", "arguments": "{"}}]}], "no JSON"),
    "same id twice": ([USER, call("a", "a")], "one id"),
    "no content": ([{"role": "user", "content": None}], "no content"),
    "picture": ([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "/tmp/a.png"}}]}],
                "neither an http(s) URL nor a data URL"),
    "part": ([{"role": "user", "content": [{"type": "picture"}]}], "has the type 'picture'"),
}


@pytest.mark.parametrize("name", GOOD)
def test_transcript_in_order_has_no_problem(name: str) -> None:
    """What OpenAI's format allows."""
    assert transcript_problem(GOOD[name]) == ""


@pytest.mark.parametrize("name", BAD)
def test_broken_transcript_is_told(name: str) -> None:
    """With the message and what is wrong about it; an agentic row that holds it is fatal."""
    messages, told = BAD[name]
    assert told in transcript_problem(messages)
    assert judge_row("agentic", {"prompt": "a", "answer": "b", "messages": messages}).verdict is Verdict.FATAL


@pytest.mark.parametrize("row", [
    {"image_base64": "AAAA"}, {"images_base64": ["AAAA", "data:image/png;base64,AAAA"]},
    {"messages": [{"role": "user", "content": [{"type": "audio_url", "audio_url": {"url": "https://e.org/a.wav"}}]}]},
])
def test_media_that_areno_takes(row: dict[str, Any]) -> None:
    """Base64, data URLs, and audio by URL."""
    assert media_problem(row) == ""


def test_areno_has_the_last_word_on_its_own_rules() -> None:
    """A newer AReno that takes a row overrules the rule read off an older one, but not what the row would teach."""
    assert judge_row("rollout", {"messages": [USER], "answer": 1}, {"verdict": "ok"}).verdict is Verdict.OK
    assert judge_row("rollout", {"prompt": "a"}, {"verdict": "ok"}).verdict is Verdict.WARN
    null = {"prompt": "a", "chosen": "b", "rejected": None}
    assert judge_row("dpo", null, {"verdict": "ok"}).verdict is Verdict.FATAL
    good = {"prompt": "a", "answer": "b"}
    assert judge_row("rollout", good, {"verdict": "skip"}).code == "over-long"
    refused = judge_row("rollout", good, {"verdict": "fatal", "message": "ValueError: no"})
    assert (refused.verdict, refused.reason) == (Verdict.FATAL, "ValueError: no")


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(
        st.sampled_from(["prompt", "response", "chosen", "rejected", "messages", "role", "content", "tool_calls",
                         "type", "tokens", "prompt_mask", "loss_mask", "image_base64", "images_base64", "function",
                         "name",
                         "arguments", "tool_call_id", "id", "image_url", "url", "$text", "user", "text"])
        | st.text(max_size=5), inner, max_size=5), max_leaves=25)


@settings(max_examples=300, deadline=None)
@given(row=ANYTHING)
def test_no_row_is_a_crash(row: Any) -> None:
    """Every kind has a verdict on anything, and anything can be shown."""
    for kind in (*CONTRACTS, "other"):
        assert judge_row(kind, row).verdict in Verdict
    shortened(row)


def test_page_says_what_the_rules_say() -> None:
    """references/data-contracts.md is current (`python -m harness.data.page references` renews it)."""
    page = Path(__file__).parents[2] / "references" / "data-contracts.md"
    assert page.read_text(encoding="utf-8") == render_contracts()
    assert set(EXAMPLES) == set(CONTRACTS)
