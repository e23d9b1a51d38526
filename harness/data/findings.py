"""From verdicts on rows to what is wrong with the dataset."""

from __future__ import annotations

from collections.abc import Sequence

from harness.data.model import Problem, RowVerdict, Verdict
from harness.record.reasons import Reason

ROWS_NAMED = 5
Judged = Sequence[tuple[int, RowVerdict]]


def row_problems(rows: Judged, total: int | None) -> tuple[list[Problem], list[Problem]]:
    """(errors, warnings): one for each code, with the rows that show it; and whether anything is left to train on."""
    errors = [_problem(code, Verdict.FATAL, rows) for code in _codes(rows, Verdict.FATAL)]
    warnings = [_problem(code, verdict, rows) for verdict in (Verdict.SKIP, Verdict.WARN)
                for code in _codes(rows, verdict)]
    if not rows:
        errors.append(Problem(code="empty", message="the dataset has no row", reason=Reason.DATASET_ALL_DROPPED))
    elif not errors and all(row.verdict is Verdict.SKIP for _, row in rows):
        reasons = "; ".join(dict.fromkeys(row.reason for _, row in rows))
        of = f"all {len(rows)} rows" if len(rows) == total else f"all {len(rows)} rows that were looked at"
        errors.append(Problem(code="all-dropped", message=f"{of} would be dropped: {reasons[:600]}",
                              rows=tuple(index for index, _ in rows[:ROWS_NAMED]), count=len(rows),
                              reason=Reason.DATASET_ALL_DROPPED))
    return errors, warnings


def _codes(rows: Judged, verdict: Verdict) -> list[str]:
    return list(dict.fromkeys(row.code for _, row in rows if row.verdict is verdict))


def _problem(code: str, verdict: Verdict, rows: Judged) -> Problem:
    found = [(index, row) for index, row in rows if row.verdict is verdict and row.code == code]
    indices = [index for index, _ in found]
    where = ", ".join(map(str, indices[:ROWS_NAMED])) + (", …" if len(indices) > ROWS_NAMED else "")
    message = f"row{'s' if len(indices) > 1 else ''} {where}: {found[0][1].reason}"
    reason = None
    if verdict is Verdict.FATAL:
        reason = (Reason.DATASET_LOADER_REQUIRED if code == "prompt-missing"
                  else Reason.DATASET_CONTRACT_BROKEN)
    return Problem(code=code, message=message, rows=tuple(indices[:ROWS_NAMED]), count=len(indices), reason=reason)

