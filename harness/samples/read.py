"""Samples files: AReno's rollout_samples.*.jsonl, TRL's completions parquet, and what --samples names.

A file is read as a stream; the first row of the file and the last one of its furthest step are kept.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import ConfigError
from harness.launch.child import Limits, run_child
from harness.record.files import open_regular
from harness.samples.model import RolloutSample

MAX_LINE_BYTES = 16 << 20
PARQUET_LIMITS = Limits(seconds=60.0, rss_bytes=2 << 30)
SITE = Path(__file__).parent / "site"
PROMPT_KEYS = ("prompt", "question", "input", "query")
COMPLETION_KEYS = ("completion", "response", "output", "generated_text", "text")
STEP_KEYS = ("step", "global_step", "update")
REWARD_EXTRAS = ("tool_calls", "tool_results", "final_answer", "rendered_completion")
NOT_REWARDS = frozenset({"step", "advantage", "advantages"})
"""Number columns of TRL's table that are no reward function's value."""
_SPECIAL = re.compile(r"<\|[\w./-]{1,40}\|>|</?s>|<(?:pad|eos|bos|unk|end_of_turn|start_of_turn)>|\[(?:PAD|SEP|CLS)\]")
_REASONING_ROLE = re.compile(r"^(?:assistant|user|system)\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplesRead:
    """What a samples file holds."""

    path: Path
    first: RolloutSample | None
    last: RolloutSample | None
    rows: int
    problem: str = ""
    """Why it could not be read to its end, "" where it could."""


def read_samples(path: Path, python: Sequence[str], environ: Mapping[str, str]) -> SamplesRead:
    """The first and the last sample. Parquet is read by `python`, an interpreter that has pyarrow, in a child."""
    rows = _parquet_rows(path, python, environ) if path.suffix == ".parquet" else _Rows(_json_rows(path))
    first = last = None
    count = 0
    try:
        for row in rows:
            sample = sample_of(row)
            if sample is None:
                continue
            count += 1
            first = first or sample
            if last is None or _is_later(sample, last):
                last = sample
    except (OSError, ValueError) as error:
        return SamplesRead(path=path, first=first, last=last, rows=count, problem=str(error)[:300])
    return SamplesRead(path=path, first=first, last=last, rows=count, problem=rows.problem)


def _is_later(sample: RolloutSample, last: RolloutSample) -> bool:
    """By step; a row that states none is behind every one that does, and after one that does not either."""
    if sample.step is None or last.step is None:
        return last.step is None
    return sample.step > last.step


class _Rows:
    """Rows, and why there are no more of them."""

    def __init__(self, rows: Iterable[Any], problem: str = "") -> None:
        self._rows = rows
        self.problem = problem

    def __iter__(self) -> Iterator[Any]:
        return iter(self._rows)


def _json_rows(path: Path) -> Iterator[Any]:
    """JSON lines; a half-written or odd line is passed over, a whole JSON list is taken as its rows."""
    import os

    with os.fdopen(open_regular(path), "rb") as handle:
        while line := handle.readline(MAX_LINE_BYTES):
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                continue
            yield from row if isinstance(row, list) else (row,)


def _parquet_rows(path: Path, python: Sequence[str], environ: Mapping[str, str]) -> _Rows:
    """The first and the last row, which the child picks."""
    rows: list[Any] = []
    problems: list[str] = []

    def take(message: dict[str, Any]) -> None:
        if "problem" in message:
            problems.append(str(message["problem"])[:300])
        rows.extend(message.get("rows") or [])

    script = SITE / "_real_step_parquet.py"
    ended = run_child([*python, str(script)], {"path": str(path)}, take, cwd=path.parent, environ=environ,
                      limits=PARQUET_LIMITS)
    return _Rows(rows, "; ".join(problems) or ended.problem)


def sample_of(row: Any) -> RolloutSample | None:
    """A row as a sample; None where it is none."""
    if not isinstance(row, Mapping):
        return None
    messages = row.get("messages")
    transcript = tuple(item for item in messages if isinstance(item, Mapping)) if isinstance(messages, list) else ()
    completion = _text(_pick(row, COMPLETION_KEYS))
    if completion is None and transcript:
        completion = _text([transcript[-1]])
    if completion is None:
        return None
    tokens = row.get("response_tokens")
    source = row.get("source_record")
    return RolloutSample(
        step=_step(_pick(row, STEP_KEYS)), agentic=row.get("kind") == "agentic" or len(transcript) > 2,
        prompt=_text(_pick(row, PROMPT_KEYS)) or "", completion=without_special_tokens(completion),
        raw_completion=completion, messages=transcript,
        source_record=source if isinstance(source, Mapping) else None,
        response_tokens=len(tokens) if isinstance(tokens, list) else None, reward=_reward(row),
        extra={key: row[key] for key in REWARD_EXTRAS if row.get(key) is not None},
    )


def without_special_tokens(text: str) -> str:
    """What a reader sees: chat markers and end tokens are no part of it."""
    return _REASONING_ROLE.sub("", _SPECIAL.sub("", text)).strip("\n ")


def _pick(row: Mapping[str, Any], keys: Iterable[str]) -> Any:
    return next((row[key] for key in keys if row.get(key) is not None), None)


def _step(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _text(value: Any) -> str | None:
    """A text, or the contents of chat messages."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
        return "\n".join(content for item in value if isinstance(content := item.get("content"), str))
    return None


def _reward(row: Mapping[str, Any]) -> float | None:
    """The reward that the file states: its field `reward`, else the sum of TRL's reward columns."""
    stated = row.get("reward")
    if isinstance(stated, (int, float)) and not isinstance(stated, bool):
        return float(stated)
    if "advantage" not in row:
        return None
    values = [float(value) for key, value in row.items() if key not in NOT_REWARDS and _is_number(value)]
    return math.fsum(values) if values else None


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def named_file(path: Path) -> Path:
    """The file of --samples. ConfigError says what is wrong with it."""
    if not path.is_file():
        raise ConfigError(f"--samples {path}: no such file; give a JSON-lines or Parquet file of samples")
    return path
