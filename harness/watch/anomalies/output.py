"""oom, crash (CUDA errors and dead workers), checkpoint-failure, and nan-inf as the output tells it.

Fed with the bytes that a job prints, in chunks of any size: each is searched for signs with plain substring searches,
so that a log of hundreds of megabytes costs little.
"""

from __future__ import annotations

import heapq
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from harness.record.hints import Hints
from harness.record.vocabulary import AnomalyType, Severity
from harness.watch.anomalies.model import Finding, Sighting

KEPT_BYTES = 4096
"""An unfinished line is kept so far, and what stands before a line is looked at so far."""
QUOTED_CHARS = 300
MAX_INDENTED = 100
"""Source lines with a sign that are passed over for one that is none."""
LOSS_SUBJECT = "printed loss"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """One kind of line."""

    type: AnomalyType
    subject: str
    signs: tuple[bytes, ...]
    """In lower case; a chunk that holds none of them is not searched."""
    pattern: re.Pattern[bytes]
    context: re.Pattern[bytes] | None = None
    """What must stand in the line or in the KEPT_BYTES before it."""
    severity: Severity = Severity.HIGH


_SAVING = re.compile(rb"(?i)checkpoint|ckpt|save_pretrained|torch\.save|save_file|safetensors|serializ|\bsav(?:e|ing)\b"
                     rb"|_save|save_")
SIGNS = (
    Sign(type=AnomalyType.OOM, subject="accelerator memory",
         signs=(b"outofmemoryerror", b"out of memory", b"alloc_failed"),
         pattern=re.compile(rb"(?i)\bOutOfMemoryError\b|\b(?:CUDA|HIP|MPS|XPU|NPU)\b[^\n\r]{0,40}\bout of memory"
                            rb"|RESOURCE_EXHAUSTED: Out of memory|CUBLAS_STATUS_ALLOC_FAILED")),
    Sign(type=AnomalyType.OOM, subject="host memory",
         signs=(b"memoryerror", b"oom", b"bad_alloc", b"cannot allocate memory", b"allocate memory"),
         pattern=re.compile(rb"(?im)^(?:\[[^\]\n]*\]:?\s*)?MemoryError\b|\boom[-_ ]kill|\bOOM[- ]killed|std::bad_alloc"
                            rb"|\[Errno 12\]|DefaultCPUAllocator: (?:can't|not enough)")),
    Sign(type=AnomalyType.CRASH, subject="accelerator error",
         signs=(b"cuda error", b"hip error", b"nccl", b"device-side assert", b"cublas_status", b"cudnn_status",
                b"collective operation timeout"),
         pattern=re.compile(rb"(?i)\b(?:CUDA|HIP) error: (?!out of memory)|device-side assert triggered"
                            rb"|CUBLAS_STATUS_(?!ALLOC_FAILED|SUCCESS)\w+|CUDNN_STATUS_(?!SUCCESS)\w+"
                            rb"|\bNCCL error|nccl(?:System|UnhandledCuda|Internal|Remote)Error"
                            rb"|Watchdog caught collective operation timeout")),
    Sign(type=AnomalyType.CRASH, subject="worker process",
         signs=(b"dataloader worker", b"exitcode", b"segmentation fault", b"fatal python error", b"terminate called"),
         pattern=re.compile(rb"(?i)DataLoader worker \(pid[^)\n]*\) (?:is killed|exited unexpectedly)"
                            rb"|\bfailed \(exitcode: -?\d+\)|^Segmentation fault|Fatal Python error:"
                            rb"|terminate called (?:after|without)", re.M)),
    Sign(type=AnomalyType.CHECKPOINT_FAILURE, subject="writing a checkpoint",
         signs=(b"no space left", b"quota exceeded", b"read-only file system", b"permission denied",
                b"input/output error", b"pytorchstreamwriter", b"failed to save", b"serializing", b"not a directory",
                b"failed to write", b"inline_container.cc"),
         pattern=re.compile(rb"(?i)No space left on device|quota exceeded|Read-only file system|\[Errno 13\]"
                            rb"|\[Errno 20\]|Input/output error|PytorchStreamWriter failed|Error while serializing"
                            rb"|inline_container\.cc|failed to (?:save|write)[^\n\r]{0,60}(?:checkpoint|ckpt|model)"),
         context=_SAVING),
    Sign(type=AnomalyType.CHECKPOINT_FAILURE, subject="writing a checkpoint",
         signs=(b"serialization.py", b"save_pretrained", b"save_checkpoint", b"safetensors", b"orbax"),
         pattern=re.compile(rb"(?m)^[ \t]+File \"[^\"\n]*(?:torch[/\\]serialization\.py|[/\\]safetensors[/\\][^\"\n]*"
                            rb"|[/\\]orbax[/\\][^\"\n]*)\", line \d+, in _?(?:save|serialize)\w*"
                            rb"|^[ \t]+File \"[^\"\n]*\", line \d+, in (?:save_pretrained|_?save_checkpoint)$")),
    Sign(type=AnomalyType.NAN_INF, subject=LOSS_SUBJECT, severity=Severity.MEDIUM, signs=(b"nan", b"inf"),
         pattern=re.compile(rb"(?i)(?<![\w.-])(?:train(?:ing)?[_/ ])?loss['\"]?\s*[=:]\s*['\"]?[+-]?(?:nan"
                            rb"|inf|infinity)(?![\w.])")),
)
_OVERFLOW = b"overflow"
_HINTS = Hints([_OVERFLOW, *(word for sign in SIGNS for word in sign.signs)], left_out=b" .-")
_BAD_LOSS = re.compile(rb"loss['\"]?\s*[=:]\s*['\"]?[+-]?(?:nan|inf)")
"""In lower case; its fixed beginning makes it many times faster than the pattern that decides."""
_NOT_LOSS = re.compile(rb"(?i)\b(?:best|min|lowest|initial|prev\w*)\b")
_INTERRUPTS = (b"KeyboardInterrupt", b"SystemExit")
_STEP = re.compile(rb"(?i)\b(?:global_?)?step['\"]?\s*[=: ]\s*['\"]?(\d{1,12})\b(?!,\d)")
_SKIPS = re.compile(rb"(?i)OVERFLOW![^\n\r]{0,80}skipp|Gradient overflow\.\s+Skipping step")
"""DeepSpeed's and Apex's own loss scalers, which no probe sees."""


class Output:
    """The job's output as it comes."""

    def __init__(self) -> None:
        self.scaler_skips = 0
        """Steps that a loss scaler says it skipped."""
        self._rest = b""
        self._before = b""

    def feed(self, data: bytes, step: int | None = None) -> list[Finding]:
        """What the chunk tells, at most one sighting of each kind; `step`: the newest step that is known."""
        data = self._rest + data
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        whole, self._rest = data[:end], data[end:][-KEPT_BYTES:]
        found = list(self._search(whole, step)) if whole else []
        self._before = (self._before + whole[-KEPT_BYTES:])[-KEPT_BYTES:]
        return found

    def finish(self, step: int | None = None) -> list[Finding]:
        """The last line, which has no end."""
        return self.feed(b"\n", step) if self._rest else []

    def _search(self, chunk: bytes, step: int | None) -> Iterator[Finding]:
        hinted = set(_HINTS.may_hold(chunk))
        if not hinted:
            return
        low = chunk.lower()
        if _OVERFLOW in hinted and _OVERFLOW in low:
            self.scaler_skips += sum(1 for _ in _SKIPS.finditer(chunk))
        for sign in SIGNS:
            words = [word for word in sign.signs if word in hinted and word in low]
            if words and (sign.type is not AnomalyType.NAN_INF or _has_bad_loss(words, low)):
                found = self._first(sign, words, chunk, low)
                if found is not None:
                    at, line = found
                    yield _sighting(sign, line, _last_step(line, self._text_before(chunk, at), step))

    def _first(self, sign: Sign, words: list[bytes], chunk: bytes, low: bytes) -> tuple[int, bytes] | None:
        """Where the first line stands that bears the sign where it must; source lines only where there is no other."""
        indented, seen = None, 0
        for match in _matches(sign, words, chunk, low):
            begin, line = _line_at(chunk, match.start(), match.end())
            if sign.type is AnomalyType.NAN_INF and _NOT_LOSS.search(line):
                continue
            if sign.context is not None and not self._stands_in(sign.context, chunk, match.end()):
                continue
            if line.lstrip().startswith(b'File "'):
                line = _exception_after(chunk, match.end()) or line
                if line.startswith(_INTERRUPTS):
                    continue
            if not line[:1].isspace():
                return begin, line
            indented, seen = indented or (begin, line), seen + 1
            if seen >= MAX_INDENTED:
                break
        return indented

    def _text_before(self, chunk: bytes, at: int) -> bytes:
        """At most KEPT_BYTES that stand before a place."""
        text = chunk[max(0, at - KEPT_BYTES) : at]
        return self._before[len(text) - KEPT_BYTES :] + text if len(text) < KEPT_BYTES else text

    def _stands_in(self, context: re.Pattern[bytes], chunk: bytes, at: int) -> bool:
        end = chunk.find(b"\n", at)
        text = self._text_before(chunk, len(chunk) if end < 0 else end)
        start = text.rfind(b"Traceback (most recent call last):")
        return context.search(text, max(start, 0) if start >= 0 else text.rfind(b"\n") + 1) is not None


def sign_offsets(chunk: bytes, most: int) -> list[int]:
    """Where the first `most` lines begin that bear a sign, rising: for a log that is read after its run."""
    hinted = set(_HINTS.may_hold(chunk))
    low = chunk.lower() if hinted else b""
    found: set[int] = set()
    for sign in SIGNS:
        words = [word for word in sign.signs if word in hinted and word in low]
        if words and (sign.type is not AnomalyType.NAN_INF or _BAD_LOSS.search(low)):
            matches = itertools.islice(_matches(sign, words, chunk, low), most)
            found |= {_line_at(chunk, match.start(), match.end())[0] for match in matches}
    return sorted(found)[:most]


def _has_bad_loss(words: list[bytes], low: bytes) -> bool:
    """Log levels are named INFO in every line of many logs."""
    is_possible = b"nan" in words or low.count(b"inf") > low.count(b"info")
    return is_possible and _BAD_LOSS.search(low) is not None


def _matches(sign: Sign, words: list[bytes], chunk: bytes, low: bytes) -> Iterator[re.Match[bytes]]:
    """In the lines that hold a word, in their order; a value may stand on the line behind its name, so that a loss is
    looked for everywhere."""
    if sign.type is AnomalyType.NAN_INF:
        yield from sign.pattern.finditer(chunk)
        return
    done = 0
    for start, end in heapq.merge(*(_lines_with(word, low) for word in words)):
        if end > done:
            yield from sign.pattern.finditer(chunk, start, end)
            done = end


def _lines_with(word: bytes, low: bytes) -> Iterator[tuple[int, int]]:
    """(start, end) of lines, as line feeds end them."""
    at, end = low.find(word), 0
    while at >= 0:
        start = low.rfind(b"\n", end, at) + 1 or end
        end = low.find(b"\n", at) + 1 or len(low)
        yield start, end
        at = low.find(word, end)


def _exception_after(chunk: bytes, at: int) -> bytes | None:
    """The line that ends the traceback whose frames stand there, None where it is still to come."""
    found = re.compile(rb"^[^\s].*", re.M).search(chunk, chunk.find(b"\n", at) + 1)
    return found[0] if found and chunk.find(b"\n", at) >= 0 else None


def _last_step(line: bytes, before: bytes, known: int | None) -> int | None:
    """The step that the line tells, else the last one that was printed before it, else the newest that is known."""
    told = [match[1] for match in _STEP.finditer(line)] or [match[1] for match in _STEP.finditer(before)]
    return int(told[-1]) if told else known


def _line_at(chunk: bytes, start: int, end: int) -> tuple[int, bytes]:
    """Where the line begins that holds a range, and the line, cut where it is long."""
    begin = max(chunk.rfind(b"\n", 0, start), chunk.rfind(b"\r", 0, start)) + 1
    stops = [stop for stop in (chunk.find(b"\n", end), chunk.find(b"\r", end)) if stop >= 0]
    begin = max(begin, start - KEPT_BYTES)
    return begin, chunk[begin : min([*stops, end + KEPT_BYTES])]


def _sighting(sign: Sign, line: bytes, step: int | None) -> Sighting:
    text = " ".join(line.decode("utf-8", "replace").replace("\x00", " ").split())
    return Sighting(type=sign.type, severity=sign.severity, subject=sign.subject,
                    step=step, description=f"{sign.subject}: {text[:QUOTED_CHARS]}")
