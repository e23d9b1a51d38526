"""A dataset looked at before anything is launched: its rows raw, its rows after the loader, a verdict on each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.data.contracts import judge_row
from harness.data.findings import row_problems
from harness.data.loaders import suggested_loader
from harness.data.masking import labels_left, row_lengths
from harness.data.model import OK, Inspection, Problem, RowVerdict, Sample, fatal, skipped
from harness.data.shorten import sample_of
from harness.data.source import local_path, parse_reference
from harness.frameworks.dataset import NamedDataset
from harness.launch.child import ChildEnd, Limits, run_child
from harness.record.reasons import Reason
from harness.record.redaction import Redactor

READER = Path(__file__).parent / "site" / "_real_step_rows.py"
DEFAULT_LIMIT = 2000
"""Rows that are looked at: all of a smaller dataset, rows spread over the whole of a larger one."""
SAMPLES = 3
RAW_ROWS = 20
DEFAULT_MAX_PROMPT_TOKENS, DEFAULT_MAX_NEW_TOKENS = 1024, 3071
"""AReno's own defaults of --max-prompt-tokens and --max-new-tokens."""
NEEDS_LOADER = frozenset({"sft"})
"""Algorithms for which AReno refuses a command without --dataset-loader-fn."""
NOT_COUNTED = ("the row holds no token counts: give tokens with prompt_mask, input_ids with labels or completion_mask, "
               "or prompt_tokens with completion_tokens")
_CODES = {
    "prompt-missing": Reason.DATASET_LOADER_REQUIRED,
    "loader-required": Reason.DATASET_LOADER_REQUIRED,
    "hub-unreachable": Reason.HUB_UNREACHABLE,
    "hub-missing": Reason.HUB_ASSET_MISSING,
    "hub-denied": Reason.HUB_ASSET_MISSING,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspector:
    """Where and with what a dataset is looked at."""

    python: Path
    """The interpreter that will train."""
    workdir: Path
    environ: Mapping[str, str]
    redactor: Redactor = field(default_factory=Redactor)
    limit: int = DEFAULT_LIMIT
    limits: Limits = field(default_factory=Limits)


@dataclass(slots=True)
class _Seen:
    """What one child told."""

    rows: list[tuple[int, Any]] = field(default_factory=list)
    """The first rows, for the sample."""
    keys: dict[str, None] = field(default_factory=dict)
    verdicts: list[tuple[int, RowVerdict]] = field(default_factory=list)
    total: int | None = None
    asked_areno: bool = False
    note: str | None = None
    error: Problem | None = None
    ended: bool = False
    files: list[str] = field(default_factory=list)
    """Arrow files that the dataset lies in."""
    lengths: list[tuple[int, int]] = field(default_factory=list)
    """Prompt and completion tokens of each row, where rows are cut at a length."""


def inspect_dataset(named: NamedDataset, inspector: Inspector) -> Inspection:
    """Look at a dataset. Never raises for what a dataset or a loader can do: that is an error of the result."""
    if not named.path:
        return _refused("dataset-missing", "the command names no dataset: give --dataset-path")
    if named.model_hub != "modelscope":
        message = f"--model-hub {named.model_hub} is not supported: give a ModelScope id or a local path"
        return _refused("hub-refused", message)
    local = local_path(named.path, inspector.workdir)
    missing = _missing(named, local, inspector)
    if missing and named.loader is None:
        return _refused("dataset-missing", missing)
    # What a loader makes of a path that means nothing else is the loader's business.
    raw = _Seen() if missing else _read(
        named, inspector, mode="raw" if local else "loaded", loader=None, limit=RAW_ROWS)
    if raw.error is not None and named.loader is None:
        return Inspection(raw=_sample(raw, inspector), errors=(raw.error,))
    seen = _read(named, inspector, mode="loaded", loader=named.loader, limit=inspector.limit)
    return _inspection(named, inspector, raw, seen)


def _missing(named: NamedDataset, local: Path | None, inspector: Inspector) -> str:
    """Why the path is neither a file nor a reference, "" where it is one."""
    if local is not None:
        return "" if local.exists() else f"{named.path}: not there (working directory {inspector.workdir})"
    try:
        parse_reference(named.path)
    except ValueError as error:
        return str(error)
    return ""


def _refused(code: str, message: str) -> Inspection:
    return Inspection(errors=(Problem(code=code, message=message, reason=reason_of(code)),))


def reason_of(code: str, *, of_loader: bool = False) -> Reason:
    """The reason code of an error."""
    return _CODES.get(code, Reason.DATASET_LOADER_FAILED if of_loader else Reason.DATASET_UNREADABLE)


def _inspection(named: NamedDataset, inspector: Inspector, raw: _Seen, seen: _Seen) -> Inspection:
    errors = [] if seen.error is None else [seen.error]
    suggestion = None
    if seen.error is None:
        errors, warnings = row_problems(seen.verdicts, seen.total)
        errors += _empty_batches(named, seen)
    else:
        warnings = []
    if named.algorithm in NEEDS_LOADER and named.loader is None and named.max_length is None:
        message = f"--dataset-loader-fn is required for --algo {named.algorithm}"
        errors.insert(0, Problem(code="loader-required", message=message, reason=Reason.DATASET_LOADER_REQUIRED))
    if any(problem.reason in (Reason.DATASET_LOADER_REQUIRED, Reason.DATASET_CONTRACT_BROKEN) for problem in errors):
        suggestion = suggested_loader(named.kind, raw.keys, inspector.workdir)
        if suggestion == named.loader:
            suggestion = None
    if seen.note:
        warnings.append(Problem(code="tokens-not-counted", message=seen.note))
    if seen.total is None or len(seen.verdicts) < seen.total:
        of = f"{seen.total}" if seen.total is not None else "more than could be counted"
        message = f"{len(seen.verdicts)} rows were looked at, of {of}"
        warnings += [Problem(code="sampled", message=message)] if seen.error is None else []
    return Inspection(
        total=seen.total, inspected=len(seen.verdicts), raw=_sample(raw, inspector),
        normalized=_sample(seen, inspector), rows=tuple(seen.verdicts),
        errors=tuple(_with_loader(problem, suggestion) for problem in errors), warnings=tuple(warnings),
        suggested_loader=suggestion, files=tuple(seen.files), judged_by="areno" if seen.asked_areno else "rules",
    )


def _with_loader(problem: Problem, suggestion: str | None) -> Problem:
    if suggestion is None or problem.reason is not Reason.DATASET_LOADER_REQUIRED:
        return problem
    message = f"{problem.message}; give --dataset-loader-fn {suggestion}"
    return Problem(code=problem.code, message=message, rows=problem.rows, count=problem.count, reason=problem.reason)


def _sample(seen: _Seen, inspector: Inspector) -> Sample:
    sample = sample_of([row for _, row in seen.rows], inspector.redactor)
    return Sample(keys=tuple(inspector.redactor.text(key) for key in seen.keys) or sample.keys, samples=sample.samples)


def _read(named: NamedDataset, inspector: Inspector, *, mode: str, loader: str | None, limit: int) -> _Seen:
    seen = _Seen()
    local = local_path(named.path, inspector.workdir) is not None
    kind = named.kind if mode == "loaded" else ""

    def take(message: dict[str, Any]) -> None:
        what = message.get("kind")
        if what == "row" and kind and named.max_length is not None:
            _take_counted_row(seen, message, named.max_length)
        elif what == "row":
            _take_row(seen, message, kind)
        elif what == "end":
            seen.total, seen.ended = message.get("total"), True
            seen.files = [str(file) for file in message.get("files") or ()]
            seen.asked_areno, seen.note = bool(message.get("areno")), message.get("note")
        elif what == "error":
            seen.error = _told(message, inspector, of_loader=loader is not None)

    end = run_child(
        [str(inspector.python), str(READER)], _request(named, mode=mode, loader=loader, limit=limit, local=local),
        take, cwd=inspector.workdir, environ=_environment(inspector.environ), limits=inspector.limits)
    if seen.error is None and (end.problem or not seen.ended):
        seen.error = _broken_off(end, inspector, of_loader=loader is not None)
    return seen


def _request(named: NamedDataset, *, mode: str, loader: str | None, limit: int, local: bool) -> dict[str, Any]:
    return {
        "mode": mode, "path": named.path, "loader": loader, "default": loader is None and local,
        "model_hub": named.model_hub, "limit": limit, "kind": named.kind,
        "tokenizer": str(named.tokenizer) if named.tokenizer else None,
        "max_prompt_tokens": named.max_prompt_tokens or DEFAULT_MAX_PROMPT_TOKENS,
        "max_new_tokens": named.max_new_tokens or DEFAULT_MAX_NEW_TOKENS,
    }


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The command's own, quiet: a loader need not start an experiment."""
    return {**environ, "WANDB_MODE": "disabled", "TQDM_DISABLE": "1", "TOKENIZERS_PARALLELISM": "false",
            "PYTHONPATH": environ.get("PYTHONPATH", ""), "PYTHONDONTWRITEBYTECODE": "1"}


def _take_row(seen: _Seen, message: Mapping[str, Any], kind: str) -> None:
    row = message.get("row")
    _keep(seen, message, judge_row(kind, row, message.get("areno")))


def _take_counted_row(seen: _Seen, message: Mapping[str, Any], max_length: int) -> None:
    """A row of a trainer that cuts at a length: what is left to learn from it."""
    row = message.get("row")
    lengths = row_lengths(row) if isinstance(row, Mapping) else None
    if lengths is None:
        _keep(seen, message, fatal("not-counted", NOT_COUNTED, own=True))
        return
    seen.lengths.append(lengths)
    left = labels_left([lengths], max_length, 1).trainable_tokens[0]
    told = f"no label is left of a prompt of {lengths[0]} tokens cut at {max_length}"
    _keep(seen, message, OK if left else skipped("labels-masked", told))


def _keep(seen: _Seen, message: Mapping[str, Any], verdict: RowVerdict) -> None:
    index, row = int(message.get("index", -1)), message.get("row")
    if "problem" in message:
        verdict = fatal(str(message.get("code")), str(message["problem"]), own=True)
    elif len(seen.rows) < SAMPLES:
        seen.rows.append((index, row))
    if isinstance(row, Mapping) and len(seen.keys) < 200:
        seen.keys.update(dict.fromkeys(map(str, row)))
    seen.verdicts.append((index, verdict))


def _empty_batches(named: NamedDataset, seen: _Seen) -> list[Problem]:
    """Batches that are cut until nothing is left to learn: their loss is 0 or NaN, and the run ends normally."""
    if named.max_length is None or not seen.lengths:
        return []
    left = labels_left(seen.lengths, named.max_length, named.batch_size)
    if left.ok:
        return []
    message = (f"{left.rows_without_labels} of {len(seen.lengths)} rows keep no label when cut at {named.max_length} "
               f"tokens, and {left.empty_batches} batches of {named.batch_size} hold none at all")
    return [Problem(code="labels-masked", message=message, count=left.rows_without_labels,
                    reason=Reason.DATASET_CONTRACT_BROKEN)]


def _told(message: Mapping[str, Any], inspector: Inspector, *, of_loader: bool) -> Problem:
    """An error that the child itself reports."""
    code, text = str(message.get("code")), inspector.redactor.text(str(message.get("message")))
    blames_loader = of_loader and (code == "raised" or code.startswith("loader-"))
    if blames_loader and code == "raised":
        code, text = "loader-raised", f"the loader raised {text}"
    elif code == "raised":
        code, text = "reading-raised", f"reading raised {text}"
    return Problem(code=code, message=text, reason=reason_of(code, of_loader=blames_loader))


def _broken_off(end: ChildEnd, inspector: Inspector, *, of_loader: bool) -> Problem:
    """An error of a child that did not come to its end."""
    who = "the loader" if of_loader else "reading"
    code = end.code or "no-result"
    what = end.problem or "it ended without a result"
    last = inspector.redactor.text(end.output_tail.splitlines()[-1][:300]) if end.output_tail else ""
    message = f"{who}: {what}" + (f"; it last printed: {last}" if last else "")
    code = f"{'loader' if of_loader else 'reading'}-{code}"
    return Problem(code=code, message=message, reason=reason_of(code, of_loader=of_loader))

