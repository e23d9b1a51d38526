"""What a trainer wrote beside its weights: its step, its metric, and which checkpoint it calls the best."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.checkpoints.naming import RECORDS

WHOLE_BYTES = 256 << 10
"""A larger file is searched at its ends only: the history of a long run stands between them."""
END_BYTES = 16 << 10
MAX_HISTORY_BYTES = 256 << 20
_STEP = re.compile(rb'"(?:global_step|step|num_steps)"\s*:\s*(\d{1,12})\s*[,}]')


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRecord:
    """One trainer_state.json."""

    step: int | None = None
    epoch: float | None = None
    best_path: str | None = None
    """best_model_checkpoint, as written: relative to where the trainer ran."""
    best_metric: float | None = None


def read_record(directory: Path) -> StateRecord:
    """What stands in a checkpoint's own record; nothing where there is none or it cannot be read."""
    for name in RECORDS:
        if name.endswith(".json") and (found := _read(directory / name)) is not None:
            return found
    return StateRecord()


def _read(path: Path) -> StateRecord | None:
    try:
        with path.open("rb") as stream:
            size = path.stat().st_size
            if size > WHOLE_BYTES:
                head = stream.read(END_BYTES)
                stream.seek(size - END_BYTES)
                return _by_search(head + b"\n" + stream.read(END_BYTES))
            document = json.loads(stream.read())
    except (OSError, ValueError, RecursionError):
        return None
    return _of_document(document) if isinstance(document, dict) else None


def _of_document(document: dict[str, Any]) -> StateRecord:
    step = next((document[key] for key in ("global_step", "step", "num_steps") if _is_count(document.get(key))), None)
    best, metric, epoch = document.get("best_model_checkpoint"), document.get("best_metric"), document.get("epoch")
    return StateRecord(step=step, epoch=_finite(epoch), best_path=best if isinstance(best, str) else None,
                       best_metric=_finite(metric))


def _by_search(text: bytes) -> StateRecord:
    match = _STEP.search(text)
    best = re.search(rb'"best_model_checkpoint"\s*:\s*"([^"\\]{1,4000})"', text)
    metric = re.search(rb'"best_metric"\s*:\s*(-?[0-9][0-9.eE+-]{0,40})', text)
    return StateRecord(step=int(match.group(1)) if match else None,
                       best_path=best.group(1).decode("utf-8", "replace") if best else None,
                       best_metric=_number(metric.group(1).decode()) if metric else None)


def _number(text: str) -> float | None:
    try:
        return _finite(float(text))
    except ValueError:
        return None


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 10**12


def _finite(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(
        value) else None


def find_recorded_best(record: StateRecord, directory: Path) -> tuple[Path | None, str]:
    """(where the best lies now, a problem): moved with its directory it is found by its name, else it is gone."""
    if record.best_path is None:
        return None, ""
    place = Path(record.best_path)
    for candidate in (place, directory.parent / place.name, directory / place.name):
        if candidate.is_dir() and candidate.is_absolute():
            return candidate, ""
    return None, f"best_model_checkpoint {record.best_path} is gone"


def history_of(directory: Path) -> dict[int, dict[str, float]]:
    """{step: {metric: value}} of a record's log_history; finite values only, and nothing where it cannot be read."""
    for name in RECORDS[:3]:
        try:
            with (directory / name).open("rb") as stream:
                document = json.loads(stream.read(MAX_HISTORY_BYTES))
        except (OSError, ValueError, RecursionError):
            continue
        rows = document.get("log_history") if isinstance(document, dict) else None
        found: dict[int, dict[str, float]] = {}
        for row in rows if isinstance(rows, list) else ():
            if isinstance(row, dict) and _is_count(row.get("step")):
                values = {str(key): number for key, value in row.items() if (number := _finite(value)) is not None}
                found.setdefault(row["step"], {}).update(values)
        return {step: {key: value for key, value in row.items() if key != "step"} for step, row in found.items()}
    return {}
