"""`inspect-dataset`: rows of a dataset before and after its loader, each judged by its algorithm's contract."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from harness.commands.arguments import count


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    command = commands.add_parser(
        "inspect-dataset", help="rows of a dataset before and after its loader, judged by the algorithm's contract")
    command.add_argument("--dataset-path", required=True, metavar="P",
                         help="a file, a directory, or OWNER/NAME[:SUBSET[:SPLIT]] on ModelScope")
    command.add_argument("--algo", required=True, metavar="A", help="sft, dpo, gspo, grpo, ppo or agentic")
    command.add_argument("--loader", default=None, metavar="FILE[:FN]", help="the loader that the job will use")
    command.add_argument("--model-hub", default="modelscope", metavar="HUB", help="modelscope")
    command.add_argument("--limit", type=count, default=None, metavar="N", help="rows to look at (default 2000)")
    command.add_argument("--max-prompt-tokens", type=count, default=None, metavar="N",
                         help="a longer prompt is dropped (AReno's default 1024)")
    command.add_argument("--max-new-tokens", type=count, default=None, metavar="N",
                         help="a longer response is dropped (AReno's default 3071)")
    command.add_argument("--max-length", type=count, default=None, metavar="N",
                         help="sft with a trainer that cuts rows at N tokens: are labels left?")
    command.add_argument("--batch-size", type=count, default=1, metavar="N", help="beside --max-length (default 1)")
    command.add_argument("--tokenizer", type=Path, default=None, metavar="DIR",
                         help="a local checkpoint whose tokenizer counts the tokens; without it none are counted")
    command.add_argument("--python", type=Path, default=None, metavar="INTERPRETER",
                         help="the Python that will train (default: this one)")
    command.add_argument("--workdir", type=Path, default=Path(), metavar="DIR", help="working directory of the job")
    command.set_defaults(function=run)


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """See `harness.data.inspect.inspect_dataset`. ConfigError for an algorithm or interpreter that is none."""
    import os

    from harness.command.interpreter import find_program, own_interpreter
    from harness.data.contracts import ALGORITHMS
    from harness.data.inspect import DEFAULT_LIMIT, Inspector, inspect_dataset
    from harness.errors import ConfigError
    from harness.frameworks.dataset import NamedDataset
    from harness.record.redaction import Redactor

    algorithm = arguments.algo.strip().lower()
    if algorithm not in ALGORITHMS:
        raise ConfigError(f"--algo {arguments.algo}: give one of {', '.join(ALGORITHMS)}")
    if arguments.max_length is not None and algorithm != "sft":
        raise ConfigError("--max-length is for --algo sft")
    workdir = arguments.workdir.absolute()
    if not workdir.is_dir():
        raise ConfigError(f"--workdir {workdir}: no such directory")
    python = own_interpreter()
    if arguments.python is not None:
        found = find_program(str(arguments.python), Path.cwd(), os.environ)
        if found is None:
            raise ConfigError(f"--python {arguments.python}: no such program")
        python = found.absolute()
    named = NamedDataset(
        path=arguments.dataset_path, algorithm=algorithm, kind=ALGORITHMS[algorithm], loader=arguments.loader,
        model_hub=arguments.model_hub.strip().lower(), tokenizer=_tokenizer(arguments.tokenizer),
        max_prompt_tokens=arguments.max_prompt_tokens, max_new_tokens=arguments.max_new_tokens,
        max_length=arguments.max_length, batch_size=arguments.batch_size)
    inspector = Inspector(
        python=python, workdir=workdir, environ=dict(os.environ), redactor=Redactor.from_run((), os.environ),
        limit=arguments.limit or DEFAULT_LIMIT)
    return inspect_dataset(named, inspector).to_json()


def _tokenizer(directory: Path | None) -> Path | None:
    from harness.errors import ConfigError

    if directory is not None and not directory.is_dir():
        raise ConfigError(f"--tokenizer {directory}: no such directory")
    return directory.absolute() if directory else None
