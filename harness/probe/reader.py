"""Reads what the probe wrote in its directory.

The files come from inside the trainer and may be cut, odd or hostile: a file counts only if every field is of
its kind and the counts agree with each other, else it is a problem. Nothing here raises for content.
"""

from __future__ import annotations

import dataclasses
import json
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.probe.fields import MAX_TEXT, Fields
from harness.probe.marks import MAX_LOOKS, MAX_MARKS, ProbeLook, ProbeMark, read_look, read_mark, without_values
from harness.probe.parsed import SUFFIX

FORMAT = 1
MAX_FILES = 4096
MAX_FILE_BYTES = 256 * 1024
MAX_OPTIMIZERS = 16
MAX_PROBLEMS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeOptimizer:
    """One optimizer of a process."""

    name: str
    """Module and class."""
    steps: int
    """Applied steps."""
    lr_positive_steps: int
    """Of these, with a learning rate above 0 in some parameter group."""
    lr_unknown_steps: int
    """Of these, with no learning rate in any parameter group."""
    lr_min: float | None
    lr_max: float | None
    """Range of the rates that its parameter groups had at applied steps; None where none says."""
    num_params: int
    """Parameter tensors."""
    first_call: int = 0
    """Number of its first step among the steps of all optimizers of the process, from 1; 0 for none, or not told."""
    last_call: int = 0
    """Likewise of its last step: where no two ranges overlap, the optimizers followed each other."""
    lr_first: tuple[float, ...] = ()
    """Different rates of its parameter groups at its first step, falling; empty where none says."""
    lr_initial: tuple[float, ...] = ()
    """Likewise what schedulers noted by then as the rates that they started from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeGrad:
    """What looking at gradients showed, at steps 1, 2, 4, 8 ... of each optimizer and about every 30 s."""

    checked: int
    """Looks that found a nonzero element or went through every gradient."""
    nonzero: int
    """Of these, with a nonzero element in some gradient."""
    nonfinite: int
    """Looks that met a non-finite element, and glances at the last gradient every 0.1 s that did."""
    gave_up: int
    """Looks that met only zeros and left gradients out."""
    last_nonzero: bool | None
    """The last look; None when there was none or it gave up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeParams:
    """What looking at the parameters of living optimizers showed when the interpreter ended."""

    checked: int
    nonfinite: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeExchange:
    """What a process exchanged through torch.distributed between its optimizer steps, while in a process group."""

    observed_steps: int
    """Steps that were made within a process group, of all optimizers."""
    first: bool
    """Whether something that may hold gradients, weights or activations was exchanged before the first of them."""
    steps: int
    """Of the later ones, those since whose forerunner such was exchanged."""
    few_steps: int
    """Of the later ones, those with messages of a few numbers only, or of objects. Barriers count nowhere."""
    whole_steps: int
    """Of the later ones, those with at least as many elements, in calls from Python, as the optimizer trains."""
    hidden_steps: int
    """Of the later ones, those with collectives of C++, whose size is not seen."""
    after: bool
    """Whether such was exchanged after the last one."""
    whole_after: bool
    """Whether that was at least as many elements as are trained."""
    readable: bool
    """Whether the backend numbers its collectives, so that those of C++ were seen; else only calls from Python."""
    wrappers: tuple[str, ...]
    """Of DistributedDataParallel, FullyShardedDataParallel, DeepSpeedEngine and DTensor, those that were made."""
    others: tuple[str, ...]
    """Ways by which ranks can exchange without torch.distributed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeProcess:
    """One process that imported torch's optimizers. Times are seconds since the epoch, by its own clock."""

    path: Path
    """The file, as given by the directory."""
    pid: int
    ppid: int
    host: str
    rank: int | None
    """RANK, as torchrun sets it; likewise the next two."""
    local_rank: int | None
    world_size: int | None
    restart: int | None
    """TORCHELASTIC_RESTART_COUNT: how often torch elastic had started the workers before."""
    group_size: int | None
    """Size of torch.distributed's process group while steps were done; None where there was none."""
    devices: tuple[str, ...]
    """Device types of the parameters that were stepped, for example `cuda`."""
    torch: str
    """Version of torch."""
    started_at: float
    updated_at: float
    """When the file was written: counts are those of then, up to a second behind unless `clean_exit`."""
    optimizers_created: int
    steps: int
    """Applied optimizer steps: the most of any optimizer."""
    steps_total: int
    """Applied steps of all optimizers together."""
    lr_positive_steps: int
    """Steps with a learning rate above 0: the most of any optimizer."""
    lr_unknown_steps: int
    """Steps whose learning rate no parameter group says: the most of any optimizer."""
    scaler_skips: int
    """Steps that a gradient scaler withheld."""
    grad: ProbeGrad
    marks: tuple[ProbeMark, ...]
    """At most 64, up to 16 of each optimizer."""
    looks: tuple[ProbeLook, ...]
    """Of these, the earliest first."""
    unmarked: int
    """Optimizers of which not all that is to be marked could be, since 64 parameters were."""
    marks_at: int
    """Steps of all optimizers after which they were last looked at: as many on every rank of one program."""
    exchange: ProbeExchange | None
    """None where no step was made within a process group."""
    params: ProbeParams | None
    """None where the process ended before they could be looked at."""
    optimizers: tuple[ProbeOptimizer, ...]
    """At most 16, those with the most steps first."""
    first_step_at: float | None
    last_step_at: float | None
    clean_exit: bool
    """The interpreter's exit handlers ran, also after an uncaught exception."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeFacts:
    """All that the probe left behind."""

    loaded: bool
    """Some interpreter of the job started with the probe."""
    processes: tuple[ProbeProcess, ...]
    """In the order of their start."""
    problems: tuple[str, ...]
    """Files that do not count and why, and the probe's own failures."""

    @property
    def steps(self) -> int:
        """Applied optimizer steps: the most of any process."""
        return max((process.steps for process in self.processes), default=0)

    def to_json(self) -> dict[str, Any]:
        """JSON-ready mapping; a process is named by its file. Values and looks are kept of one process.

        That is the one that trained most, and among equals the one that saved: see checkpoints.marks.seen_by.
        """
        most = max(self.processes, key=lambda one: (one.steps, sum(look.path is not None for look in one.looks)),
                   default=None)
        processes = [
            {
                **dataclasses.asdict(process),
                "path": process.path.name,
                "devices": list(process.devices),
                "optimizers": _rows(process.optimizers),
                **({} if process is most else {"looks": [], "marks": without_values(process.marks)}),
            }
            for process in self.processes
        ]
        return {"loaded": self.loaded, "processes": processes, "problems": list(self.problems)}


def _rows(optimizers: tuple[ProbeOptimizer, ...]) -> list[dict[str, Any]]:
    return [dataclasses.asdict(optimizer) for optimizer in optimizers]


def read_probe(directory: Path, since: float | None = None) -> ProbeFacts:
    """Facts in a probe directory; a directory that is missing or unreadable holds none.

    What was written before `since` (seconds since the epoch) is an earlier run's and does not count.
    """
    problems: list[str] = []
    processes = []
    try:
        names = sorted(entry.name for entry in os.scandir(directory))
    except FileNotFoundError:
        names = []
    except OSError as error:
        names = []
        problems.append(f"probe directory: {error.strerror}")
    files = [name for name in names if name.endswith(".json") and not name.startswith(".")]
    files = [name for name in files if not name.endswith(SUFFIX)]
    if len(files) > MAX_FILES:
        problems.append(f"{len(files)} files, of which {MAX_FILES} are read")
    for name in files[:MAX_FILES]:
        try:
            process = _parse(directory / name)
            if since is not None and process.updated_at < since:
                raise ValueError(f"written {since - process.updated_at:.1f} s before this run began; not of this run")
            processes.append(process)
        except (ValueError, OSError, RecursionError, MemoryError) as error:
            problems.append(f"{name!r:.{MAX_TEXT}}: {_reason(error)}")
    names = [name for name in names if name.endswith(".json") or not _is_older(directory / name, since)]
    if "problems.log" in names:
        problems.extend(_own_problems(directory / "problems.log"))
    return ProbeFacts(
        loaded="loaded" in names or bool(processes),
        processes=tuple(sorted(processes, key=lambda process: (process.started_at, process.path.name))),
        problems=tuple(problems[:MAX_PROBLEMS]),
    )


def _is_older(path: Path, since: float | None) -> bool:
    try:
        return since is not None and path.lstat().st_mtime < since
    except OSError:
        return True


def _reason(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error)[:MAX_TEXT] or type(error).__name__


def _own_problems(path: Path) -> Iterator[str]:
    """Lines that the probe noted."""
    try:
        lines = _read(path).decode("utf-8", "replace").splitlines()
    except (OSError, ValueError) as error:
        lines = [f"problems.log: {_reason(error)}"]
    for line in lines[:MAX_PROBLEMS]:
        yield "".join(char if char.isprintable() else "?" for char in line)[:MAX_TEXT]


def _read(path: Path) -> bytes:
    """Bytes of a regular file of bounded size; ValueError for anything else, a pipe included."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0))
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("not a regular file")
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise ValueError(f"longer than {MAX_FILE_BYTES} bytes")
    return data


def _parse(path: Path) -> ProbeProcess:
    """The process that a file describes; ValueError when it does not."""
    fields = Fields(json.loads(_read(path).decode("utf-8")), "")
    if fields.count("format") != FORMAT:
        raise ValueError(f"format {fields.count('format')}, not {FORMAT}")
    process = ProbeProcess(
        path=path,
        pid=fields.count("pid"),
        ppid=fields.count("ppid"),
        host=fields.text("host"),
        rank=fields.optional("rank", fields.count),
        local_rank=fields.optional("local_rank", fields.count),
        world_size=fields.optional("world_size", fields.count),
        restart=fields.optional("restart", fields.count),
        group_size=fields.optional("group_size", fields.count),
        devices=fields.optional("devices", fields.texts) or (),
        torch=fields.text("torch"),
        started_at=fields.time("started_at"),
        updated_at=fields.time("updated_at"),
        optimizers_created=fields.count("optimizers_created"),
        steps=fields.count("steps"),
        steps_total=fields.count("steps_total"),
        lr_positive_steps=fields.count("lr_positive_steps"),
        lr_unknown_steps=fields.count("lr_unknown_steps"),
        scaler_skips=fields.count("scaler_skips"),
        grad=_grad(fields.object("grad")),
        marks=tuple(fields.optional("marks", lambda name: [
            read_mark(entry) for entry in fields.objects(name, MAX_MARKS)]) or ()),
        looks=tuple(fields.optional("looks", lambda name: [
            read_look(entry) for entry in fields.objects(name, MAX_LOOKS)]) or ()),
        unmarked=fields.optional("unmarked", fields.count) or 0,
        marks_at=fields.optional("marks_at", fields.count) or 0,
        exchange=fields.optional("exchange", lambda name: _exchange(fields.object(name))),
        params=fields.optional("params", lambda name: _params(fields.object(name))),
        optimizers=tuple(_optimizer(entry) for entry in fields.objects("optimizers")),
        first_step_at=fields.optional("first_step_at", fields.time),
        last_step_at=fields.optional("last_step_at", fields.time),
        clean_exit=fields.flag("clean_exit"),
    )
    _check_counts(process)
    return process


def _check_counts(process: ProbeProcess) -> None:
    """Counts that contradict each other are not evidence."""
    contradictions = {
        "more steps than steps_total": process.steps > process.steps_total,
        "more steps with a learning rate than steps": process.lr_positive_steps > process.steps,
        "an optimizer with more steps than steps": any(o.steps > process.steps for o in process.optimizers),
        "more nonzero gradients than looks": process.grad.nonzero > process.grad.checked,
        "more non-finite parameters than looks": process.params is not None
        and process.params.nonfinite > process.params.checked,
        "more exchanges than steps": process.exchange is not None
        and process.exchange.steps + process.exchange.few_steps > process.exchange.observed_steps,
        "more whole exchanges than exchanges": process.exchange is not None
        and max(process.exchange.whole_steps, process.exchange.hidden_steps) > process.exchange.steps,
        "steps without a time": process.steps > 0 and process.last_step_at is None,
    }
    for contradiction, holds in contradictions.items():
        if holds:
            raise ValueError(contradiction)


def _grad(fields: Fields) -> ProbeGrad:
    return ProbeGrad(
        checked=fields.count("checked"),
        nonzero=fields.count("nonzero"),
        nonfinite=fields.count("nonfinite"),
        gave_up=fields.count("gave_up"),
        last_nonzero=fields.optional("last_nonzero", fields.flag),
    )


def _exchange(fields: Fields) -> ProbeExchange:
    return ProbeExchange(
        observed_steps=fields.count("observed_steps"), first=fields.flag("first"), steps=fields.count("steps"),
        few_steps=fields.count("few_steps"), whole_steps=fields.count("whole_steps"),
        hidden_steps=fields.count("hidden_steps"), after=fields.flag("after"),
        whole_after=fields.flag("whole_after"), readable=fields.flag("readable"),
        wrappers=fields.texts("wrappers"), others=fields.texts("others"),
    )


def _params(fields: Fields) -> ProbeParams:
    return ProbeParams(checked=fields.count("checked"), nonfinite=fields.count("nonfinite"))


def _optimizer(fields: Fields) -> ProbeOptimizer:
    return ProbeOptimizer(
        name=fields.text("class"),
        steps=fields.count("steps"),
        lr_positive_steps=fields.count("lr_positive_steps"),
        lr_unknown_steps=fields.count("lr_unknown_steps"),
        lr_min=fields.optional("lr_min", fields.number),
        lr_max=fields.optional("lr_max", fields.number),
        num_params=fields.count("params"),
        first_call=fields.optional("first_call", fields.count) or 0,
        last_call=fields.optional("last_call", fields.count) or 0,
        lr_first=fields.optional("lr_first", fields.numbers) or (),
        lr_initial=fields.optional("lr_initial", fields.numbers) or (),
    )
