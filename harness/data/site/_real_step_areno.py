"""The dataset as AReno gets it, and what AReno itself makes of a row; standard library only at import.

Where AReno is installed, its own functions load the dataset and judge the rows.
"""

from __future__ import annotations

import importlib.util
import sys
import types
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from _real_step_files import (  # type: ignore[import-not-found]
    SUFFIXES,
    Rows,
    Unreadable,
    given,
    numbers_as_numbers,
    picked,
    raw_rows,
)
from _real_step_hub import (  # type: ignore[import-not-found]
    HubProblem,
    be_quick,
    load_rows,
    problem_of,
    unreachable,
)

Judge = Callable[[Any], "dict[str, str] | None"]
ASK_ARENO_BYTES = 64 << 20
"""A larger file is not read by AReno's own reader beforehand."""


def dataset_of(request: dict[str, Any]) -> Any:
    """What AReno's `_load_dataset_for_training` gives for the same path and loader."""
    try:
        from datasets import load_dataset, load_from_disk
    except ImportError:
        load_dataset = load_from_disk = None
    default = _default_loader(request, load_dataset, load_from_disk)
    if not request["loader"]:
        return default(request["path"])
    function = _loader_function(request["loader"])
    return function(
        request["path"], default_loader=default, load_dataset=load_dataset, load_from_disk=load_from_disk)


def _areno_train() -> Any:
    try:
        import areno.cli.train as train
    except ImportError:
        return None
    return train if hasattr(train, "_load_dataset_from_path") else None


def _default_loader(request: dict[str, Any], load_dataset: Any, load_from_disk: Any) -> Callable[[str], Any]:
    areno = _areno_train()
    if areno is None or load_dataset is None:
        return _without_areno

    def load(path: str) -> Any:
        if is_remote(path):
            return from_hub(path, areno, load_dataset)
        return areno._load_dataset_from_path(
            path, model_hub=request["model_hub"], load_dataset=load_dataset, load_from_disk=load_from_disk)

    return load


def is_remote(path: str) -> bool:
    """Whether AReno takes a path for a reference to a hub."""
    return not Path(path).exists() and Path(path).suffix.lower() not in SUFFIXES


def from_hub(path: str, areno: Any = None, load_dataset: Any = None) -> Any:
    """A ModelScope dataset, by AReno's own function where it is there. Raises Unreadable."""
    parts = path.split(":")
    subset = parts[1] if len(parts) > 1 and parts[1] else None
    split = parts[2] if len(parts) > 2 and parts[2] else "train"
    try:
        if areno is None:
            return load_rows(parts[0], subset, split)
        why = unreachable()
        if why:
            raise HubProblem("hub-unreachable", why)
        be_quick()
        try:
            return areno._load_remote_dataset_ref(path, model_hub="modelscope", load_dataset=load_dataset)
        except Exception as error:
            raise problem_of(error, f"the dataset {path}") from error
    except HubProblem as problem:
        raise Unreadable(problem.code, str(problem)) from problem


def _without_areno(path: str) -> Any:
    """Every row, as far as it can be told without AReno."""
    if is_remote(path):
        return from_hub(path)
    _, rows = raw_rows(path, sys.maxsize, delimiter=",")
    loaded = [row() for _, row in rows]
    return numbers_as_numbers(loaded) if path.lower().endswith((".csv", ".tsv")) else loaded


def _loader_function(spec: str) -> Callable[..., Any]:
    path, _, name = spec.rpartition(":") if ":" in spec else (spec, "", "load_training_dataset")
    file = Path(path).resolve()
    if not file.is_file():
        raise Unreadable("loader-missing", f"the loader {file} is not there")
    made = importlib.util.spec_from_file_location(f"areno_example_dataset_loader_{abs(hash(file))}", file)
    if made is None or made.loader is None:
        raise Unreadable("loader-missing", f"{file} is no Python file")
    module = importlib.util.module_from_spec(made)
    made.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        raise Unreadable("loader-missing", f"{file} has no function {name}")
    found: Callable[..., Any] = function
    return found


def rows_of(dataset: Any, limit: int) -> tuple[int, Rows]:
    """(total, rows) by len() and an index, which is all that AReno asks of a dataset."""
    kind = type(dataset).__name__
    if dataset is None:
        raise Unreadable("loader-returned-nothing", "the loader returned None; it must return the dataset")
    if hasattr(dataset, "keys"):
        message = f"the loader returned a {kind}; AReno asks for rows by number: return one split, or a list of rows"
        raise Unreadable("loader-returned-mapping", message)
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        message = f"the loader returned a {kind}; AReno asks for len() and an index: return a list or a Dataset"
        raise Unreadable("loader-returned-iterator", message)
    total = len(dataset)
    return total, ((index, partial(dataset.__getitem__, index)) for index in picked(total, limit))


def default_rows(request: dict[str, Any]) -> tuple[int | None, Rows]:
    """Rows of a local path without a loader, as AReno reads them: `.tsv` like `.csv`, by commas."""
    _ask_areno(request)
    total, rows = raw_rows(request["path"], request["limit"], delimiter=",")
    if Path(request["path"]).suffix.lower() not in (".csv", ".tsv"):
        return total, rows
    found = [(index, get()) for index, get in rows]
    typed = numbers_as_numbers([row for _, row in found])
    return total, ((found[number][0], partial(given, row)) for number, row in enumerate(typed))


def _ask_areno(request: dict[str, Any]) -> None:
    """Unreadable where AReno's own reader does not take a file that is small enough to ask about."""
    path = request["path"]
    if request["kind"] == "sft" or Path(path).is_dir() or Path(path).stat().st_size > ASK_ARENO_BYTES:
        return
    if Path(path).stat().st_size == 0 or _areno_train() is None:
        return
    try:
        dataset_of(request)
    except Exception as error:
        cause = error.__cause__ or error
        message = f"AReno's reader refuses {path}: {type(cause).__name__}: {str(cause)[:300]}"
        raise Unreadable("areno-refuses", message) from error


class Bytes:
    """A tokenizer for the shape of rows, where no checkpoint gives the real one: a token for each byte."""

    eos_token_id = 0
    chat_template = None

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """The bytes."""
        return list(text.encode("utf-8", "surrogatepass"))


def judge_of(request: dict[str, Any]) -> tuple[Judge | None, str | None]:
    """(what says what AReno does with a row, a note); None where AReno is not here or has another shape."""
    try:
        from areno.api.multimodal import record_has_multimodal
    except ImportError:
        return None, None
    tokenizer, note = _tokenizer(request)
    prompt, new = request["max_prompt_tokens"], request["max_new_tokens"]
    if tokenizer is None:
        tokenizer, prompt, new = Bytes(), sys.maxsize, sys.maxsize
    try:
        make = _maker(request["kind"], tokenizer, prompt, new)
    except (ImportError, AttributeError):
        make = None
    if make is None:
        return None, note

    def judge(record: Any) -> dict[str, str] | None:
        try:
            if record_has_multimodal(dict(record)):
                return None
            return {"verdict": "ok" if make(record) is not None else "skip"}
        except Exception as error:
            message = str(error)
            if "dataset prompts exceed" in message:
                return {"verdict": "skip", "message": message[:300]}
            return {"verdict": "fatal", "message": f"{type(error).__name__}: {message}"[:300]}

    return judge, note


def _maker(kind: str, tokenizer: Any, prompt: int, new: int) -> Callable[[Any], Any] | None:
    """AReno's own function from a row to what it trains on."""
    if kind == "sft":
        from areno.api.trainers import sft

        sequence = sft._record_to_train_sequence
        return lambda record: sequence(record, tokenizer, max_prompt_tokens=prompt, max_new_tokens=new)
    if kind == "dpo":
        from areno.api.trainers import dpo

        pair = dpo._record_to_train_pair
        return lambda record: pair(record, tokenizer, max_seq_len=min(prompt + new, sys.maxsize))
    if kind in ("rollout", "agentic"):
        import areno.api.trainer

        load = areno.api.trainer.Trainer.load_prompt_batches
        holder = types.SimpleNamespace(_tokenizer=tokenizer, _processor=None)
        return lambda record: next(iter(load(holder, [record], batch_size=1, max_prompt_tokens=prompt)), None)
    return None


def _tokenizer(request: dict[str, Any]) -> tuple[Any, str | None]:
    if not request["tokenizer"]:
        return None, None
    try:
        from areno.api.tokenizer import load_tokenizer

        return load_tokenizer(request["tokenizer"]), None
    except Exception as error:
        return None, f"no token was counted: the tokenizer of {request['tokenizer']} does not load: {str(error)[:200]}"
