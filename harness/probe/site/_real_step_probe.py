"""The optimizer probe inside a trainer: counts applied optimizer steps and writes them down.

One JSON file per process, `HOST-PID.json` (`HOST-PID-2.json` where that name is taken by an earlier process),
replaced as a whole at every step whose number is a power of two, then at most once a second while steps are
done, and when the interpreter ends. What its fields mean is written in `harness/probe/reader.py`.

A step is one return of `Optimizer.step` (torch's global post hook), closures included; a subclass that calls
`super().step()` is one step. A step that a fused optimizer swallowed because of `found_inf`, and one that
GradScaler withheld, are `scaler_skips`. Replays of a captured CUDA graph call no Python and are not seen.

Standard library only, Python 3.8 and later; torch is used only once the program has imported it. No exception
leaves a hook.
"""

# Untyped: it changes a torch that the type checker does not see.
# mypy: ignore-errors
# pathlib would add nothing here but calls.
# ruff: noqa: PTH105, PTH108, PTH110, PTH118, PTH120, PTH123

import atexit
import functools
import os
import sys
import threading
import time

FORMAT = 1
WRITE_INTERVAL_S = 1.0
RETRY_INTERVAL_S = 10.0
GRAD_INTERVAL_S = 30.0
MAX_LISTED = 16
MAX_NOTES = 5
MAX_PENDING = 256
MAX_FRAMES = 500
FOLD_AT = 256


def sibling(name):
    """A module beside this one, which is on no path."""
    import importlib.util

    spec = importlib.util.spec_from_file_location(name, os.path.join(os.path.dirname(__file__), name + ".py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


RECORDS, GRADIENTS = sibling("_real_step_records"), sibling("_real_step_gradients")
is_capturing = GRADIENTS.is_capturing


class Probe:
    """All counts of this process and the file that they go to."""

    def __init__(self, directory, started_at):
        self.directory = directory
        self.forked = False
        self.exchanges = sibling("_real_step_exchange")
        self.mark_room = sibling("_real_step_marks")
        self._reset(started_at)
        atexit.register(self.at_exit)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._after_fork)
        from multiprocessing import util

        util.register_after_fork(self, Probe._in_multiprocessing_child)

    def _reset(self, started_at):
        self.pid = os.getpid()
        self.started_at = started_at
        self.records = {}
        self.retired = []
        self.folded = {"steps": 0, "steps_total": 0, "lr_positive_steps": 0, "lr_unknown_steps": 0}
        self.fold_at = FOLD_AT
        self.calls = self.created = self.scaler_skips = 0
        self.grad = GRADIENTS.GradLook()
        self.world_size = None
        self.devices = set()
        self.params = None
        self.marks = self.mark_room.StartMarks()
        self.exchange = self.exchanges.renew()
        self.first_step_at = self.last_step_at = None
        self.path = None
        self.next_write = 0.0
        self.lock = threading.Lock()
        self.num_notes = 0

    def _after_fork(self):
        self.forked = True
        self._reset(time.time())

    def _in_multiprocessing_child(self):
        """A multiprocessing child ends by os._exit after its own finalizers, without atexit."""
        from multiprocessing import util

        util.Finalize(None, self.at_exit, exitpriority=-1000)

    # What is listened to

    def install(self, module):
        """Listen to the optimizers, the gradient scaler, the collectives or the savers that a module defines."""
        if module.__name__ == "torch.optim.optimizer":
            self._listen_to_optimizers(module)
        elif not (self.exchange.install(module) or self.mark_room.listen_to_saves(module, self.on_save)):
            scaler = getattr(module, "GradScaler", None)
            if scaler is not None and "step" in vars(scaler):
                self._listen_to_scaler(scaler)

    def _listen_to_optimizers(self, module):
        probe, original = self, module.Optimizer.__init__

        @functools.wraps(original)
        def __init__(self, *args, **kwargs):
            original(self, *args, **kwargs)
            probe.on_created(self)

        def after_step(optimizer, args, kwargs):
            probe.on_step(optimizer, sys._getframe(1))

        def before_step(optimizer, args, kwargs):
            probe.on_begin(optimizer)

        # The mark of torch._dynamo.disable, without its import: torch.compile leaves the functions alone.
        after_step._torchdynamo_disable = before_step._torchdynamo_disable = True
        module.register_optimizer_step_post_hook(after_step)
        if hasattr(module, "register_optimizer_step_pre_hook"):
            module.register_optimizer_step_pre_hook(before_step)
        module.Optimizer.__init__ = __init__

    def _listen_to_scaler(self, scaler):
        probe, original = self, scaler.step

        @functools.wraps(original)
        def step(self, optimizer, *args, **kwargs):
            calls = probe.calls
            result = original(self, optimizer, *args, **kwargs)
            probe.on_scaler_step(self, optimizer, calls)
            return result

        scaler.step = step

    def on_created(self, optimizer):
        """An optimizer was initialised."""
        try:
            self.created += 1
            self._record(optimizer)
            self.marks.take(optimizer)
        except Exception as error:
            self.note("new optimizer", error)

    def on_begin(self, optimizer):
        """An optimizer's step begins."""
        try:
            if self.marks.unstepped and not is_capturing():
                self.marks.renew(optimizer)
        except Exception as error:
            self.note("marks", error)

    def on_save(self, path):
        """The program saves something, maybe its model."""
        try:
            if self.calls and not is_capturing():
                self.marks.look_at_save(self.calls, path)
        except Exception as error:
            self.note("save", error)

    def on_scaler_step(self, scaler, optimizer, calls):
        """GradScaler.step returned: it skipped unless a step was called within (torch's optimizers only)."""
        try:
            hooked = getattr(type(optimizer).step, "hooked", False)
            if hooked and self.calls == calls and scaler.is_enabled():
                self.scaler_skips += 1
                if self.calls and (now := time.monotonic()) >= self.next_write:
                    self.write(now)
        except Exception as error:
            self.note("scaler", error)

    def on_step(self, optimizer, frame):
        """An optimizer's step returned to the frame of torch's wrapper."""
        try:
            if not is_inner_step(optimizer, frame):
                self._count(optimizer)
        except Exception as error:
            self.note("step", error)

    # Counting

    def _count(self, optimizer):
        record = self.records.get(id(optimizer))
        if record is None or record.ref() is not optimizer:
            record = self._record(optimizer)
        self.calls += 1
        record.calls += 1
        record.first_call, record.last_call = record.first_call or self.calls, self.calls
        now = time.monotonic()
        spaced = is_power_of_two(record.calls) or now - record.last_check >= GRAD_INTERVAL_S
        looks = spaced and not is_capturing()
        lr_positive = record.read_lr(optimizer, looks)
        found_inf = getattr(optimizer, "found_inf", None)
        if hasattr(found_inf, "detach"):
            record.pending.append((found_inf, lr_positive))
        else:
            found_inf = None
            record.add(lr_positive)
        self._see_exchange(optimizer)
        self.last_step_at = time.time()
        if self.first_step_at is None:
            self.first_step_at = self.last_step_at
            if hasattr(sys, "_real_step_parsed"):
                sys._real_step_parsed.at_step()
        if looks:
            record.last_check = now
            self._see_rates(record, optimizer)
            self._look(optimizer, found_inf)
            self._see_place(optimizer, is_power_of_two(record.calls))
        else:
            self._peek(optimizer, found_inf, now)
        if now >= self.next_write or is_power_of_two(self.calls):
            self.write(now)
        elif len(record.pending) >= MAX_PENDING and not is_capturing():
            self.scaler_skips += record.settle()

    def _see_rates(self, record, optimizer):
        try:
            record.note_rates(optimizer)
        except Exception as error:
            self.note("learning rates", error)

    def _look(self, optimizer, found_inf):
        try:
            if found_inf is None or not found_inf.detach():
                self.grad.look(optimizer)
        except Exception as error:
            self.note("gradients", error)

    def _see_exchange(self, optimizer):
        try:
            self.exchange.at_step(optimizer)
        except Exception as error:
            self.note("exchange", error)

    def _peek(self, optimizer, found_inf, now):
        try:
            self.grad.peek(optimizer, found_inf, now)
        except Exception as error:
            self.note("last gradient", error)

    def _see_place(self, optimizer, same_on_every_rank):
        """The devices that are trained on, and the size of the process group, whatever the environment says."""
        try:
            if same_on_every_rank:
                self.marks.remember(self.marks.look(self.calls), self.calls)
            self.devices |= {param.device.type for group in optimizer.param_groups for param in group["params"][:1]}
            group = sys.modules.get("torch.distributed")
            if group is not None and group.is_available() and group.is_initialized():
                self.world_size = max(self.world_size or 0, group.get_world_size())
                self.exchange.look(optimizer)
        except Exception as error:
            self.note("place", error)

    def _see_marks(self):
        try:
            self.marks.remember(self.marks.look(), self.calls)
        except Exception as error:
            self.note("marks", error)

    def _record(self, optimizer):
        """A new record; one of a dead optimizer with the same id is kept apart."""
        old = self.records.get(id(optimizer))
        if old is not None:
            if old.ref() is optimizer:
                return old
            self.retired.append(self.records.pop(id(optimizer)))
        if len(self.records) + len(self.retired) >= self.fold_at:
            self._fold()
        record = self.records[id(optimizer)] = RECORDS.Record(optimizer)
        return record

    def _fold(self):
        """Merge dead optimizers, so that a program that makes them by the million costs no memory."""
        dead = [key for key, record in self.records.items() if record.ref() is None]
        for record in self.retired + [self.records.pop(key) for key in dead]:
            self.scaler_skips += record.settle()
            self.folded["steps_total"] += record.steps
            for key in ("steps", "lr_positive_steps", "lr_unknown_steps"):
                self.folded[key] = max(self.folded[key], getattr(record, key))
        self.retired = []
        self.fold_at = max(FOLD_AT, 2 * len(self.records))

    # Writing

    def at_exit(self):
        """The last write. A forked child that trained nothing, as a data loader's worker, leaves no file."""
        try:
            if self.pid == os.getpid() and (self.created or self.calls or not self.forked):
                if self.calls:
                    self._see_marks()
                if self.calls and not hasattr(sys, "last_type"):
                    self.params = GRADIENTS.look_at_params([record.ref() for record in self.records.values()])
                self.write(time.monotonic(), clean_exit=True)
        except Exception as error:
            self.note("exit", error)

    def write(self, now, clean_exit=False):
        """Replace the file, unless another thread is at it."""
        if not self.lock.acquire(clean_exit, 1.0 if clean_exit else -1):
            return
        try:
            self.next_write = now + RETRY_INTERVAL_S
            self._replace(self._to_json(clean_exit))
            self.next_write = now + WRITE_INTERVAL_S
        except Exception as error:
            self.note("write", error)
        finally:
            self.lock.release()

    def _replace(self, value):
        import json

        if self.path is None:
            self.path = free_path(self.directory, f"{host()}-{self.pid}")
        partial = f"{self.path}.{self.pid}.partial"
        try:
            with open(partial, "w", encoding="utf-8") as file:
                json.dump(value, file)
            os.replace(partial, self.path)
        except Exception:
            if os.path.exists(partial):
                os.unlink(partial)
            raise

    def _settle_all(self, records):
        if is_capturing():
            return
        for record in records:
            try:
                self.scaler_skips += record.settle()
            except Exception as error:
                self.note("found_inf", error)
        try:
            self.grad.settle()
        except Exception as error:
            self.note("last gradient", error)

    def _to_json(self, clean_exit):
        records = list(self.records.values()) + self.retired
        self._settle_all(records)
        records.sort(key=lambda record: -record.steps)

        def most(key):
            return max([self.folded[key]] + [getattr(record, key) for record in records])

        return {
            "format": FORMAT,
            "pid": self.pid,
            "ppid": os.getppid(),
            "host": host(),
            "rank": env_int("RANK"),
            "local_rank": env_int("LOCAL_RANK"),
            "world_size": env_int("WORLD_SIZE"),
            "restart": env_int("TORCHELASTIC_RESTART_COUNT"),
            "group_size": self.world_size,
            "devices": sorted(self.devices)[:MAX_LISTED],
            "torch": str(getattr(sys.modules.get("torch"), "__version__", "")),
            "started_at": self.started_at,
            "updated_at": time.time(),
            "optimizers_created": self.created,
            "steps": most("steps"),
            "steps_total": self.folded["steps_total"] + sum(record.steps for record in records),
            "optimizers": [record.to_json() for record in records[:MAX_LISTED]],
            "lr_positive_steps": most("lr_positive_steps"),
            "lr_unknown_steps": most("lr_unknown_steps"),
            "scaler_skips": self.scaler_skips,
            "grad": self.grad.to_json(),
            "params": self.params,
            "marks": self.marks.to_json(),
            "marks_at": self.marks.at,
            "looks": self.marks.looks_json(),
            "unmarked": self.marks.unmarked,
            "exchange": self.exchange.to_json(),
            "first_step_at": self.first_step_at,
            "last_step_at": self.last_step_at,
            "clean_exit": clean_exit,
        }

    def note(self, where, error):
        """Leave a few failures behind in problems.log."""
        self.num_notes += 1
        if self.num_notes > MAX_NOTES:
            return
        try:
            with open(os.path.join(self.directory, "problems.log"), "a", encoding="utf-8") as log:
                log.write(f"pid {self.pid}: {where}: {repr(error)[:400]}\n")
        except Exception:
            pass


def is_inner_step(optimizer, frame):
    """Whether the frame, torch's wrapper, runs within another step of the optimizer, as by super().step()."""
    code, outer = frame.f_code, frame.f_back
    for _ in range(MAX_FRAMES):
        if outer is None:
            return False
        if outer.f_code is code and outer.f_locals.get("self") is optimizer:
            return True
        outer = outer.f_back
    return False


def is_power_of_two(number):
    """Whether a whole number of at least 1 is one."""
    return number & (number - 1) == 0


def env_int(name):
    """Whole number in an environment variable, or None."""
    try:
        return int(os.environ[name])
    except (KeyError, ValueError):
        return None


def host():
    """This machine's name, fit for a file name."""
    name = os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "")
    return "".join(char if char.isalnum() or char in "._" else "-" for char in name)[:100] or "host"


def free_path(directory, stem):
    """Path that no earlier process (same PID after an exec, another container) has taken."""
    for index in range(1, 1000):
        path = os.path.join(directory, f"{stem}.json" if index == 1 else f"{stem}-{index}.json")
        if not os.path.exists(path):
            return path
    raise OSError(f"no free name for {stem}")
