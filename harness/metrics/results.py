"""`eval_results.json`, `train_results.json`, `all_results.json`: what `Trainer.save_metrics()` of Transformers writes.

One flat object, rewritten whole, without a step. An evaluation after the last `save_state()`, or of a script that saves
no state, stands nowhere else. Its step is that of the trainer_state.json beside it, where their epochs agree.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.metrics.model import EventColumns, RestartMarker, SourceProblem
from harness.metrics.trainer_state import FILE_NAME, State, read_state

KIND = "hf_results"
SUFFIX = "_results.json"
ALL = "all_results.json"
MAX_BYTES = 1 << 20
MAX_WHOLE = 1 << 1000
"""A greater one is no float."""
_TOLD = re.compile(r"^(?:eval|train|test|predict)_\w*(?:runtime|loss|samples)")


def looks_like_results(path: Path) -> bool | None:
    """Whether a file is one; None while it is not whole. One of all is left alone where its parts lie beside it."""
    if path.name == ALL and any(other.name != ALL for other in path.parent.glob(f"*{SUFFIX}")):
        return False
    found = _read(path)
    if isinstance(found, SourceProblem):
        return None if found.code == "not-parsable" else False
    return any(_TOLD.match(key) for key in found)


class ResultsReader:
    """One such file; see SourceReader for the contract. The whole file counts as one record."""

    kind = KIND

    def __init__(self, path: Path, *, first_offset: int = 0) -> None:
        """A rewritten file is read from its start, whatever `first_offset`."""
        self.path = path
        self.first_offset = 0
        self.bytes_read = 0
        self.opened_at = 0.0
        self.ended = ""
        self.identity: tuple[int, int] | None = None
        self.sha256 = hashlib.sha256().hexdigest()
        self._problems: dict[str, SourceProblem] = {}
        self._has_step = True

    def poll(self, *, final: bool = False) -> Iterator[EventColumns | RestartMarker]:
        """Its numbers, where they are others than before."""
        found = _read(self.path)
        self._problems.clear()
        if isinstance(found, SourceProblem):
            self._problems[found.code] = found
            return
        step = self._step(found.get("epoch"))
        if step is None and not final:
            return  # the state may still be written
        try:
            data = self.path.read_bytes()
        except OSError:
            return
        digest = hashlib.sha256(data).hexdigest()
        if digest == self.sha256 and (step is not None) == self._has_step:
            return
        self._has_step, self.sha256, self.bytes_read = step is not None, digest, len(data)
        tags = list(found)
        yield EventColumns(tags, list(range(len(tags))), [step or 0] * len(tags), list(found.values()),
                           [0.0] * len(tags))

    def _step(self, epoch: float | None) -> int | None:
        """The trainer's count of steps where it stood at that epoch."""
        state = read_state(self.path.with_name(FILE_NAME))
        if not isinstance(state, State) or epoch is None or state.epoch is None:
            return None
        return state.step if math.isclose(state.epoch, epoch, abs_tol=5e-3) else None

    def problems(self, *, final: bool = False) -> list[SourceProblem]:
        """What is wrong counts when nothing more will be written, and so does a step that nothing tells."""
        if not final:
            return []
        found = list(self._problems.values())
        if not self._has_step:
            found.append(SourceProblem(code="steps-unknown", path=self.path, offset=None,
                                       message="no trainer_state.json beside it tells its step"))
        return found


def _read(path: Path) -> dict[str, float] | SourceProblem:
    """Its numbers, or why there are none."""
    try:
        if path.stat().st_size > MAX_BYTES:
            return SourceProblem(code="oversized", path=path, offset=None, message=f"more than {MAX_BYTES} bytes")
        document: Any = json.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        return SourceProblem(code="unreadable", path=path, offset=None, message=error.strerror or str(error))
    except (ValueError, RecursionError) as error:
        return SourceProblem(code="not-parsable", path=path, offset=None, message=f"no JSON: {str(error)[:200]}")
    if not isinstance(document, dict):
        return SourceProblem(code="unreadable", path=path, offset=None, message="no object")
    return {key: float(value) for key, value in document.items() if _is_number(value)}


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, float) or abs(value) < MAX_WHOLE
