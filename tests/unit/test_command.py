"""A command line is taken apart without a shell, and what cannot run is refused before it is launched."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from harness.command.interpreter import interpreter_path
from harness.command.limits import METRIC_DIR_FLAGS, SAVE_DIR_FLAGS, directories, resume_point, step_limit
from harness.command.parse import join_command, parse_command
from harness.command.topology import processes_asked
from harness.command.validate import validate
from harness.errors import CommandError

WORK = Path("/work/dir")


@pytest.mark.parametrize(
    ("text", "entrypoint", "module", "args", "interpreter"),
    [
        ("python train.py --lr 1", "train.py", None, ["--lr", "1"], "python"),
        ("python3.11 -u -X faulthandler -W ignore a/t.py x", "a/t.py", None, ["x"], "python3.11"),
        ("python -Wignore -uB t.py", "t.py", None, [], "python"),
        ("python -m pkg.train --a", None, "pkg.train", ["--a"], "python"),
        ("python -um pkg --a", None, "pkg", ["--a"], "python"),
        ("python -c 'print(1)' a", None, None, ["a"], "python"),
        ("python - a", None, None, ["a"], "python"),
        ("/x/bin/python t.py", "t.py", None, [], "/x/bin/python"),
        ("uv run train.py --a", "train.py", None, ["--a"], ""),
        (
            "uv run --with torch -p 3.12 --group=gpu python -u train.py --a",
            "train.py",
            None,
            ["--a"],
            "python",
        ),
        ("uv run --directory sub -- python train.py", "sub/train.py", None, [], "python"),
        ("uv --project x run -m pkg.mod --b", None, "pkg.mod", ["--b"], ""),
        ("uv run areno train --algo sft", None, None, ["train", "--algo", "sft"], ""),
        ("areno train --algo sft", None, None, ["train", "--algo", "sft"], ""),
        ("torchrun --standalone --nproc-per-node 2 train.py --a", "train.py", None, ["--a"], ""),
        ("torchrun --nproc_per_node=2 -m pkg.train --a", None, "pkg.train", ["--a"], ""),
        (
            "python -m torch.distributed.run --nproc-per-node 2 train.py --a",
            "train.py",
            None,
            ["--a"],
            "python",
        ),
        ("accelerate launch --multi_gpu --num_processes 2 train.py --a", "train.py", None, ["--a"], ""),
        ("accelerate launch --config_file c.yaml -m pkg", None, "pkg", [], ""),
        ("bash -e run.sh 1", "run.sh", None, ["1"], ""),
        ("bash -c 'python t.py > x'", None, None, [], ""),
        ("nice -n 5 nohup python t.py a", "t.py", None, ["a"], "python"),
        ("timeout -s INT 60 python t.py a", "t.py", None, ["a"], "python"),
        ("env -u X A=1 python t.py", "t.py", None, [], "python"),
        ("./train.py a", "train.py", None, ["a"], ""),
        ("python", None, None, [], "python"),
        ("uv run", None, None, [], ""),
        ("torchrun", None, None, [], ""),
    ],
)
def test_parse_finds_what_trains(
    text: str, entrypoint: str | None, module: str | None, args: list[str], interpreter: str
) -> None:
    """Launcher, entrypoint and script arguments stay apart."""
    command = parse_command(text, WORK)
    found = (command.entrypoint, command.module, list(command.script_args), command.interpreter)
    assert found == (WORK / entrypoint if entrypoint else None, module, args, interpreter)
    assert command.argv[len(command.argv) - len(args) :] == tuple(args)


def test_assignments_are_kept_apart() -> None:
    """Leading NAME=VALUE words, with `env` too; a later one is an argument."""
    command = parse_command("A=1 env B='x y' C= python t.py D=4", WORK)
    assert command.env_assignments == (("A", "1"), ("B", "x y"), ("C", ""))
    assert command.argv == ("python", "t.py", "D=4")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        ("  \n ", "empty"),
        ("A=1", "only sets variables"),
        ("python 'a", "never closed"),
        ('python "a', "never closed"),
        ("python a\\", "backslash"),
        ("python a | tee log", "bash run.sh"),
        ("python a > log", "train.log"),
        ("python a 2>&1", "redirection"),
        ("cd x && python a", "bash run.sh"),
        ("python a; python b", "bash run.sh"),
        ("python a &", "bash run.sh"),
        ("python $(which x)", "substitution"),
        ("python `x`", "substitution"),
        ('python "$(x)"', "substitution"),
        ("python a --d $HOME/x", "variable"),
        ('python a "${X}"', "variable"),
        ("python a\npython b", "line break"),
        ("'' a", "empty word"),
        ("python a\0", "NUL"),
    ],
)
def test_what_is_no_single_command_is_refused(text: str, says: str) -> None:
    """The refusal says what to write instead."""
    with pytest.raises(CommandError, match=says):
        parse_command(text, WORK)


@pytest.mark.parametrize(
    "text",
    [
        "python a 'x|y' \"a;b\" 'a > b' '$HOME' a\\;b 'it''s'",
        "python a key=[1,2] 'k=${x}' --p \"<pad>\" a#b 100%",
        "python \\\n  a \\\n  --b",
        "python a 'x\\\ny'",
        "\n python a\n",
    ],
)
def test_quoted_shell_characters_are_arguments(text: str) -> None:
    """What is quoted belongs to an argument; a backslash at a line's end joins lines."""
    expected = shlex.split(text.replace("\\\n  ", " "))
    assert list(parse_command(text, WORK).argv) == expected


@given(
    st.lists(
        st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=12),
        min_size=1,
        max_size=6,
    )
)
def test_parse_then_join_gives_the_same_words(words: list[str]) -> None:
    """Every argument survives: newlines, quotes, dollars, backslashes."""
    assume(words[0] and words[0] != "env" and "=" not in words[0])
    command = parse_command(shlex.join(words), WORK)
    assert list(command.argv) == words
    again = parse_command(join_command(command), WORK)
    assert (again.env_assignments, again.argv, again.script_args) == (
        command.env_assignments,
        command.argv,
        command.script_args,
    )


@given(st.text(max_size=40))
def test_parse_raises_nothing_else(text: str) -> None:
    """Any text parses or is a CommandError."""
    try:
        parse_command(text, WORK)
    except CommandError as error:
        assert str(error)


def codes(text: str, workdir: Path, **environ: str) -> list[tuple[str, bool]]:
    found = validate(parse_command(text, workdir), workdir, {"PATH": os.environ["PATH"], **environ})
    return [(finding.code, finding.refuses) for finding in found]


def test_validate_names_program_and_entrypoint(tmp_path: Path) -> None:
    """Each input that is wrong has its reason code."""
    (tmp_path / "t.py").write_text("import torch\nprint(1)\n")
    (tmp_path / "bad.py").write_text("x = 1\ndef f(:\n  pass\n")
    (tmp_path / "run.sh").write_text("#!/no/such/shell\n")
    (tmp_path / "run.sh").chmod(0o755)
    (tmp_path / "d").mkdir()
    python = shlex.quote(sys.executable)
    assert codes(f"{python} t.py", tmp_path) == []
    assert codes(f"{python} none.py", tmp_path) == [("entrypoint-missing", True)]
    assert codes(f"{python} d", tmp_path) == [("entrypoint-missing", True)]
    assert codes(f"{python} bad.py", tmp_path) == [("command-refused", True)]
    assert codes("no-such-program-x t", tmp_path) == [("command-not-found", True)]
    assert codes(f"nice no-such-python-x/python {python}", tmp_path)[0] == ("command-not-found", True)
    assert codes("./t.py", tmp_path) == [("command-not-found", True)]
    assert codes("./run.sh", tmp_path) == [("command-not-found", True)]
    assert codes(f"PATH=/nowhere {Path(sys.executable).name} t.py", tmp_path)[0] == (
        "command-not-found",
        True,
    )
    assert codes(f"{python} t.py", tmp_path / "none") == [("workdir-missing", True)]


def test_syntax_error_has_its_place(tmp_path: Path) -> None:
    """Line, column and the interpreter that says so; where no Python of its own is known it is only noted."""
    (tmp_path / "bad.py").write_text("x = 1\ndef f(:\n  pass\n")
    (finding,) = validate(parse_command(f"{sys.executable} bad.py", tmp_path), tmp_path, dict(os.environ))
    assert "line 2, column 7" in finding.message and sys.executable in finding.message
    (tmp_path / "uv").write_text("#!/bin/sh\n")
    (tmp_path / "uv").chmod(0o755)
    found = validate(parse_command("./uv run bad.py", tmp_path), tmp_path, dict(os.environ))
    assert [(f.code, f.refuses) for f in found] == [("entrypoint-unparsed", False)]


def test_interpreter_of_a_console_script_is_its_first_line(tmp_path: Path) -> None:
    """The packages of the trainer's Python can be recorded without running the trainer."""
    script = tmp_path / "trainer"
    script.write_text(f"#!{sys.executable}\n")
    script.chmod(0o755)
    command = parse_command("nice ./trainer train --x", tmp_path)
    assert interpreter_path(command, tmp_path, dict(os.environ)) == Path(sys.executable)


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ("--max-steps 20", (20, "--max-steps")),
        ("--max_steps=20", (20, "--max_steps")),
        ("trainer.max_steps=7", (7, "trainer.max_steps")),
        ("+trainer.max_steps=7", (7, "+trainer.max_steps")),
        ("--max-steps 5 --max-steps 9", (9, "--max-steps")),
        ("--max-steps -1", None),
        ("--max-steps", None),
        ("--iterations 1e3", (1000, "--iterations")),
        ("--max-steps x", None),
        ("max_steps 5", None),
        ("--epochs 3", None),
        ("--trainer.max_steps 4", (4, "--trainer.max_steps")),
    ],
)
def test_step_limit_is_read_from_the_command(args: str, expected: tuple[int, str] | None) -> None:
    """By flag, in both spellings, and in the manner of Hydra; the last one counts."""
    assert step_limit(parse_command(f"python t.py {args}", WORK)) == expected


def test_directories_and_resume_point_are_absolute() -> None:
    """Relative to the working directory; a bare --resume is where the command saves."""
    command = parse_command("python t.py --log-dir runs --logging_dir=/l hydra.save_dir=ck --resume", WORK)
    saves = directories(command, WORK, SAVE_DIR_FLAGS)
    assert (directories(command, WORK, METRIC_DIR_FLAGS), saves) == (
        (WORK / "runs", Path("/l")),
        (WORK / "ck",),
    )
    assert resume_point(command, WORK, saves) == WORK / "ck"
    assert resume_point(parse_command("python t.py --resume-from a/b", WORK), WORK, ()) == WORK / "a/b"
    assert resume_point(parse_command("python t.py --resume false", WORK), WORK, saves) is None


@pytest.mark.parametrize(("text", "launcher", "processes", "local"), [
    ("python train.py --n 4", "local", 1, 1),
    ("torchrun train.py", "torchrun", 1, 1),
    ("torchrun --nproc-per-node 2 train.py --n 3", "torchrun", 2, 2),
    ("torchrun --nproc_per_node=gpu train.py", "torchrun", None, None),
    ("python -m torch.distributed.run --nnodes 2 --nproc-per-node=4 train.py", "torchrun", 8, 4),
    ("torchrun --nnodes 1:4 --nproc-per-node 4 train.py", "torchrun", None, 4),
    ("accelerate launch --num_processes 2 train.py", "accelerate", 2, 2),
    ("accelerate launch train.py", "accelerate", None, None),
    ("deepspeed --num_gpus 4 --num_nodes 2 train.py", "deepspeed", 8, 4),
    ("mpirun -np 8 python train.py", "mpirun", 8, 8),
    ("srun -N2 --ntasks=2 torchrun --nproc-per-node 4 t.py", "torchrun", 8, 8),
    ("srun -n 2 torchrun --nnodes 2 --nproc-per-node 4 t.py", "torchrun", 8, 4),
])
def test_processes_that_the_launchers_are_told_to_start(
    text: str, launcher: str, processes: int | None, local: int | None
) -> None:
    """As many as the innermost launcher says, times the tasks around it."""
    asked = processes_asked(parse_command(text, Path("/")))
    assert (asked.launcher, asked.processes, asked.local) == (launcher, processes, local)
