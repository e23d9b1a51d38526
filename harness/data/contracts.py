"""The contract of each algorithm's rows, read off AReno 0.10.0: what it does with a row, and what it would learn.

Where AReno is installed its own functions are asked about the same row (`site/_real_step_rows.py`), and `settled`
lets them decide what is theirs. A test holds the two together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from harness.data.media import has_media, media_problem
from harness.data.model import OK, RowVerdict, Verdict, fatal, skipped, warned
from harness.data.transcripts import transcript_problem

SFT_MESSAGE = "SFT dataset loader must return rows with `prompt` and `response`"
DPO_MESSAGE = "DPO dataset row must contain `chosen` and `rejected`"
DPO_PROMPT_MESSAGE = "DPO prompt/response rows must contain `prompt`"
ROLLOUT_MESSAGE = "dataset row must contain `prompt`; use --dataset-loader-fn to normalize raw rows"
INPUT_FIELDS = frozenset((
    "prompt", "messages", "tokens", "prompt_mask", "loss_mask", "features", "tools", "system", "eos_token_id",
    *(f"{kind}{plural}_base64" for kind in ("image", "video", "audio") for plural in ("", "s")),
))
"""What a rollout row tells the model; any other field can hold what a reward compares with."""
BOOKKEEPING_FIELDS = frozenset(("id", "index", "idx", "split", "source", "data_source", "dataset", "category"))

JudgeRow = Callable[[Mapping[str, Any]], RowVerdict]


def judge_sft(row: Mapping[str, Any]) -> RowVerdict:
    """`prompt` and `response`, or `tokens` and `prompt_mask`; AReno drops null and empty responses silently."""
    if has_media(row):
        return _judge_media_sft(row)
    if "tokens" in row and "prompt_mask" in row:
        return _judge_encoded(row)
    if "prompt" not in row or "response" not in row:
        return fatal("fields-missing", SFT_MESSAGE)
    if row["prompt"] is None or row["response"] is None:
        return skipped("null", f"{'prompt' if row['prompt'] is None else 'response'} is null: the row is dropped")
    if not _text_of(row["response"]):
        return skipped("empty-response", "the response is empty: the row is dropped")
    for name in ("prompt", "response"):
        if not _is_text(row[name]):
            kind = type(row[name]).__name__
            return warned("not-text", f"{name} is a {kind}, which AReno turns into its Python text")
    return OK


def _judge_media_sft(row: Mapping[str, Any]) -> RowVerdict:
    if "response" not in row:
        return fatal("fields-missing", "SFT image rows must contain `response`")
    if row["response"] is None or not _text_of(row["response"]):
        return skipped("empty-response", "the response is empty: the row is dropped")
    problem = media_problem(row)
    return fatal("media", problem) if problem else OK


def _judge_encoded(row: Mapping[str, Any]) -> RowVerdict:
    tokens, mask, loss_mask = row["tokens"], row["prompt_mask"], row.get("loss_mask") or []
    if not _is_list(tokens) or not _is_list(mask) or not all(isinstance(token, int) for token in tokens):
        return fatal("tokens", "`tokens` and `prompt_mask` must be lists of numbers and of booleans")
    if len(tokens) != len(mask):
        return fatal("lengths", "SFT encoded row `tokens` and `prompt_mask` must have the same length")
    if loss_mask and len(loss_mask) != len(tokens):
        return fatal("lengths", "SFT encoded row `loss_mask` must be empty or have the same length as `tokens`")
    if len(tokens) < 2:
        return skipped("too-short", "fewer than 2 tokens: the row is dropped")
    if all(mask[1:]):
        return skipped("labels-masked", "prompt_mask masks every token: nothing is left to learn, the row is dropped")
    return OK


def judge_dpo(row: Mapping[str, Any]) -> RowVerdict:
    """`chosen` and `rejected`, and `prompt` unless both are message lists."""
    if "chosen" not in row or "rejected" not in row:
        return fatal("fields-missing", DPO_MESSAGE)
    chosen, rejected = row["chosen"], row["rejected"]
    for name, value in (("chosen", chosen), ("rejected", rejected)):
        if value is None:
            message = f"{DPO_MESSAGE}; `{name}` is null, and AReno would train on the word None"
            return fatal("null", message, own=True)
    if _is_list(chosen) and _is_list(rejected):
        for name, value in (("chosen", chosen), ("rejected", rejected)):
            if problem := transcript_problem(value):
                return fatal("messages", f"`{name}`: {problem}", own=True)
        if chosen == rejected:
            return skipped("identical-pair", "chosen equals rejected: no token differs, the row is dropped")
        return OK
    if "prompt" not in row:
        return fatal("fields-missing", DPO_PROMPT_MESSAGE)
    if row["prompt"] is None:
        return fatal("null", "`prompt` is null, which AReno cannot encode")
    if not isinstance(row["prompt"], (str, list, tuple, Mapping)):
        return fatal("not-text", f"`prompt` is a {type(row['prompt']).__name__}, which AReno cannot encode")
    if chosen == rejected:
        return warned("identical-pair", "chosen equals rejected: the pair prefers nothing and teaches nothing")
    for name, value in (("chosen", chosen), ("rejected", rejected)):
        if not _is_text(value):
            return warned("not-text", f"{name} is a {type(value).__name__}, which AReno turns into its Python text")
        if not _text_of(value).strip():
            return warned("empty-response", f"{name} is empty: the end of the text is all that is compared")
    return OK


def judge_rollout(row: Mapping[str, Any]) -> RowVerdict:
    """`prompt`, or `tokens`, or media; a reward needs something to compare with."""
    if has_media(row):
        problem = media_problem(row)
        if problem:
            return fatal("media", problem)
    elif "tokens" in row:
        if not _is_list(row["tokens"]) or not all(isinstance(token, int) for token in row["tokens"]):
            return fatal("tokens", "`tokens` must be a list of numbers")
    elif "prompt" not in row:
        return fatal("prompt-missing", ROLLOUT_MESSAGE)
    elif row["prompt"] is None:
        return fatal("null", "`prompt` is null, which AReno cannot encode")
    elif not _is_text(row["prompt"]):
        kind = type(row["prompt"]).__name__
        return fatal("not-text", f"`prompt` is a {kind}; AReno's rollouts and rewards take a text", own=True)
    elif not _text_of(row["prompt"]).strip():
        return warned("empty-prompt", "the prompt is empty")
    if not _reference_fields(row):
        return warned("no-reference-answer",
                      "no field but the prompt: a reward has nothing to compare with and may be constant")
    return OK


def judge_agentic(row: Mapping[str, Any]) -> RowVerdict:
    """A rollout row; its `messages`, where it has some, are a transcript in order."""
    messages = row.get("messages")
    if messages is not None and (problem := transcript_problem(messages)):
        return fatal("transcript", problem, own=True)
    return judge_rollout(row)


CONTRACTS: Mapping[str, JudgeRow] = {
    "sft": judge_sft, "dpo": judge_dpo, "rollout": judge_rollout, "agentic": judge_agentic,
}
"""By kind of algorithm."""
ALGORITHMS = {"sft": "sft", "dpo": "dpo", "gspo": "rollout", "grpo": "rollout", "ppo": "rollout", "agentic": "agentic"}
"""`--algo` -> kind; a rollout algorithm with an agent function is agentic."""


def judge_row(kind: str, row: Any, areno: Mapping[str, Any] | None = None) -> RowVerdict:
    """The verdict on one row. `areno`: what the installed AReno made of it, {verdict, message}."""
    if not isinstance(row, Mapping):
        return fatal("no-object", f"the row is a {type(row).__name__}, not an object of named fields")
    judge = CONTRACTS.get(kind)
    ours = judge(row) if judge is not None else OK
    return settled(ours, areno) if areno else ours


def settled(ours: RowVerdict, areno: Mapping[str, Any]) -> RowVerdict:
    """AReno decides whether it takes, drops or refuses a row; what a taken row teaches is our rule."""
    theirs, message = Verdict(areno.get("verdict")), str(areno.get("message") or "")
    if theirs is Verdict.FATAL:
        return ours if ours.verdict is Verdict.FATAL else fatal("areno-refuses", message)
    if ours.verdict is Verdict.FATAL and ours.own:
        return ours
    if theirs is Verdict.SKIP:
        if ours.verdict is Verdict.SKIP:
            return ours
        return skipped("over-long", message or "over the token limits or without a token to learn: the row is dropped")
    return ours if ours.verdict is Verdict.WARN else OK


def _reference_fields(row: Mapping[str, Any]) -> list[str]:
    return [name for name, value in row.items()
            if name not in INPUT_FIELDS and name not in BOOKKEEPING_FIELDS and value not in (None, "", [], {})]


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def _is_text(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, Mapping) and "$text" in value)


def _text_of(value: Any) -> str:
    if isinstance(value, Mapping) and "$text" in value:
        return str(value["$text"])
    return str(value)
