"""The same as `_real_step_probe.py` for Keras 3, whose optimizers are not torch's: applied steps, written down.

It writes a file of the same format, `HOST-PID-keras.json`; its field `torch` names Keras. Every optimizer counts
its own steps in `iterations`; what that says before the first step was there before, in a model that was loaded.
Steps are seen on the torch backend, where each is a call; on the others they are compiled, and nothing is counted.

Standard library only, Python 3.8 and later. No exception leaves a hook.
"""

# Untyped: it changes a Keras that the type checker does not see.
# mypy: ignore-errors
# pathlib would add nothing here but calls.
# ruff: noqa: PTH105, PTH118, PTH120, PTH123

import atexit
import functools
import os
import sys
import time

FORMAT = 1
WRITE_INTERVAL_S = 1.0
GRAD_INTERVAL_S = 30.0
MAX_LISTED = 16
MAX_KEPT = 64
MAX_NOTES = 5


class Record:
    """One optimizer. Only its counter is held, since its other variables are as large as the model."""

    def __init__(self, optimizer):
        kind = type(optimizer)
        self.name = f"{kind.__module__}.{kind.__qualname__}"[:200]
        self.counter = None
        self.before = None
        """`iterations` before the first step that was seen."""
        self.steps = self.calls = 0
        self.num_params = 0
        self.lr_positive = None
        self.last_look = 0.0

    def settle(self):
        """Take over what the optimizer's own counter says."""
        if self.before is not None:
            self.steps = max(self.steps, read_count(self.counter) - self.before)

    def to_json(self):
        """Entry in `optimizers`."""
        return {
            "class": self.name,
            "steps": self.steps,
            "lr_positive_steps": self.steps if self.lr_positive else 0,
            "lr_unknown_steps": self.steps if self.lr_positive is None else 0,
            "params": self.num_params,
        }


class Probe:
    """All counts of this process and the file that they go to."""

    def __init__(self, directory, started_at):
        self.directory = directory
        self.pid = os.getpid()
        self.started_at = started_at
        self.created = 0
        self.records = {}
        self.grad = {"checked": 0, "nonzero": 0, "nonfinite": 0, "gave_up": 0, "last_nonzero": None}
        self.first_step_at = self.last_step_at = None
        self.next_write = 0.0
        self.num_notes = 0
        self.mark_room = sibling("_real_step_marks")
        self.marks = self.mark_room.StartMarks()
        self.marked = {}
        atexit.register(self.at_exit)

    def install(self, module):
        """Listen to the base class of all of Keras' optimizers, or to what saves."""
        if self.mark_room.listen_to_saves(module, self.on_save):
            return
        base = module.BaseOptimizer
        self._wrap(base, "__init__", self.on_created)
        self._wrap(base, "apply", self.on_apply)
        self._wrap(base, "build", self.on_build)

    def _wrap(self, base, name, listen):
        probe, original = self, getattr(base, name)

        @functools.wraps(original)
        def wrapped(optimizer, *args, **kwargs):
            before = None
            try:
                before = listen(optimizer, args, None)
            except Exception as error:
                probe.note(name, error)
            result = original(optimizer, *args, **kwargs)
            try:
                if before is not None:
                    listen(optimizer, args, before)
            except Exception as error:
                probe.note(name, error)
            return result

        setattr(base, name, wrapped)

    def on_created(self, optimizer, args, before):
        """An optimizer is initialised."""
        self.created += 1

    def on_build(self, optimizer, args, before):
        """Before an optimizer learns which variables it has; where they are compiled away they have no values."""
        if before is None and args:
            try:
                if self.marks.add([variable for variable in args[0] if is_markable(variable)]):
                    self.marked[id(optimizer)] = self.marks.optimizers - 1
            except Exception:
                return None
        return None

    def on_apply(self, optimizer, args, before):
        """Before and after a step."""
        if backend() != "torch":
            return None
        record = self._record(optimizer)
        if before is None:
            if record.before is None:
                record.before = read_count(record.counter)
            if not record.calls and id(optimizer) in self.marked:
                # What was loaded since it was built is the start.
                self.marks.renew_number(self.marked.pop(id(optimizer)))
            self._look(record, args[0] if args else ())
            return record
        record.calls += 1
        record.steps = max(record.steps, record.calls)
        self._timed(record, optimizer)
        return None

    def on_save(self, path):
        """The program saves something, maybe its model; where steps are compiled, none is known here."""
        try:
            steps = sum(record.calls for record in self.records.values())
            self.marks.look_at_save(steps, path)
        except Exception as error:
            self.note("save", error)

    def _record(self, optimizer):
        counter = optimizer._iterations
        record = self.records.get(id(counter))
        if record is None or record.counter is not counter:
            if len(self.records) >= MAX_KEPT:
                raise RuntimeError(f"more than {MAX_KEPT} optimizers")
            record = self.records[id(counter)] = Record(optimizer)
            record.counter = counter
        return record

    def _look(self, record, grads):
        now = time.monotonic()
        count = record.calls + 1
        if count & (count - 1) and now - record.last_look < GRAD_INTERVAL_S:
            return
        record.last_look = now
        nonzero = finite = False
        norms = [float(grad.detach().abs().max()) for grad in grads if grad is not None and grad.numel()]
        nonzero = any(norm != 0 for norm in norms)
        finite = all(norm - norm == 0 for norm in norms)
        self.grad["checked"] += 1
        self.grad["nonzero"] += nonzero
        self.grad["nonfinite"] += not finite
        self.grad["last_nonzero"] = nonzero

    def _timed(self, record, optimizer):
        self.last_step_at = time.time()
        if self.first_step_at is None:
            self.first_step_at = self.last_step_at
        now = time.monotonic()
        if now < self.next_write and record.calls & (record.calls - 1):
            return
        record.num_params = len(getattr(optimizer, "_trainable_variables", ()))
        if not record.calls & (record.calls - 1):
            self.marks.remember(self.marks.look(), sum(item.calls for item in self.records.values()))
        if record.lr_positive is not True:
            record.lr_positive = read_rate(optimizer)
        self.write(now)

    def at_exit(self):
        """The last write; a forked child leaves none."""
        try:
            if self.pid == os.getpid() and (self.created or self.records):
                self._see_marks()
                self.write(time.monotonic(), clean_exit=True)
        except Exception as error:
            self.note("exit", error)

    def _see_marks(self):
        try:
            self.marks.remember(self.marks.look(), sum(record.calls for record in self.records.values()))
        except Exception as error:
            self.note("marks", error)

    def write(self, now, clean_exit=False):
        """Replace the file."""
        import json

        self.next_write = now + WRITE_INTERVAL_S
        path = os.path.join(self.directory, f"{host()}-{self.pid}-keras.json")
        partial = path + ".partial"
        with open(partial, "w", encoding="utf-8") as file:
            json.dump(self._to_json(clean_exit), file)
        os.replace(partial, path)

    def _to_json(self, clean_exit):
        for record in self.records.values():
            try:
                record.settle()
            except Exception as error:
                self.note("iterations", error)
        listed = sorted((record.to_json() for record in self.records.values()), key=lambda item: -item["steps"])
        steps = [item["steps"] for item in listed]
        if any(steps) and self.last_step_at is None:
            self.last_step_at = time.time()

        def most(key):
            return max([item[key] for item in listed], default=0)

        return {
            "format": FORMAT,
            "pid": self.pid,
            "ppid": os.getppid(),
            "host": host(),
            "rank": env_int("RANK"),
            "local_rank": env_int("LOCAL_RANK"),
            "world_size": env_int("WORLD_SIZE"),
            "restart": env_int("TORCHELASTIC_RESTART_COUNT"),
            "torch": "keras " + str(getattr(sys.modules.get("keras"), "__version__", "")),
            "started_at": self.started_at,
            "updated_at": time.time(),
            # Where steps are not seen one by one, none seen is no sign that none was taken.
            "optimizers_created": self.created if backend() == "torch" else 0,
            "steps": most("steps"),
            "steps_total": sum(steps),
            "optimizers": listed[:MAX_LISTED],
            "lr_positive_steps": most("lr_positive_steps"),
            "lr_unknown_steps": most("lr_unknown_steps"),
            "scaler_skips": 0,
            "grad": self.grad,
            "marks": self.marks.to_json(),
            "looks": self.marks.looks_json(),
            "unmarked": self.marks.unmarked,
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
                log.write(f"pid {self.pid}: keras {where}: {repr(error)[:400]}\n")
        except Exception:
            pass


def sibling(name):
    """A module beside this one, which is on no path."""
    import importlib.util

    spec = importlib.util.spec_from_file_location(name, os.path.join(os.path.dirname(__file__), name + ".py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def is_markable(variable):
    """Whether a variable is of a type that checkpoints name."""
    return str(getattr(variable, "dtype", "")) in ("float32", "float64", "float16", "bfloat16") and all(variable.shape)


def backend():
    """Name of the backend that Keras runs on."""
    return sys.modules["keras.src.backend"].backend()


def read_count(counter):
    """`iterations` as a whole number."""
    value = counter._value
    return int(value.detach() if hasattr(value, "detach") else value)


def read_rate(optimizer):
    """Whether the learning rate is above 0; None where it cannot be told."""
    try:
        value = optimizer.learning_rate
        value = getattr(value, "value", value)
        return float(value.detach() if hasattr(value, "detach") else value) > 0
    except Exception:
        return None


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
