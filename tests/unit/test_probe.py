"""The optimizer probe in real child processes: what it counts, and that it leaves the program alone."""

from __future__ import annotations

import ast
import dataclasses
import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from safetensors.torch import load_file

from harness.checkpoints.marks import Seen, told_by_files
from harness.probe import ENV_DIR, site_dir
from harness.probe.reader import ProbeFacts, ProbeProcess, read_probe

MODEL = """
import sys, torch
torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
def backward():
    model.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
def train(optimizer, steps):
    for _ in range(steps):
        backward()
        optimizer.step()
"""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A finished child: its exit code, output and what the probe wrote."""

    exit_code: int
    stdout: str
    stderr: str
    facts: ProbeFacts

    @property
    def process(self) -> ProbeProcess:
        """The only process that wrote a file."""
        assert self.facts.problems == (), self.facts.problems
        (process,) = self.facts.processes
        return process


class Launcher:
    """Runs children the way the launcher does: the probe's directory in front of PYTHONPATH."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.probe_dir = root / "probe"
        self.probe_dir.mkdir()

    def env(self, extra: dict[str, str], path: tuple[Path, ...] = ()) -> dict[str, str]:
        """The child's environment; `path` follows the probe's directory."""
        clean = {key: value for key, value in os.environ.items() if key not in ("RANK", "WORLD_SIZE")}
        pythonpath = os.pathsep.join(map(str, (site_dir(), *path)))
        return {**clean, "PYTHONPATH": pythonpath, ENV_DIR: str(self.probe_dir), **extra}

    def python(self, *args: object, env: dict[str, str] | None = None, path: tuple[Path, ...] = ()) -> Job:
        """Run the interpreter with arguments."""
        child = subprocess.run(
            [sys.executable, *map(str, args)],
            cwd=self.root,
            env=self.env(env or {}, path),
            capture_output=True,
            text=True,
            timeout=400,
        )
        facts = read_probe(self.probe_dir)
        return Job(exit_code=child.returncode, stdout=child.stdout, stderr=child.stderr, facts=facts)

    def program(self, code: str, *, ok: bool = True, **options: object) -> Job:
        """Run a program after `MODEL` as a script."""
        script = self.root / "program.py"
        script.write_text(MODEL + textwrap.dedent(code), encoding="utf-8")
        job = self.python(script, **options)  # type: ignore[arg-type]
        assert not ok or job.exit_code == 0, job.stderr
        return job


@pytest.fixture
def launcher(tmp_path: Path) -> Launcher:
    """A launcher with an empty probe directory."""
    return Launcher(tmp_path)


# What it counts


def test_counts_applied_steps_with_gradients(launcher: Launcher) -> None:
    """Nine steps are nine steps, with a learning rate, a gradient at each look, and times in order."""
    process = launcher.program("train(torch.optim.AdamW(model.parameters(), lr=0.01), 9)").process
    assert (process.steps, process.steps_total, process.lr_positive_steps) == (9, 9, 9)
    assert (process.grad.checked, process.grad.nonzero, process.grad.last_nonzero) == (4, 4, True)
    assert process.first_step_at is not None
    assert process.last_step_at is not None
    assert process.started_at < process.first_step_at < process.last_step_at <= process.updated_at
    assert process.clean_exit
    assert process.optimizers[0].name == "torch.optim.adamw.AdamW"
    assert process.optimizers[0].num_params == 2


def test_forward_and_backward_alone_are_no_step(launcher: Launcher) -> None:
    """An optimizer that is made and never stepped is written down as such."""
    process = launcher.program("torch.optim.SGD(model.parameters(), lr=1.0)\nbackward()").process
    assert (process.optimizers_created, process.steps, process.last_step_at) == (1, 0, None)


def test_zero_learning_rate_counts_no_positive_step(launcher: Launcher) -> None:
    """Steps with lr 0 are steps, but none with a learning rate."""
    process = launcher.program("train(torch.optim.SGD(model.parameters(), lr=0.0), 5)").process
    assert (process.steps, process.lr_positive_steps, process.lr_unknown_steps) == (5, 0, 0)


def test_warm_up_from_zero_loses_one_positive_step(launcher: Launcher) -> None:
    """A scheduler that wraps step() adds no step, and its first learning rate of 0 is seen."""
    code = """
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 3))
    for _ in range(6):
        train(optimizer, 1)
        schedule.step()
    """
    process = launcher.program(code).process
    assert (process.steps, process.lr_positive_steps) == (6, 5)
    (optimizer,) = process.optimizers
    assert (optimizer.lr_first, optimizer.lr_initial, optimizer.lr_max) == ((0.0,), (0.1,), 0.1)


def test_tensor_learning_rate_is_read(launcher: Launcher) -> None:
    """A learning rate that is a tensor counts like a number."""
    code = "train(torch.optim.Adam(model.parameters(), lr=torch.tensor(0.1), foreach=False), 5)"
    process = launcher.program(code).process
    assert (process.steps, process.lr_positive_steps) == (5, 5)


def test_rates_of_the_first_step_are_kept(launcher: Launcher) -> None:
    """Of every parameter group, however they fall later."""
    code = """
    groups = [{"params": [one], "lr": rate} for one, rate in zip(model.parameters(), (0.1, 0.2))]
    optimizer = torch.optim.SGD(groups, lr=1.0)
    train(optimizer, 3)
    for group in optimizer.param_groups:
        group["lr"] = 0.01
    train(optimizer, 3)
    """
    (optimizer,) = launcher.program(code).process.optimizers
    assert (optimizer.lr_first, optimizer.lr_initial) == ((0.2, 0.1), ())
    assert (optimizer.lr_min, optimizer.lr_max) == (0.01, 0.2)


def test_missing_learning_rate_is_unknown(launcher: Launcher) -> None:
    """An optimizer without lr in its groups is neither 0 nor positive."""
    code = """
    class NoRate(torch.optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {})
        def step(self, closure=None):
            pass
    train(NoRate(model.parameters()), 3)
    """
    process = launcher.program(code).process
    assert (process.steps, process.lr_positive_steps, process.lr_unknown_steps) == (3, 0, 3)


@pytest.mark.parametrize(
    ("name", "prepare"),
    [
        ("none", "model.zero_grad()"),
        ("zeros", "backward()\n    for p in model.parameters(): p.grad.zero_()"),
        ("frozen", "for p in model.parameters(): p.requires_grad_(False)"),
    ],
)
def test_absent_and_zero_gradients_are_zero(launcher: Launcher, name: str, prepare: str) -> None:
    """A step without gradients, or with zeros only, is checked and found zero."""
    code = f"""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.1)
    {prepare}
    for _ in range(4):
        optimizer.step()
    """
    process = launcher.program(code).process
    assert process.steps == 4
    assert (process.grad.checked, process.grad.nonzero, process.grad.last_nonzero) == (3, 0, False), name


def test_non_finite_gradient_is_seen(launcher: Launcher) -> None:
    """A NaN in a gradient at a looked-at step counts."""
    code = """
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    backward()
    model.bias.grad[1] = float("nan")
    optimizer.step()
    """
    process = launcher.program(code).process
    assert (process.grad.checked, process.grad.nonfinite) == (1, 1)


def test_gradient_that_turns_nan_between_looks_is_glanced_at(launcher: Launcher) -> None:
    """Step 3 is no look, and NaN that begins there is seen although nothing follows."""
    code = """
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(optimizer, 2)
    import time
    time.sleep(0.15)
    backward()
    for parameter in model.parameters(): parameter.grad.fill_(float("nan"))
    optimizer.step()
    del optimizer
    """
    process = launcher.program(code).process
    assert (process.steps, process.grad.checked, process.grad.nonfinite) == (3, 2, 1)


@pytest.mark.parametrize(("end", "checked", "nonfinite"), [("", 2, 1), ("del optimizer", 0, 0)])
def test_parameters_are_looked_at_when_training_is_over(
    end: str, checked: int, nonfinite: int, launcher: Launcher
) -> None:
    """NaN that the last step itself made is in no gradient; an optimizer that is gone cannot be asked."""
    code = f"""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(optimizer, 2)
    with torch.no_grad(): model.bias[0] = float("inf")
    {end}
    """
    params = launcher.program(code).process.params
    assert params is not None
    assert (params.checked, params.nonfinite) == (checked, nonfinite)


def test_small_parameters_are_marked_as_the_optimizer_found_them(launcher: Launcher) -> None:
    """With the bytes that safetensors would hold, and whether training moved them; frozen ones are none."""
    code = """
    from safetensors.torch import save_file
    frozen = torch.nn.Parameter(torch.ones(3), requires_grad=False)
    save_file(dict(model.state_dict()), "start.safetensors")
    optimizer = torch.optim.SGD([*model.parameters(), frozen], lr=0.1)
    train(optimizer, 2)
    save_file(dict(model.state_dict()), "end.safetensors")
    """
    marks = launcher.program(code).process.marks
    assert [(mark.dtype, mark.shape, mark.changed) for mark in marks] == [("F32", (2,), True), ("F32", (2, 4), True)]
    seen = Seen(marks=tuple(dataclasses.asdict(mark) for mark in marks))
    still = Seen(marks=tuple({**mark, "changed": False} for mark in seen.marks))
    answers = {name: told_by_files([launcher.root / f"{name}.safetensors"], seen).word
               for name in ("start", "end", "none")}
    assert answers == {"start": "held", "end": "moved", "none": ""}
    assert not told_by_files([launcher.root / "start.safetensors"], still).word


def test_marks_are_of_what_the_first_step_found(launcher: Launcher) -> None:
    """What is loaded between the optimizer and its first step is the start; of a large one the beginning is digested;
    each optimizer has marks of its own, and what neither moved is told.
    """
    code = """
    from safetensors.torch import save_file
    other = torch.nn.Linear(4, 20000)
    optimizer, second = torch.optim.SGD(model.parameters(), lr=0.1), torch.optim.SGD(other.parameters(), lr=0.1)
    with torch.no_grad():
        for param in (*model.parameters(), *other.parameters()): param.add_(1.0)
    def state(): return {f"{name}.{key}": value.clone() for name, one in (("actor", model), ("critic", other))
                         for key, value in one.state_dict().items()}
    start = state()
    save_file(start, "start.safetensors")
    train(optimizer, 3)
    for _ in range(3):
        other.zero_grad(); other(torch.randn(8, 4)).square().mean().backward(); second.step()
    save_file(state(), "end.safetensors")
    save_file({**state(), **{key: start[key] for key in start if "critic" in key}}, "half.safetensors")
    save_file({**state(), **{f"ref.{key}": start[key] for key in start}}, "beside.safetensors")
    """
    marks = launcher.program(code).process.marks
    assert [(mark.optimizer, mark.shape, mark.changed) for mark in marks] == [
        (0, (2,), True), (0, (2, 4), True), (1, (20000,), True), (1, (20000, 4), True)]
    seen = Seen(marks=tuple(dataclasses.asdict(mark) for mark in marks))
    answers = [told_by_files([launcher.root / f"{name}.safetensors"], seen).word
               for name in ("start", "end", "half", "beside")]
    assert answers == ["held", "moved", "held", "moved"]


def test_parameters_are_looked_at_whenever_the_program_saves(launcher: Launcher) -> None:
    """By torch.save, to a file or into memory, and by safetensors; by a thread nothing is seen, nor before a step."""
    code = """
    import io, threading
    from safetensors.torch import save_file
    torch.save(model.state_dict(), "first.pt")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(optimizer, 3)
    torch.save(model.state_dict(), "third.pt")
    torch.save(model.state_dict(), io.BytesIO())
    train(optimizer, 2)
    save_file(model.state_dict(), filename="fifth.safetensors")
    kept = {name: value.clone() for name, value in model.state_dict().items()}
    train(optimizer, 1)
    thread = threading.Thread(target=torch.save, args=(kept, "late.pt")); thread.start(); thread.join()
    save_file(kept, "sixth.safetensors")
    """
    process = launcher.program(code).process
    saved = [(look.at, Path(look.path).name) for look in process.looks if look.path]
    assert saved == [(3, "third.pt"), (5, "fifth.safetensors"), (6, "sixth.safetensors")]
    assert [look.at for look in process.looks] == [1, 2, 3, 4, 5, 6, 6]
    seen = Seen(marks=tuple(dataclasses.asdict(mark) for mark in process.marks),
                looks=tuple(dataclasses.asdict(look) for look in process.looks))
    told = [told_by_files([launcher.root / f"{name}.safetensors"], seen) for name in ("fifth", "sixth")]
    assert [(one.word, one.at) for one in told] == [("moved", 5), ("stale", 5)]
    bias = load_file(launcher.root / "sixth.safetensors")["bias"].tolist()
    assert process.marks[0].values_last != pytest.approx(bias) and len(process.marks[0].values) == 2


def test_saving_fails_and_returns_as_without_the_probe(launcher: Launcher) -> None:
    """Its errors are the program's, and what it returns is what the program gets."""
    code = """
    from safetensors.torch import save_file
    train(torch.optim.SGD(model.parameters(), lr=0.1), 1)
    for save in (lambda: torch.save(model.state_dict(), "none/x.pt"), lambda: torch.save(1), lambda: save_file(1, 2)):
        try:
            save()
        except Exception as error:
            print(type(error).__name__, flush=True)
    print(torch.save({}, "x.pt"), torch.save.__module__, flush=True)
    """
    assert launcher.program(code).stdout.split() == ["RuntimeError", "TypeError", "ValueError", "None",
                                                     "torch.serialization"]


@pytest.mark.parametrize(("group", "size"), [(True, 1), (False, None)])
def test_process_group_and_devices_are_seen(group: bool, size: int | None, launcher: Launcher) -> None:
    """The size is the process group's own, whatever WORLD_SIZE says; without a group there is none."""
    code = f"""
    import torch.distributed as dist
    if {group}: dist.init_process_group("gloo", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
    train(torch.optim.SGD(model.parameters(), lr=0.1), 2)
    if {group}: dist.destroy_process_group()
    """
    process = launcher.program(code, env={"WORLD_SIZE": "8", "RANK": "3"}).process
    assert (process.rank, process.world_size, process.group_size, process.devices) == (3, 8, size, ("cpu",))


def test_sparse_gradients_are_looked_at(launcher: Launcher) -> None:
    """A sparse embedding's gradient has a nonzero element."""
    code = """
    table = torch.nn.Embedding(10, 3, sparse=True)
    optimizer = torch.optim.SparseAdam(table.parameters(), lr=0.1)
    table(torch.tensor([1, 2])).sum().backward()
    optimizer.step()
    """
    assert launcher.program(code).process.grad.nonzero == 1


def test_looking_is_bounded_and_says_when_it_gave_up(launcher: Launcher) -> None:
    """With more zero gradients than are looked at, nothing is said about the rest."""
    code = """
    params = [torch.nn.Parameter(torch.zeros(1)) for _ in range(600)]
    for p in params: p.grad = torch.zeros(1)
    torch.optim.SGD(params, lr=0.1).step()
    """
    grad = launcher.program(code).process.grad
    assert (grad.checked, grad.gave_up, grad.last_nonzero) == (0, 1, None)


def test_accumulation_counts_applied_steps_only(launcher: Launcher) -> None:
    """Four backward passes per step are one step."""
    code = """
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for index in range(12):
        model(torch.randn(8, 4)).sum().backward()
        if index % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()
    """
    assert launcher.program(code).process.steps == 3


def test_closure_is_one_step(launcher: Launcher) -> None:
    """LBFGS evaluates its closure many times within one step."""
    code = """
    def closure():
        closure.calls += 1
        backward()
        return model(torch.ones(1, 4)).square().mean()
    closure.calls = 0
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.step(closure)
    assert closure.calls > 3
    """
    assert launcher.program(code).process.steps == 3


def test_super_step_is_one_step(launcher: Launcher) -> None:
    """A subclass whose step calls super().step() counts once, also when a step before it raised."""
    code = """
    class Outer(torch.optim.SGD):
        fail = False
        def step(self, closure=None):
            super().step(closure)
            if self.fail:
                raise RuntimeError("after the inner step")
    torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = Outer(model.parameters(), lr=0.1)
    train(optimizer, 3)
    optimizer.fail = True
    try:
        train(optimizer, 1)
    except RuntimeError:
        pass
    optimizer.fail = False
    train(optimizer, 2)
    """
    assert launcher.program(code).process.steps == 5


def test_two_optimizers_have_a_maximum_and_a_sum(launcher: Launcher) -> None:
    """`steps` is the most of any optimizer, `steps_total` the sum."""
    code = """
    train(torch.optim.SGD([model.weight], lr=0.1), 5)
    train(torch.optim.Adam([model.bias], lr=0.1), 3)
    """
    process = launcher.program(code).process
    assert (process.optimizers_created, process.steps, process.steps_total) == (2, 5, 8)


def test_reused_ids_are_not_merged(launcher: Launcher) -> None:
    """Of a thousand optimizers with one step each, some at the same address, none has more than one."""
    code = """
    ids = set()
    for _ in range(1000):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        ids.add(id(optimizer))
        train(optimizer, 1)
        del optimizer
    assert len(ids) < 1000
    """
    process = launcher.program(code).process
    assert (process.optimizers_created, process.steps, process.steps_total) == (1000, 1, 1000)
    assert len(process.optimizers) == 16


def test_reused_ids_of_copies_are_not_merged(launcher: Launcher) -> None:
    """Copies, which skip __init__, are told apart at the same address too."""
    code = """
    import copy
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ids = set()
    for _ in range(100):
        other = copy.copy(optimizer)
        ids.add(id(other))
        train(other, 1)
        del other
    assert len(ids) < 100
    """
    process = launcher.program(code).process
    assert (process.steps, process.steps_total) == (1, 100)


def test_copied_and_pickled_optimizers_stay_usable(launcher: Launcher) -> None:
    """The probe leaves nothing in an optimizer; its copies count for themselves."""
    code = """
    import copy, pickle
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    train(optimizer, 2)
    train(copy.deepcopy(optimizer), 1)
    train(pickle.loads(pickle.dumps(optimizer)), 1)
    """
    process = launcher.program(code).process
    assert (process.steps, process.steps_total) == (2, 4)


SCALER = """
    scaler = torch.amp.GradScaler("cpu", init_scale=1e38, backoff_factor=1e-20, growth_interval=1000)
    for index in range(6):
        model.zero_grad()
        scaler.scale(model(torch.full((8, 4), 1e4)).square().mean()).backward()
        scaler.step(optimizer)
        scaler.update()
"""


@pytest.mark.parametrize("options", ["", ", fused=True"])
def test_scaler_skips_are_no_steps(launcher: Launcher, options: str) -> None:
    """Steps withheld for inf gradients are skips, whether by the scaler or inside a fused optimizer."""
    code = f"    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3{options}){SCALER}"
    process = launcher.program(code).process
    assert process.scaler_skips >= 1
    assert process.steps + process.scaler_skips == 6
    assert process.steps >= 4
    assert process.grad.nonfinite == 0


def test_skip_is_written_when_it_happens(launcher: Launcher) -> None:
    """Not at the next step, which may take minutes: a watch that sees its infinite norm asks whether it was a skip."""
    code = """
    import os, time
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu")
    for value in (1.0, 1e30):
        scaler.scale(model(torch.full((8, 4), value)).square().mean()).backward()
        scaler.step(optimizer); scaler.update(); optimizer.zero_grad()
        time.sleep(1.1)
    os._exit(0)
    """
    process = launcher.program(code).process
    assert (process.steps, process.scaler_skips) == (1, 1)


def test_disabled_scaler_skips_nothing(launcher: Launcher) -> None:
    """A scaler that is switched off passes every step on."""
    code = """
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    for _ in range(3):
        backward()
        scaler.step(optimizer)
        scaler.update()
    """
    process = launcher.program(code).process
    assert (process.steps, process.scaler_skips) == (3, 0)


def test_foreign_optimizer_tells_the_scaler_nothing(launcher: Launcher) -> None:
    """Steps of an optimizer that torch's hooks do not reach are not taken for skips."""
    code = """
    class Foreign:
        param_groups = [{"params": list(model.parameters())}]
        def step(self):
            pass
    scaler = torch.amp.GradScaler("cpu")
    for _ in range(3):
        model.zero_grad()
        scaler.scale(model(torch.ones(8, 4)).square().mean()).backward()
        scaler.step(Foreign())
        scaler.update()
    """
    process = launcher.program(code).process
    assert (process.steps, process.scaler_skips) == (0, 0)


def test_compiled_step_is_counted(launcher: Launcher) -> None:
    """optimizer.step inside torch.compile counts once per call, and the compiler passes the probe over."""
    code = """
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    @torch.compile(backend="eager")
    def compiled():
        optimizer.step()
    for _ in range(4):
        backward()
        compiled()
    """
    job = launcher.program(code)
    assert job.process.steps == 4
    assert "_getframe" not in job.stderr


# Ways to start and to end


def test_rank_is_recorded(launcher: Launcher) -> None:
    """The variables that torchrun sets are taken over."""
    env = {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4"}
    process = launcher.program("train(torch.optim.SGD(model.parameters(), lr=0.1), 1)", env=env).process
    assert (process.rank, process.local_rank, process.world_size) == (3, 1, 4)


def test_torchrun_gives_one_file_per_rank(launcher: Launcher) -> None:
    """Two ranks under torchrun write a file each."""
    (launcher.root / "ranks.py").write_text(
        MODEL + "train(torch.optim.SGD(model.parameters(), lr=0.1), 4)", encoding="utf-8"
    )
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2, "ranks.py"]
    job = launcher.python(*launch)
    assert job.exit_code == 0, job.stderr
    ranks = {process.rank: process.steps for process in job.facts.processes if process.rank is not None}
    assert ranks == {0: 4, 1: 4}


def test_program_without_torch_leaves_the_marker_only(launcher: Launcher) -> None:
    """`loaded` is an empty file and the only one."""
    job = launcher.python("-c", "import json")
    assert [path.name for path in launcher.probe_dir.iterdir()] == ["loaded"]
    assert (launcher.probe_dir / "loaded").stat().st_size == 0
    assert job.facts == ProbeFacts(loaded=True, processes=(), problems=())


def test_module_and_command_start_are_counted(launcher: Launcher) -> None:
    """python -m and python -c are as good as a script."""
    code = MODEL + "train(torch.optim.SGD(model.parameters(), lr=0.1), 2)"
    (launcher.root / "job_module.py").write_text(code, encoding="utf-8")
    launcher.python("-m", "job_module")
    job = launcher.python("-c", code)
    assert [process.steps for process in job.facts.processes] == [2, 2]


def test_isolated_interpreter_runs_without_the_probe(launcher: Launcher) -> None:
    """-I ignores PYTHONPATH: no file, no harm."""
    job = launcher.python("-I", "-c", "print('ran')")
    assert (job.exit_code, job.stdout, job.facts.loaded) == (0, "ran\n", False)


def test_forked_children_count_for_themselves(launcher: Launcher) -> None:
    """A child of multiprocessing that trains has a file of its own; a data loader's worker has none."""
    code = """
    import multiprocessing
    def child():
        train(optimizer, 7)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(optimizer, 3)
    process = multiprocessing.get_context("fork").Process(target=child)
    process.start(); process.join()
    for _ in torch.utils.data.DataLoader(list(range(8)), num_workers=2): pass
    """
    job = launcher.program(code)
    assert [(process.steps, process.clean_exit) for process in job.facts.processes] == [(3, True), (7, True)]
    assert job.facts.processes[1].ppid == job.facts.processes[0].pid


def test_spawned_children_count_for_themselves(launcher: Launcher) -> None:
    """torch.multiprocessing.spawn starts fresh interpreters, which have the probe too."""
    code = """
    def child(index):
        train(torch.optim.SGD(model.parameters(), lr=0.1), 5 + index)
    if __name__ == "__main__":
        torch.multiprocessing.spawn(child, nprocs=2)
    """
    job = launcher.program(code)
    assert sorted(process.steps for process in job.facts.processes) == [0, 5, 6]


def test_exec_in_the_same_process_keeps_the_earlier_file(launcher: Launcher) -> None:
    """A program that replaces itself has the same PID and writes a second file."""
    code = """
    import os
    train(torch.optim.SGD(model.parameters(), lr=0.1), 2)
    if len(sys.argv) == 1:
        os.execv(sys.executable, [sys.executable, __file__, "again"])
    """
    job = launcher.program(code)
    assert len(job.facts.processes) == 2
    assert len({process.pid for process in job.facts.processes}) == 1


@pytest.mark.parametrize("end", ["os._exit(0)", "os.kill(os.getpid(), 9)"])
def test_sudden_end_leaves_a_file_at_most_a_second_old(launcher: Launcher, end: str) -> None:
    """Without exit handlers the last written file is at most a second behind the last step: that which comes a
    second after a writing, and half as much for the writing itself, is written."""
    code = f"""
    import os, time
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    until, steps = time.time() + 3.2, []
    while time.time() < until:
        steps.append(time.time())
        train(optimizer, 1)
        time.sleep(0.01)
    print(*steps, flush=True)
    {end}
    """
    job = launcher.program(code, ok=False)
    assert not job.process.clean_exit
    begun = [float(word) for word in job.stdout.split()]
    assert begun[0] <= job.process.updated_at
    assert begun[-1] - job.process.updated_at < 1.5
    assert job.process.steps >= sum(moment < job.process.updated_at - 1.5 for moment in begun)


def test_uncaught_exception_still_writes(launcher: Launcher) -> None:
    """An exception ends the program with its own exit code and a last write."""
    code = "train(torch.optim.SGD(model.parameters(), lr=0.1), 3)\nraise ValueError('broken')"
    job = launcher.program(code, ok=False)
    assert (job.exit_code, job.process.steps) == (1, 3)
    assert "ValueError: broken" in job.stderr


def test_interrupt_is_passed_on(launcher: Launcher) -> None:
    """Ctrl-C ends a training loop as it would without the probe."""
    code = MODEL + "print('go', flush=True)\ntrain(torch.optim.SGD(model.parameters(), lr=0.1), 10**9)"
    env = launcher.env({})
    with subprocess.Popen(
        [sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(0.3)
        child.send_signal(signal.SIGINT)
        assert child.wait(300) == -signal.SIGINT


# Leaving the program alone


def test_training_is_bitwise_the_same_with_and_without(launcher: Launcher) -> None:
    """The probe changes no weight and no random number."""
    code = """
    train(torch.optim.AdamW(model.parameters(), lr=0.01), 20)
    print(model.weight.tolist(), torch.rand(1).item())
    """
    with_probe = launcher.program(code)
    without = launcher.program(code, env={"PYTHONPATH": ""})
    assert with_probe.stdout == without.stdout != ""


@pytest.mark.parametrize("damage", ["missing", "file", "deleted"])
def test_unusable_directory_does_not_reach_the_program(launcher: Launcher, damage: str) -> None:
    """A probe directory that is missing, a file or deleted on the way: the program does not notice."""
    env = {}
    if damage == "missing":
        env[ENV_DIR] = str(launcher.root / "nowhere")
    elif damage == "file":
        (launcher.root / "plain").write_text("")
        env[ENV_DIR] = str(launcher.root / "plain")
    code = f"""
    import shutil, os
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(optimizer, 2)
    if {damage == "deleted"}:
        shutil.rmtree(os.environ["{ENV_DIR}"])
    train(optimizer, 40)
    print("done")
    """
    job = launcher.program(code, env=env)
    assert (job.stdout, job.stderr) == ("done\n", "")
    assert not (launcher.root / "nowhere").exists()


def test_full_disk_keeps_the_last_whole_file(launcher: Launcher) -> None:
    """When a write fails midway the earlier file stays, and no partial one does."""
    code = """
    import resource, signal
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(optimizer, 4)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
    train(optimizer, 40)
    """
    launcher.program(code)
    (process,) = read_probe(launcher.probe_dir).processes
    assert process.steps == 4
    assert not list(launcher.probe_dir.glob("*.partial"))


def test_other_sitecustomize_and_usercustomize_still_run(launcher: Launcher) -> None:
    """The next sitecustomize on the path runs and is the one that programs import; so does usercustomize."""
    other = launcher.root / "other"
    other.mkdir()
    (other / "sitecustomize.py").write_text("import builtins\nbuiltins.site_ran = True\nNAME = 'other'\n")
    (other / "usercustomize.py").write_text("import builtins\nbuiltins.user_ran = True\n")
    user = "not site.ENABLE_USER_SITE or user_ran"
    code = f"import site, sitecustomize; print(site_ran, sitecustomize.NAME, {user})"
    job = launcher.python("-c", code, path=(other,))
    assert job.stdout == "True other True\n", job.stderr
    assert job.facts.loaded


def test_failing_sitecustomize_fails_as_it_would_alone(launcher: Launcher) -> None:
    """The interpreter reports another sitecustomize's error and goes on, with the probe in place."""
    other = launcher.root / "other"
    other.mkdir()
    (other / "sitecustomize.py").write_text("raise RuntimeError('theirs')\n")
    job = launcher.python("-c", "print('ran')", path=(other,))
    alone = launcher.python("-c", "print('ran')", env={"PYTHONPATH": str(other)})
    assert (job.stdout, job.stderr) == (alone.stdout, alone.stderr)
    assert "theirs" in job.stderr
    assert job.facts.loaded


def test_second_copy_of_the_probe_does_not_count_twice(launcher: Launcher) -> None:
    """Two installations of the harness on the path, and one of them twice, are one probe."""
    copy = launcher.root / "copy"
    copy.mkdir()
    for file in site_dir().glob("*.py"):
        (copy / file.name).write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
    code = "train(torch.optim.SGD(model.parameters(), lr=0.1), 3)"
    assert launcher.program(code, path=(copy, site_dir())).process.steps == 3


def test_child_with_an_own_path_runs(launcher: Launcher) -> None:
    """A program that overwrites PYTHONPATH for its children takes the probe from them, and nothing else."""
    code = """
    import os, subprocess
    child = [sys.executable, "-c", "import torch; print(torch.ones(1).item())"]
    subprocess.run(child, env={**os.environ, "PYTHONPATH": "."}, check=True)
    """
    job = launcher.program(code)
    assert job.stdout == "1.0\n"
    assert job.process.steps == 0


def test_torch_modules_keep_their_loader_and_source(launcher: Launcher) -> None:
    """Introspection of the watched modules works as without the probe."""
    code = """
    import inspect, importlib.util
    import torch.optim.optimizer as module
    assert type(module.__loader__).__name__ == "SourceFileLoader"
    assert "class Optimizer" in inspect.getsource(module)
    assert list(inspect.signature(module.Optimizer.__init__).parameters) == ["self", "params", "defaults"]
    assert "optimizer" in inspect.signature(torch.amp.GradScaler.step).parameters
    """
    launcher.program(code)


@pytest.mark.parametrize("path", sorted(site_dir().glob("*.py")), ids=lambda path: path.name)
def test_site_files_are_old_python_and_stdlib_only(path: Path) -> None:
    """They parse as Python 3.8 and import nothing but the standard library."""
    tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 8))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in imported} <= sys.stdlib_module_names


def test_optimizers_that_follow_one_another_are_told_from_those_that_take_turns(launcher: Launcher) -> None:
    """By the numbers of their first and last step in the process."""
    process = launcher.program("""
        first, second, third = (torch.optim.SGD(model.parameters(), lr=0.01) for _ in range(3))
        train(first, 5)
        for _ in range(3):
            train(second, 1)
            train(third, 1)
    """).process
    assert sorted((item.first_call, item.last_call) for item in process.optimizers) == [(1, 5), (6, 10), (7, 11)]
