"""OpenAI chat messages: roles, contents, and tool results that follow their calls."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
TEXT_PARTS = ("text", "input_text", "refusal")
MEDIA_PARTS = ("image_url", "image", "input_audio", "audio_url", "audio", "video_url", "video")


def transcript_problem(messages: Any) -> str:
    """What is wrong with a list of chat messages, "" where nothing is."""
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        return "`messages` is no list of messages"
    open_calls: list[str | None] = []
    """Calls without a result yet, by id; None for a call without one."""
    answered: set[str] = set()
    for number, message in enumerate(messages):
        problem = _message_problem(message) or _order_problem(message, open_calls, answered)
        if problem:
            return f"message {number} {problem}"
    return ""


def _message_problem(message: Any) -> str:
    if not isinstance(message, Mapping):
        return "is no object"
    role = message.get("role")
    if role not in ROLES:
        return f"has the role {role!r}; roles are {', '.join(ROLES)}"
    calls = message.get("tool_calls")
    if calls is not None and role != "assistant":
        return f"is a {role}'s and holds tool_calls, which only an assistant makes"
    if problem := _calls_problem(calls):
        return problem
    return _content_problem(message.get("content"), may_be_empty=bool(calls) or role in ("assistant", "tool"))


def _content_problem(content: Any, *, may_be_empty: bool) -> str:
    if content is None:
        return "" if may_be_empty else "has no content"
    if isinstance(content, str) or _is_long_text(content):
        return ""
    if not isinstance(content, Sequence):
        return f"has a content of the type {type(content).__name__}; it is a text or a list of parts"
    for part in content:
        if problem := part_problem(part):
            return f"holds a part that {problem}"
    return ""


def part_problem(part: Any) -> str:
    """What is wrong with one content part, "" where nothing is."""
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind in TEXT_PARTS:
        text = part.get("text", part.get("refusal"))
        return "" if isinstance(text, str) or _is_long_text(text) else f"is {kind} without a text"
    if kind not in MEDIA_PARTS:
        return f"has the type {kind!r}"
    if not kind.endswith("_url"):
        return ""
    value = part.get(kind)
    url = value.get("url") if isinstance(value, Mapping) and "$text" not in value else value
    return url_problem(url)


def url_problem(url: Any) -> str:
    """An image is given by an http(s) URL or a data URL with base64."""
    text = url.get("$text") if _is_long_text(url) else url
    if not isinstance(text, str) or not text:
        return "names no URL"
    if text.startswith(("http://", "https://")):
        return ""
    if not text.startswith("data:"):
        return f"names {text[:40]!r}, which is neither an http(s) URL nor a data URL"
    head, comma, _ = text.partition(",")
    if not comma or not head.endswith(";base64"):
        return "holds a data URL that is not base64"
    return "" if is_base64(url) else "holds a data URL whose base64 cannot be decoded"


def is_base64(value: Any) -> bool:
    """Whether a text, or the payload of a data URL, decodes; a long text was tried where it was read."""
    import base64
    import binascii

    if _is_long_text(value):
        return value.get("$base64") is not False
    payload = value.partition(",")[2] if value.startswith("data:") else value
    try:
        return bool(base64.b64decode(payload, validate=True))
    except (binascii.Error, ValueError):
        return False


def _is_long_text(value: Any) -> bool:
    return isinstance(value, Mapping) and "$text" in value


def _calls_problem(calls: Any) -> str:
    if calls is None:
        return ""
    if not isinstance(calls, Sequence) or isinstance(calls, str):
        return "has tool_calls that are no list"
    for call in calls:
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            return "holds a tool call without a function name"
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            try:
                json.loads(arguments or "{}")
            except (ValueError, RecursionError):
                return f"calls {function['name']} with arguments that are no JSON"
    ids = [call["id"] for call in calls if call.get("id")]
    return "holds two tool calls with one id" if len(set(ids)) < len(ids) else ""


def _order_problem(message: Mapping[str, Any], open_calls: list[str | None], answered: set[str]) -> str:
    role = message["role"]
    if role != "tool":
        if open_calls and role != "system":
            missing = ", ".join(str(item or "without id") for item in open_calls)
            return f"comes before the result of the tool call {missing}"
        open_calls.extend(call.get("id") for call in message.get("tool_calls") or ())
        return ""
    wanted = message.get("tool_call_id")
    if not open_calls:
        return "is a tool result that follows no call"
    if wanted is None and any(open_calls):
        return f"is a tool result without a tool_call_id, although the call has the id {open_calls[0]}"
    if wanted is not None and wanted not in open_calls and (wanted in answered or any(open_calls)):
        return f"is a tool result for {wanted!r}, which " + (
            "has a result already" if wanted in answered else "was not called before it")
    open_calls.remove(wanted if wanted in open_calls else None)
    if wanted is not None:
        answered.add(wanted)
    return ""
