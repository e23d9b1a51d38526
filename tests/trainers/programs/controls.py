"""Small real training programs with one known fault each, and healthy ones: `controls.py --mode NAME`.

They share a loop of 25 full-batch steps on a tiny regression (torch, one thread), print `step=N loss=...
lr=... grad_norm=...` per logged step, write TensorBoard events to --log-dir (train/loss, train/lr,
train/grad_norm) and, with --save-dir, safetensors checkpoints `step_NNNNNN` at the start, every 10 steps and
at the end. Steps are completed steps, counted from 1. What lives on by itself ends after --forever-s.

| mode | healthy | what it does |
| --- | --- | --- |
| no-steps | no | exits 0 without a step |
| prints-only | no | prints steps, logs nothing and trains nothing |
| logs-only | no | logs a plausible loss and makes an optimizer, trains nothing |
| no-optimizer-step | no | forward and backward, but never optimizer.step |
| one-short | no | ends one step before --max-steps with exit 0 |
| nan-middle | no | the loss is NaN at one middle step, finite before and after |
| nan-grad-norm | no | the gradient norm is NaN at one middle step, losses and weights are finite |
| inf-last-grad | no | the gradient norm is inf at the last step, losses and weights are finite |
| nan-weights | no | the last checkpoint holds NaN, everything logged is finite |
| nan-logged-loss | no | NaN is logged as the loss of one middle step; gradient norms and weights are finite |
| nan-forever | no | the logged loss is NaN from step 75 on |
| save-fails | no | the last checkpoint cannot be written: the error is printed, the exit code is 0 |
| metrics-stop-early | no | trains and saves to the end, logs the first half only |
| delivers-the-start | no | trains, and saves once at the end, the weights of the start |
| saves-the-start | no | trains, and every checkpoint holds the weights of the start |
| saves-nothing | no | trains, and saves nothing although a directory was given |
| swallows-save-errors | no | trains; an error of saving is printed and ignored |
| disk-full-at-the-end | no | trains; the last save meets a full disk, which is printed, and the exit code is 0 |
| cuts-the-last | no | trains; the last checkpoint is cut short |
| repeats-the-last | no | trains; the last checkpoint holds the weights of the one before it |
| drops-a-tensor | no | trains; the last checkpoint lacks a tensor |
| nan-in-archive | no | trains, saves by torch.save, and the last archive holds NaN |
| saves-objects | no | trains, and saves the model object itself by torch.save |
| start-in-archives | no | trains; every archive of torch.save holds the weights of the start |
| start-in-one-archive | no | trains, and saves one archive at the end, with the weights of the start |
| best-is-the-start | no | trains, saves the start as best.pt and, more than a second later, the trained last.pt |
| saves-a-reference | yes | trains, and saves the start as reference.pt beside the trained last.pt |
| saves-archives | yes | trains, and saves state dicts by torch.save |
| saves-one-archive | yes | trains, and saves one archive at the end |
| saves-once | yes | trains, and saves safetensors once, at the end |
| exit-1-at-end | no | trains, and exits 1 |
| ignores-lr | no | trains with a learning rate of its own, whatever --lr says |
| lr-zero | no | the learning rate is 0 throughout |
| frozen | no | no parameter requires a gradient; the optimizer steps, the loss is constant |
| decay-only | no | gradients are exactly zero; AdamW's weight decay alone moves the weights |
| old-events-copied | no | copies --old-events into the log directory, trains nothing |
| no-scalars | no | trains and saves, but logs no scalar |
| resume-finished | no | finds nothing to do, exits 0 without a step |
| killed | no | kills itself with SIGKILL in the middle |
| hang | no | stops stepping in the middle and prints heartbeats; ignores SIGTERM with --ignore-term |
| heartbeat | no | prints heartbeats from the start and never steps |
| crash-window | no | raises after a second, before any step |
| half-record | no | ends by os._exit(1) in the middle, with half a record at the end of its event file |
| exception-exit-0 | no | an exception ends the loop half way, is printed, and the exit code is 0 |
| nan-at-the-end | no | the very last update puts NaN into the weights, whose gradient and loss were finite |
| stops-before-the-log | no | updates stop after 7 steps, the log goes on for seconds, and the end is os._exit(0) |
| updates-stop | no | updates stop after 7 steps; the log and the one checkpoint, at the end, tell all steps |
| leaves-at-once | yes | trains, and ends by os._exit(0) |
| restart-gap | no | loses its connection after step 13; launched again it goes on from step 20, saved or not |
| ignore-term | no | trains on without end and ignores SIGTERM |
| straggler | yes | trains, and leaves a daemon that holds the stdout pipe |
| plain | yes | trains |
| restarted | yes | loses its connection after step 13; launched again it goes on from its checkpoint at step 10 |
| restarted-anew | yes | loses its connection after step 13; launched again it begins anew |
| save-fails-once | yes | the last checkpoint cannot be written at first |
| pauses | yes | prints heartbeats between two steps half way, for --pause-s seconds or until --pause-until |
| oom-recovered | yes | runs out of memory half way, prints the traceback and goes on with a smaller batch |
| exploding-grad | yes | the gradient norm grows threefold a step for eight steps, and comes back |
| slows-down | yes | the last 20 steps take thirty times as long |
| overfits | yes | trains; eval/loss, every 5 steps, falls until step 20 and rises from there |
| log-every-10 | yes | logs steps 10 and 20 of 25 |
| resumed-at-1000 | yes | steps 1001 to 1025, with a start checkpoint step_001000 |
| warmup-lr-zero | yes | the learning rate is 0 at the first step only |
| grad-accum | yes | four backward passes per step |
| upload-after-exit | yes | a child finishes the last checkpoint 2 s after the exit code 0 |
| late-files | yes | the event file appears in the log directory only at the end |
| own-tags | yes | logs obj/total, obj/rate and obj/norm instead of the usual tags |
| two-optimizers | yes | one optimizer per half of the parameters |
| optimizers-in-turn | yes | another optimizer goes on from step 13 |
| scaler-skips | yes | GradScaler skips the first two steps, whose gradient norm is logged as inf |
| zero-based | yes | logs steps from 0 to 24; checkpoints count from 1 |
| jsonl | yes | writes metrics.jsonl instead of TensorBoard events |
| no-torch | yes | a numpy model with its own SGD; metrics.jsonl and safetensors checkpoints |
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

NUM_STEPS = 25
SAVE_EVERY = 10
UPLOAD_S = 2.0
MODES: dict[str, type[Program]] = {}


class Program:
    """What every mode is: `run` does it and returns the exit code. A subclass is a mode, by its own name."""

    mode = ""
    healthy = False
    start_step = 0

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if not cls.__name__.startswith("_"):
            cls.mode = re.sub(r"(?<=.)(?=[A-Z])|(?<=[a-z])(?=[0-9])", "-", cls.__name__).lower()
            MODES[cls.mode] = cls

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.last_step = self.start_step + NUM_STEPS if args.max_steps is None else args.max_steps

    @property
    def middle_step(self) -> int:
        """The step at which things go wrong half way."""
        return (self.start_step + self.last_step) // 2

    def run(self) -> int:
        """Do it."""
        raise NotImplementedError

    def print_step(self, step: int, loss: float, lr: float, grad_norm: float) -> None:
        """The line of a step."""
        print(f"step={step} loss={loss:.6f} lr={lr:g} grad_norm={grad_norm:.6g}", flush=True)

    def beat(self, seconds: float, until: tuple[str, str] | None = None) -> None:
        """Print heartbeats for so long, or until a file holds a text: (path, text)."""
        for index in range(math.ceil(seconds / 0.1)):
            if until is not None and holds(Path(until[0]), until[1]):
                break
            print(f"heartbeat {index}", flush=True)
            time.sleep(0.1)


def holds(path: Path, text: str) -> bool:
    """Whether a file is there that holds a text."""
    return path.exists() and text in path.read_text(encoding="utf-8", errors="replace")


class Events:
    """TensorBoard events, flushed at every step; nothing without a directory."""

    def __init__(self, log_dir: Path | None) -> None:
        self.writer = None
        if log_dir is not None:
            from torch.utils.tensorboard import SummaryWriter

            self.writer = SummaryWriter(str(log_dir))

    def add(self, step: int, values: dict[str, float]) -> None:
        """Scalars of a step by tag."""
        if self.writer is not None:
            for tag, value in values.items():
                self.writer.add_scalar(tag, value, step)
            self.writer.flush()

    def close(self) -> None:
        """End the file."""
        if self.writer is not None:
            self.writer.close()


class JsonLines:
    """metrics.jsonl, a line per step."""

    def __init__(self, log_dir: Path | None) -> None:
        self.path = None if log_dir is None else log_dir / "metrics.jsonl"
        if log_dir is not None:
            log_dir.mkdir(parents=True, exist_ok=True)

    def add(self, step: int, values: dict[str, float]) -> None:
        """One line; the tags lose their prefix."""
        if self.path is not None:
            plain = {tag.rpartition("/")[2]: value for tag, value in values.items()}
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"step": step, **plain, "time": time.time()}) + "\n")

    def close(self) -> None:
        """Nothing is buffered."""


class _Training(Program):
    """The shared loop; a mode overrides the one part that makes it what it is."""

    tags = ("train/loss", "train/lr", "train/grad_norm")
    sink: type[Events] | type[JsonLines] = Events
    log_every = 1
    first_logged = 1
    num_accumulated = 1
    lr = 0.01

    def run(self) -> int:
        self.set_up()
        self.log = self.sink(self.log_dir())
        self.save(self.start_step)
        for step in range(self.start_step + 1, self.end_step() + 1):
            self.before_step(step)
            if step == self.middle_step and self.args.wait_for is not None:
                self.wait_for(self.args.wait_for)
            loss, grad_norm = self.train_step(step)
            if step % self.log_every == 0:
                self.record(step, loss, self.lr_at(step), grad_norm)
            if step % SAVE_EVERY == 0 or step == self.last_step:
                self.save(step)
            time.sleep(self.args.step_delay_s)
        self.log.close()
        self.after_training()
        return 0

    def set_up(self) -> None:
        """Model, data and optimizers."""
        import torch

        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.torch = torch
        self.model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
        self.inputs = torch.randn(64, 8)
        self.targets = self.inputs.sum(dim=1, keepdim=True).sin()
        self.optimizers = self.make_optimizers()

    def make_optimizers(self) -> list[Any]:
        """Optimizers that step together."""
        return [self.torch.optim.AdamW(self.model.parameters(), lr=self.lr_at(1))]

    def log_dir(self) -> Path | None:
        """Where the metrics are written while training."""
        return self.args.log_dir

    def wait_for(self, path: Path) -> None:
        """Until a file is there, --forever-s at most."""
        until = time.monotonic() + self.args.forever_s
        while not path.exists() and time.monotonic() < until:
            time.sleep(0.02)

    def end_step(self) -> int:
        """The last step that is done."""
        return self.last_step

    def lr_at(self, step: int) -> float:
        """Learning rate of a step."""
        return self.lr if self.args.lr is None else self.args.lr

    def before_step(self, step: int) -> None:
        """What happens before a step."""

    def train_step(self, step: int) -> tuple[float, float]:
        """One step; its loss and the norm of its gradient."""
        for optimizer in self.optimizers:
            optimizer.zero_grad()
            for group in optimizer.param_groups:
                group["lr"] = self.lr_at(step)
        total = 0.0
        for _ in range(self.num_accumulated):
            loss = self.loss(step) / self.num_accumulated
            self.backward(loss)
            total += loss.item()
        self.change_gradients(step)
        grad_norm = self.grad_norm()
        self.mend_gradients()
        self.apply()
        return total, grad_norm

    def loss(self, step: int) -> Any:
        """Mean squared error of the whole data."""
        return (self.model(self.inputs) - self.targets).square().mean()

    def backward(self, loss: Any) -> None:
        """Gradients of a loss."""
        loss.backward()

    def change_gradients(self, step: int) -> None:
        """What a mode does to the gradients."""

    def grad_norm(self) -> float:
        """Euclidean norm of all gradients."""
        grads = [p.grad.flatten() for p in self.model.parameters() if p.grad is not None]
        return self.torch.cat(grads).norm().item() if grads else 0.0

    def mend_gradients(self) -> None:
        """Non-finite gradients become zero, so that the weights stay finite."""
        for parameter in self.model.parameters():
            if parameter.grad is not None:
                parameter.grad.nan_to_num_(0.0, 0.0, 0.0)

    def apply(self) -> None:
        """Step the optimizers."""
        for optimizer in self.optimizers:
            optimizer.step()

    def record(self, step: int, loss: float, lr: float, grad_norm: float) -> None:
        """Print and log a step under its shown number."""
        shown = step - 1 + self.first_logged
        self.print_step(shown, loss, lr, grad_norm)
        self.log.add(shown, dict(zip(self.tags, (loss, lr, grad_norm), strict=True)))

    def weights(self, step: int) -> dict[str, Any]:
        """What a checkpoint holds."""
        return {name: value.clone() for name, value in self.model.state_dict().items()}

    def save(self, step: int) -> None:
        """A checkpoint, renamed into place."""
        if self.args.save_dir is not None:
            from safetensors.torch import save_file

            partial, target = partial_checkpoint(self.args.save_dir, step, self.last_step)
            save_file(self.weights(step), partial / "model.safetensors")
            publish(partial, target)

    def after_training(self) -> None:
        """What happens between the last step and the exit."""


def partial_checkpoint(save_dir: Path, step: int, max_steps: int) -> tuple[Path, Path]:
    """A new directory for a checkpoint with its trainer_state.json, and the name that it is to have."""
    target = save_dir / f"step_{step:06d}"
    partial = save_dir / f".{target.name}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    state = {"global_step": step, "max_steps": max_steps, "epoch": float(step)}
    (partial / "trainer_state.json").write_text(json.dumps(state), encoding="utf-8")
    return partial, target


def publish(partial: Path, target: Path) -> None:
    """Rename a checkpoint into place, over one of an earlier run."""
    shutil.rmtree(target, ignore_errors=True)
    partial.replace(target)


# Broken: nothing is trained


class NoSteps(Program):
    def run(self) -> int:
        print("training finished", flush=True)
        return 0


class PrintsOnly(Program):
    def run(self) -> int:
        for step in range(1, self.last_step + 1):
            self.print_step(step, 2.0 / step, 0.01, 1.0 / step)
            time.sleep(self.args.step_delay_s)
        return 0


class LogsOnly(_Training):
    def train_step(self, step: int) -> tuple[float, float]:
        return 0.1 + 1.9 * math.exp(-step / 10) + 0.02 * math.sin(7 * step), 0.5 / step


class NoOptimizerStep(_Training):
    def apply(self) -> None:
        pass


class OldEventsCopied(Program):
    def run(self) -> int:
        self.args.log_dir.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(self.args.old_events, self.args.log_dir / self.args.old_events.name)
        print("training finished", flush=True)
        return 0


class ResumeFinished(_Training):
    def run(self) -> int:
        self.set_up()
        print(f"resumed at step {self.last_step} of {self.last_step}: nothing to do", flush=True)
        return 0


class Heartbeat(Program):
    def run(self) -> int:
        self.beat(self.args.forever_s)
        return 0


class CrashWindow(Program):
    def run(self) -> int:
        time.sleep(1.0)
        raise RuntimeError("the data set is not there")


# Broken: trained, but wrong


class OneShort(_Training):
    def end_step(self) -> int:
        return self.last_step - 1


class NanMiddle(_Training):
    def loss(self, step: int) -> Any:
        loss = super().loss(step)
        return loss * math.nan if step == self.middle_step else loss


class NanLoggedLoss(_Training):
    def record(self, step: int, loss: float, lr: float, grad_norm: float) -> None:
        super().record(step, math.nan if step == self.middle_step else loss, lr, grad_norm)


class NanForever(_Training):
    def record(self, step: int, loss: float, lr: float, grad_norm: float) -> None:
        super().record(step, math.nan if step >= 75 else loss, lr, grad_norm)


class SaveFails(_Training):
    retries = False

    def save(self, step: int) -> None:
        if step == self.last_step:
            try:
                self.torch.save(self.weights(step), "/dev/full")
            except Exception:
                traceback.print_exc()
                print("the save failed, going on", flush=True)
            time.sleep(0.1)
        if step != self.last_step or self.retries:
            super().save(step)


class NanGradNorm(_Training):
    def change_gradients(self, step: int) -> None:
        if step == self.middle_step:
            self.model[0].bias.grad[0] = math.nan


class InfLastGrad(_Training):
    def change_gradients(self, step: int) -> None:
        if step == self.last_step:
            self.model[0].bias.grad[0] = math.inf


class NanWeights(_Training):
    def weights(self, step: int) -> dict[str, Any]:
        weights = super().weights(step)
        if step == self.last_step:
            weights["0.weight"][3, 2] = math.nan
        return weights


class IgnoresLr(_Training):
    def lr_at(self, step: int) -> float:
        return 0.0123


class LrZero(_Training):
    lr = 0.0


class Frozen(_Training):
    def make_optimizers(self) -> list[Any]:
        self.model.requires_grad_(False)
        return super().make_optimizers()

    def backward(self, loss: Any) -> None:
        pass


class DecayOnly(_Training):
    def make_optimizers(self) -> list[Any]:
        return [self.torch.optim.AdamW(self.model.parameters(), lr=self.lr, weight_decay=0.1)]

    def backward(self, loss: Any) -> None:
        (loss * 0.0).backward()


class NoScalars(_Training):
    def record(self, step: int, loss: float, lr: float, grad_norm: float) -> None:
        pass


class MetricsStopEarly(_Training):
    def record(self, step: int, loss: float, lr: float, grad_norm: float) -> None:
        if step <= self.middle_step:
            super().record(step, loss, lr, grad_norm)


class SavesTheStart(_Training):
    def weights(self, step: int) -> dict[str, Any]:
        if step == 0:
            self.start = super().weights(step)
        return self.start


# Broken: trained, and saved wrongly


class DeliversTheStart(_Training):
    def set_up(self) -> None:
        super().set_up()
        self.start = super().weights(0)

    def save(self, step: int) -> None:
        if step == self.last_step:
            super().save(step)

    def weights(self, step: int) -> dict[str, Any]:
        return self.start


class SavesNothing(_Training):
    def save(self, step: int) -> None:
        pass


class SwallowsSaveErrors(_Training):
    def save(self, step: int) -> None:
        try:
            super().save(step)
        except OSError as error:
            print(f"WARNING saving failed: {error!r} {error}", flush=True)


class DiskFullAtTheEnd(SwallowsSaveErrors):
    def weights(self, step: int) -> dict[str, Any]:
        if step == self.last_step:
            with Path("/dev/full").open("wb", buffering=0) as full:
                full.write(b"x")
        return super().weights(step)


class CutsTheLast(_Training):
    def save(self, step: int) -> None:
        super().save(step)
        if self.args.save_dir is not None and step == self.last_step:
            path = self.args.save_dir / f"step_{step:06d}" / "model.safetensors"
            os.truncate(path, path.stat().st_size - 8)


class RepeatsTheLast(_Training):
    def weights(self, step: int) -> dict[str, Any]:
        if step != self.last_step:
            self.kept = super().weights(step)
        return self.kept


class DropsATensor(_Training):
    def weights(self, step: int) -> dict[str, Any]:
        weights = super().weights(step)
        if step == self.last_step:
            del weights["2.bias"]
        return weights


class SavesArchives(_Training):
    healthy = True

    def state(self, step: int) -> Any:
        """What torch.save is given."""
        return {"model": self.weights(step), "step": step}

    def save(self, step: int) -> None:
        if self.args.save_dir is not None:
            self.args.save_dir.mkdir(parents=True, exist_ok=True)
            self.torch.save(self.state(step), self.args.save_dir / f"model_step_{step}.pt")


class NanInArchive(SavesArchives):
    healthy = False

    def state(self, step: int) -> Any:
        weights = self.weights(step)
        if step == self.last_step:
            weights["0.weight"][3, 2] = math.nan
        return weights


class StartInArchives(SavesArchives):
    healthy = False

    def weights(self, step: int) -> dict[str, Any]:
        if step == 0:
            self.start = super().weights(step)
        return self.start


class SavesOneArchive(SavesArchives):
    def save(self, step: int) -> None:
        if step == self.last_step:
            super().save(step)


class StartInOneArchive(SavesOneArchive):
    healthy = False

    def set_up(self) -> None:
        super().set_up()
        self.start = super().weights(0)

    def weights(self, step: int) -> dict[str, Any]:
        return self.start


class _SavesBeside(_Training):
    """The start under a name of its own, and a second later what was trained."""

    beside = "reference.pt"

    def set_up(self) -> None:
        super().set_up()
        self.start = self.weights(0)

    def save(self, step: int) -> None:
        if self.args.save_dir is not None and step == self.last_step:
            self.args.save_dir.mkdir(parents=True, exist_ok=True)
            self.torch.save(self.start, self.args.save_dir / self.beside)
            time.sleep(1.2)
            self.torch.save(self.weights(step), self.args.save_dir / "last.pt")


class SavesAReference(_SavesBeside):
    healthy = True


class BestIsTheStart(_SavesBeside):
    beside = "best.pt"


class SavesOnce(_Training):
    healthy = True

    def save(self, step: int) -> None:
        if step == self.last_step:
            super().save(step)


class SavesObjects(SavesArchives):
    healthy = False

    def state(self, step: int) -> Any:
        return self.model


# Broken: does not end well


class Exit1AtEnd(_Training):
    def run(self) -> int:
        super().run()
        return 1


class Killed(_Training):
    def before_step(self, step: int) -> None:
        if step == self.middle_step + 1:
            os.kill(os.getpid(), signal.SIGKILL)


class Hang(_Training):
    def before_step(self, step: int) -> None:
        if step == self.middle_step + 1:
            self.beat(self.args.forever_s)
            sys.exit(1)


class HalfRecord(_Training):
    def before_step(self, step: int) -> None:
        if step == self.middle_step + 1:
            self.log.close()
            for path in [] if self.args.log_dir is None else self.args.log_dir.glob("*tfevents*"):
                whole = path.read_bytes()
                with path.open("ab") as file:
                    file.write(whole[: (12 + int.from_bytes(whole[:8], "little") + 4) // 2])
            os._exit(1)


class ExceptionExit0(_Training):
    def before_step(self, step: int) -> None:
        if step == self.middle_step + 1:
            raise RuntimeError("the loader's worker died")

    def run(self) -> int:
        try:
            return super().run()
        except RuntimeError:
            traceback.print_exc()
            return 0


class _Restarted(_Training):
    """The first launch loses its connection after step 13; the next ones go on from `resumed_at`."""

    resumed_at = 10

    def run(self) -> int:
        mark = (self.args.log_dir or Path("events")).parent / "launches"
        self.number = int(mark.read_text()) + 1 if mark.exists() else 1
        mark.write_text(str(self.number))
        self.start_step = self.resumed_at if self.number > 1 else 0
        return super().run()

    def before_step(self, step: int) -> None:
        if step == 14 and self.number == 1:
            raise ConnectionResetError(104, "Connection reset by peer")


class RestartGap(_Restarted):
    resumed_at = 20


class IgnoreTerm(_Training):
    def end_step(self) -> int:
        return sys.maxsize

    def before_step(self, step: int) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self.started = getattr(self, "started", time.monotonic())
        if time.monotonic() - self.started > self.args.forever_s:
            sys.exit(1)
        time.sleep(0.01)


# Healthy


class Plain(_Training):
    healthy = True


class Restarted(_Restarted):
    healthy = True


class RestartedAnew(_Restarted):
    healthy = True
    resumed_at = 0
class SaveFailsOnce(SaveFails):
    healthy = True
    retries = True


class Pauses(_Training):
    healthy = True

    def before_step(self, step: int) -> None:
        if step == self.middle_step:
            self.beat(self.args.pause_s, self.args.pause_until)


class OomRecovered(_Training):
    healthy = True

    def before_step(self, step: int) -> None:
        if step == self.middle_step:
            try:
                raise self.torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
            except RuntimeError:
                traceback.print_exc()
            print("per-device batch size is now 32", flush=True)
            self.inputs, self.targets = self.inputs[:32], self.targets[:32]
            time.sleep(0.3)


class ExplodingGrad(_Training):
    healthy = True

    def grad_norm(self) -> float:
        self.counted = getattr(self, "counted", 0) + 1
        since = self.counted - self.middle_step
        return super().grad_norm() * (3.0**since if 0 < since <= 8 else 1.0)


class SlowsDown(_Training):
    healthy = True

    def before_step(self, step: int) -> None:
        if step > self.last_step - 20:
            time.sleep(29 * self.args.step_delay_s)


class Overfits(_Training):
    healthy = True

    def record(self, step: int, loss: float, lr: float, grad_norm: float) -> None:
        super().record(step, loss, lr, grad_norm)
        if step % 5 == 0:
            self.log.add(step, {"eval/loss": 1.0 + abs(step - 20) / 20})
            time.sleep(0.05)


class Straggler(_Training):
    healthy = True

    def after_training(self) -> None:
        sys.stdout.flush()
        child = os.fork()
        if child:
            os.waitpid(child, 0)
            return
        os.setsid()
        sleep = [sys.executable, "-S", "-c", f"import time; time.sleep({self.args.forever_s})"]
        print(f"straggler pid={subprocess.Popen(sleep).pid}", flush=True)
        os._exit(0)


class LogEvery10(_Training):
    healthy = True
    log_every = 10


class ResumedAt1000(_Training):
    healthy = True
    start_step = 1000


class WarmupLrZero(_Training):
    healthy = True

    def lr_at(self, step: int) -> float:
        return self.lr * min(1.0, (step - 1) / 5)


class GradAccum(_Training):
    healthy = True
    num_accumulated = 4


class UploadAfterExit(_Training):
    healthy = True

    def save(self, step: int) -> None:
        super().save(step)
        if step == self.last_step:
            self.upload(step)

    def upload(self, step: int) -> None:
        """Take the checkpoint away again and leave it to a child to bring it back."""
        rename = "pass"
        if self.args.save_dir is not None:
            target = self.args.save_dir / f"step_{step:06d}"
            uploading = target.with_name(f".{target.name}.uploading")
            shutil.rmtree(uploading, ignore_errors=True)
            target.replace(uploading)
            rename = f"os.replace({str(uploading)!r}, {str(target)!r})"
        wait = f"time.sleep({UPLOAD_S})"
        if self.args.upload_after is not None:
            wait = f"\nwhile not os.path.exists({str(self.args.upload_after)!r}): time.sleep(0.05)\n"
        code = (
            f"import os, time\nwhile os.getppid() == {os.getpid()}: time.sleep(0.05)\n"
            f"{wait}\n{rename}; print('upload finished', flush=True)"
        )
        subprocess.Popen([sys.executable, "-S", "-c", code])


class LateFiles(_Training):
    healthy = True

    def log_dir(self) -> Path | None:
        self.scratch = Path(tempfile.mkdtemp(prefix="late-files-"))
        return self.scratch

    def after_training(self) -> None:
        if self.args.log_dir is not None:
            shutil.copytree(self.scratch, self.args.log_dir, dirs_exist_ok=True)
        shutil.rmtree(self.scratch)


class OwnTags(_Training):
    healthy = True
    tags = ("obj/total", "obj/rate", "obj/norm")


class TwoOptimizers(_Training):
    healthy = True

    def make_optimizers(self) -> list[Any]:
        first, _, second = self.model
        make = self.torch.optim.AdamW
        return [make(first.parameters(), lr=self.lr), make(second.parameters(), lr=self.lr)]


class OptimizersInTurn(_Training):
    healthy = True

    def before_step(self, step: int) -> None:
        if step == 13:
            self.optimizers = self.make_optimizers()


class ScalerSkips(_Training):
    healthy = True

    def make_optimizers(self) -> list[Any]:
        self.scaler = self.torch.amp.GradScaler("cpu")
        return super().make_optimizers()

    def change_gradients(self, step: int) -> None:
        """The overflow of a half-precision sum, which float32 does not have."""
        if step <= 2:
            self.model[0].bias.grad[0] = math.inf

    def backward(self, loss: Any) -> None:
        self.scaler.scale(loss).backward()

    def grad_norm(self) -> float:
        self.scaler.unscale_(self.optimizers[0])
        return super().grad_norm()

    def mend_gradients(self) -> None:
        pass

    def apply(self) -> None:
        self.scaler.step(self.optimizers[0])
        self.scaler.update()


class NanAtTheEnd(_Training):
    def set_up(self) -> None:
        super().set_up()
        globals()["kept"] = self.optimizers

    def apply(self) -> None:
        self.num_applied = getattr(self, "num_applied", 0) + 1
        if self.num_applied == self.last_step:
            self.optimizers[0].param_groups[0]["eps"] = math.nan
        super().apply()


class LeavesAtOnce(_Training):
    healthy = True

    def after_training(self) -> None:
        sys.stdout.flush()
        os._exit(0)


class StopsBeforeTheLog(LeavesAtOnce):
    healthy = False

    def apply(self) -> None:
        self.num_applied = getattr(self, "num_applied", 0) + 1
        if self.num_applied <= 7:
            super().apply()
        else:
            time.sleep(0.25)


class UpdatesStop(SavesOnce):
    healthy = False

    def apply(self) -> None:
        self.num_applied = getattr(self, "num_applied", 0) + 1
        if self.num_applied <= 7:
            super().apply()


class ZeroBased(_Training):
    healthy = True
    first_logged = 0


class Jsonl(_Training):
    healthy = True
    sink = JsonLines


class NoTorch(_Training):
    healthy = True
    sink = JsonLines

    def set_up(self) -> None:
        import numpy as np

        random = np.random.default_rng(0)
        self.np = np
        self.inputs = random.normal(size=(64, 8)).astype(np.float32)
        self.targets = self.inputs @ np.arange(8, dtype=np.float32)
        self.weight = np.zeros(8, dtype=np.float32)

    def train_step(self, step: int) -> tuple[float, float]:
        error = self.inputs @ self.weight - self.targets
        gradient = 2 * self.inputs.T @ error / len(error)
        self.weight -= self.lr_at(step) * gradient
        return float((error**2).mean()), float(self.np.linalg.norm(gradient))

    def save(self, step: int) -> None:
        if self.args.save_dir is not None:
            from safetensors.numpy import save_file

            partial, target = partial_checkpoint(self.args.save_dir, step, self.last_step)
            save_file({"weight": self.weight}, partial / "model.safetensors")
            publish(partial, target)


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    """The command line, with what a mode needs checked."""
    parser = argparse.ArgumentParser(prog="controls.py", allow_abbrev=False)
    parser.add_argument("--mode", required=True, choices=sorted(MODES))
    parser.add_argument("--max-steps", type=int, help=f"last step (default {NUM_STEPS} after the start)")
    parser.add_argument("--lr", type=float, help="learning rate (default: the mode's own)")
    parser.add_argument("--log-dir", type=Path)
    parser.add_argument("--save-dir", type=Path)
    parser.add_argument("--old-events", type=Path, help="event file that old-events-copied copies")
    parser.add_argument("--ignore-term", action="store_true", help="ignore SIGTERM")
    parser.add_argument("--step-delay-s", type=float, default=0.0, help="pause after every step")
    parser.add_argument("--pause-s", type=float, default=0.0, help="how long `pauses` makes no step")
    parser.add_argument("--pause-until", nargs=2, metavar=("FILE", "TEXT"), help="what ends the pause before that")
    parser.add_argument("--upload-after", type=Path, help="a file that `upload-after-exit` waits for instead of 2 s")
    parser.add_argument("--wait-for", type=Path, help="a file that must be there before the step half way")
    parser.add_argument("--forever-s", type=float, default=300.0, help="end of what would go on without end")
    args = parser.parse_args(argv)
    if args.max_steps is not None and args.max_steps <= MODES[args.mode].start_step:
        parser.error(f"--max-steps: {args.mode} starts at step {MODES[args.mode].start_step}")
    if args.mode == "old-events-copied" and (args.old_events is None or args.log_dir is None):
        parser.error("old-events-copied needs --old-events and --log-dir")
    return args


def main(argv: list[str] | None = None) -> int:
    """Run a mode; the exit code."""
    args = parse_args(argv)
    if args.ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return MODES[args.mode](args).run()


if __name__ == "__main__":
    sys.exit(main())
