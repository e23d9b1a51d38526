"""Start of the optimizer probe: the interpreter imports this file when its directory is on PYTHONPATH.

With REAL_STEP_PROBE_DIR set to a directory it leaves an empty file `loaded` there, and waits for the program
to import torch's optimizers, to which `_real_step_probe.py` beside it then listens, or Keras', to which
`_real_step_keras.py` does; where settings were overridden, also a parser, to which `_real_step_parsed.py` does.
Without them nothing else happens. A failure here never reaches the program; it is noted in the directory at most.
The sitecustomize that the interpreter would have found without this one is run as well, with its own errors.

Standard library only, Python 3.8 and later, no import of the harness: it runs in the trainer's interpreter.
"""

# Untyped: it changes a torch that the type checker does not see.
# mypy: ignore-errors
# Every interpreter of a job runs this file, so that even pathlib would cost too much.
# ruff: noqa: PTH100, PTH113, PTH118, PTH120, PTH123

import os
import sys
import time

_HERE = os.path.dirname(os.path.abspath(__file__))
_RECORDER = "_real_step_probe"
_KERAS_RECORDER = "_real_step_keras"
_PARSED_RECORDER = "_real_step_parsed"
_WATCHED = {
    "torch.optim.optimizer": _RECORDER,
    "torch.amp.grad_scaler": _RECORDER,
    "torch.cuda.amp.grad_scaler": _RECORDER,
    "torch.distributed.distributed_c10d": _RECORDER,
    "torch.nn.parallel.distributed": _RECORDER,
    "torch.distributed.fsdp.fully_sharded_data_parallel": _RECORDER,
    "deepspeed.runtime.engine": _RECORDER,
    "torch.serialization": _RECORDER,
    "safetensors.torch": _RECORDER,
    "torch.distributed.checkpoint.state_dict_saver": _RECORDER,
    "keras.src.saving.saving_lib": _KERAS_RECORDER,
    "keras.src.optimizers.base_optimizer": _KERAS_RECORDER,
}
_PARSERS = ("argparse", "absl.flags._flagvalues", "click.core", "fire.core", "jsonargparse._core",
            "omegaconf.omegaconf", "typer._click.core", "tyro._cli")
_FILES = ("json", "tomllib", "yaml")
if os.environ.get("REAL_STEP_PROBE_ASKED"):
    _WATCHED.update(dict.fromkeys(_PARSERS, _PARSED_RECORDER))
    if "file:" in os.environ["REAL_STEP_PROBE_ASKED"]:
        _WATCHED.update(dict.fromkeys(_FILES, _PARSED_RECORDER))


class _Finder:
    """Meta path finder that finds nothing itself, but is told when a watched module has been executed."""

    def __init__(self, directory, started_at):
        self._directory = directory
        self._started_at = started_at
        self._probes = {}

    def find_spec(self, fullname, path=None, target=None):
        """The spec that the other finders give for a watched module, with a loader that reports back."""
        if fullname not in _WATCHED:
            return None
        for finder in list(sys.meta_path):
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                self._listen(spec)
                return spec
        return None

    def _listen(self, spec):
        loader = spec.loader
        try:
            execute = loader.exec_module

            def exec_module(module):
                execute(module)
                self.executed(module)

            loader.exec_module = exec_module
        except Exception as error:
            _note(self._directory, f"cannot listen to {spec.name}: {error!r}")

    def executed(self, module):
        """Install the probe in a watched module."""
        try:
            recorder = _WATCHED[module.__name__]
            if recorder not in self._probes:
                self._probes[recorder] = _load_recorder(recorder).Probe(self._directory, self._started_at)
            self._probes[recorder].install(module)
        except Exception as error:
            _note(self._directory, f"cannot install in {module.__name__}: {error!r}")


def _load_recorder(name):
    import importlib.util

    spec = importlib.util.spec_from_file_location(name, os.path.join(_HERE, name + ".py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _note(directory, message):
    try:
        with open(os.path.join(directory, "problems.log"), "a", encoding="utf-8") as log:
            log.write(f"pid {os.getpid()}: {message[:400]}\n")
    except Exception:
        pass


def _start():
    directory = os.environ.get("REAL_STEP_PROBE_DIR")
    if not directory or hasattr(sys, "_real_step_probe"):
        return
    directory = os.path.abspath(directory)
    sys._real_step_probe = directory
    finder = _Finder(directory, time.time())
    sys.meta_path.insert(0, finder)
    for name in _WATCHED:
        if name in sys.modules:
            finder.executed(sys.modules[name])
    os.close(os.open(os.path.join(directory, "loaded"), os.O_CREAT | os.O_WRONLY, 0o644))


def _run_next():
    """Run the sitecustomize that the rest of sys.path holds; directories of other probes are passed over."""
    kept = sys.path[:]
    sys.path[:] = [entry for entry in kept if not os.path.isfile(os.path.join(entry, _RECORDER + ".py"))]
    try:
        specs = (finder.find_spec("sitecustomize", None) for finder in list(sys.meta_path))
        spec = next((spec for spec in specs if spec is not None and spec.loader is not None), None)
    finally:
        sys.path[:] = kept
    if spec is not None:
        import importlib.util

        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


try:
    _start()
except Exception as _error:
    _note(os.environ.get("REAL_STEP_PROBE_DIR", ""), f"cannot start: {_error!r}")
_run_next()
