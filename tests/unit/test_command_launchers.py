"""Launchers are stepped over with their own options, shell scripts are read, bare scripts get their program."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.command.bare import complete_bare_script
from harness.command.interpreter import interpreter_path
from harness.command.parse import join_command, parse_command, with_arguments
from harness.command.shell_text import inner_command, shell_job, simple_commands
from harness.command.validate import validate

WORK = Path("/work/dir")
PYTHON = shlex.quote(sys.executable)


@pytest.mark.parametrize(
    ("text", "entrypoint", "module", "args", "launchers"),
    [
        ("srun -n1 -N 2 --gres=gpu:1 --cpu-bind none python t.py a", "t.py", None, ["a"], "srun python"),
        ("srun -D sub --label python t.py", "sub/t.py", None, [], "srun python"),
        ("mpirun -np 4 --mca btl ^tcp -x A=1 -H a,b python t.py a", "t.py", None, ["a"], "mpirun python"),
        ("mpiexec -n 2 -env A 1 -wdir sub python t.py", "sub/t.py", None, [], "mpiexec python"),
        ("conda run -n env --no-capture-output python t.py a", "t.py", None, ["a"], "conda python"),
        ("conda run --cwd sub -p ./env python t.py", "sub/t.py", None, [], "conda python"),
        ("conda info", None, None, ["info"], "conda"),
        ("poetry -C sub run python t.py", "sub/t.py", None, [], "poetry python"),
        ("pixi run -e gpu --manifest-path p.toml python -m pkg a", None, "pkg", ["a"], "pixi python"),
        ("pixi run train a", None, None, ["a"], "pixi train"),
        ("deepspeed --num_gpus 4 --no_local_rank t.py --deepspeed d.json", "t.py", None,
         ["--deepspeed", "d.json"], "deepspeed"),
        ("deepspeed --module pkg.t a", None, "pkg.t", ["a"], "deepspeed"),
        ("python -m deepspeed.launcher.runner --include a:0 t.py b", "t.py", None, ["b"], "deepspeed"),
        ("accelerate-launch --config_file c.yaml t.py a", "t.py", None, ["a"], "accelerate-launch"),
        ("python -m accelerate.commands.accelerate_cli launch -m pkg", None, "pkg", [], "accelerate"),
        ("python -m cProfile -o out -m pkg a", None, "pkg", ["a"], "python"),
        ("stdbuf -oL time -o x ionice -c 3 numactl -N 0 python t.py", "t.py", None, [],
         "stdbuf time ionice numactl python"),
        ("env -C sub A=1 python t.py", "sub/t.py", None, [], "env python"),
        ("taskset 0x3 python t.py", "t.py", None, [], "taskset python"),
        ("torchrun --no-python bash run.sh 1", "run.sh", None, ["1"], "torchrun bash"),
        ("trl sft --config c.yaml", None, None, ["sft", "--config", "c.yaml"], "trl"),
    ],
)
def test_launchers_keep_their_own_options(
    text: str, entrypoint: str | None, module: str | None, args: list[str], launchers: str
) -> None:
    """Launcher part, entrypoint and script arguments stay apart, byte for byte."""
    command = parse_command(text, WORK)
    found = (command.entrypoint, command.module, list(command.script_args))
    assert found == (WORK / entrypoint if entrypoint else None, module, args)
    assert " ".join(item.name for item in command.launchers) == launchers
    assert (*command.launcher_part, *command.script_args) == command.argv == tuple(shlex.split(text))


ALPHABET = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=6)
STARTS = ("python t.py", "uv run -p 3.12 t.py", "srun -n 2 --label python", "conda run -n e", "sh -c", "deepspeed -H h",
          "mpirun --mca a b", "accelerate launch", "torchrun -m", "timeout 3 nice -n 2", "poetry run", "bash")


@given(start=st.sampled_from(STARTS), words=st.lists(ALPHABET, max_size=5))
def test_parse_then_join_gives_the_same_argv(start: str, words: list[str]) -> None:
    """Whatever follows a launcher; its parts always add up to the whole."""
    argv = [*start.split(), *words]
    command = parse_command(shlex.join(argv), WORK)
    assert list(command.argv) == argv
    assert parse_command(join_command(command), WORK).argv == command.argv
    assert (*command.launcher_part, *command.script_args) == command.argv
    spans = [(item.start, item.stop) for item in command.launchers]
    assert all(start <= stop <= len(argv) for start, stop in spans)


def test_arguments_are_added_before_the_end_of_options() -> None:
    """A `--` ends the options, so that nothing behind it would be one."""
    command = with_arguments(parse_command("python t.py a -- b", WORK), ("--x", "1"))
    assert command.argv == ("python", "t.py", "a", "--x", "1", "--", "b")


# Shells


def test_simple_commands_of_a_script_have_their_places() -> None:
    """Comments, keywords, assignments, redirections and here-documents are no words of a command."""
    text = (
        "#!/bin/bash\nset -e  # 'quote\nif true; then A=1 python t.py \\\n  --a \"$X\" 'b c' 2>&1 > log | tee x\nfi\n"
        "cat <<-'END' > y\npython no.py\nEND\npython u.py&&echo done\n"
    )
    lines = [(line.number, list(line.argv)) for line in simple_commands(text)]
    assert lines == [
        (2, ["set", "-e"]), (3, ["true"]), (3, ["python", "t.py", "--a", "$X", "b c"]), (4, ["tee", "x"]), (5, ["fi"]),
        (6, ["cat"]), (9, ["python", "u.py"]), (9, ["echo", "done"]),
    ]
    words = simple_commands(text)[2].words
    assert [text[word.start : word.stop] for word in words[-2:]] == ['"$X"', "'b c'"]
    assert [word.fixed for word in words] == [True, True, True, False, True]


@given(st.text("abc '\"\\\n;|&<>()#$`-", max_size=40))
def test_any_text_of_a_shell_can_be_read(text: str) -> None:
    """Words lie in the text, in order, and nothing is raised."""
    spans = [(word.start, word.stop) for line in simple_commands(text) for word in line.words]
    assert all(0 <= start < stop <= len(text) for start, stop in spans)
    assert spans == sorted(spans)


def test_the_line_of_a_script_that_trains_is_found(tmp_path: Path) -> None:
    """One Python or launcher line; two of them cannot be told apart."""
    run = tmp_path / "run.sh"
    run.write_text('export A=1\nmkdir -p x\ntorchrun --nproc-per-node 2 t.py --lr 1 "$@"\n')
    job = shell_job(parse_command("bash -x run.sh --a", tmp_path))
    assert job is not None and job.forwards and job.line.number == 3
    inner = inner_command(parse_command("bash run.sh", tmp_path))
    assert inner.entrypoint == tmp_path / "t.py" and inner.launched_by("torchrun")
    given = inner_command(parse_command("bash run.sh --steps 'a b'", tmp_path))
    assert given.script_args == ("--lr", "1", "--steps", "a b")
    run.write_text("python a.py\npython b.py\n")
    assert shell_job(parse_command("bash run.sh", tmp_path)) is None
    assert shell_job(parse_command("bash gone.sh", tmp_path)) is None
    text = inner_command(parse_command("sh -c 'python t.py | tee x'", tmp_path))
    assert text.entrypoint == tmp_path / "t.py"


# Bare scripts


def tool(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_bare_script_runs_through_uv_or_the_interpreter(tmp_path: Path) -> None:
    """uv where uv.lock lies beside it and uv is there; both are announced, and arguments stay."""
    (tmp_path / "t.py").write_text("")
    tool(tmp_path / "bin/python")
    environ = {"PATH": str(tmp_path / "bin")}
    command = complete_bare_script(parse_command("A=1 nice -n 2 t.py --a", tmp_path), tmp_path, environ)
    assert command.argv == ("nice", "-n", "2", "python", "t.py", "--a") and command.script_args == ("--a",)
    (tmp_path / "uv.lock").write_text("")
    assert "uv is not on PATH" in complete_bare_script(
        parse_command("t.py", tmp_path), tmp_path, environ
    ).findings[0].message
    tool(tmp_path / "bin/uv")
    command = complete_bare_script(parse_command("t.py --a", tmp_path), tmp_path, environ)
    assert command.argv == ("uv", "run", "t.py", "--a") and "uv.lock" in command.findings[0].message
    assert complete_bare_script(parse_command("python t.py", tmp_path), tmp_path, environ).argv == ("python", "t.py")
    tool(tmp_path / "t.py")
    assert complete_bare_script(parse_command("./t.py", tmp_path), tmp_path, environ).argv == ("./t.py",)


def test_python_of_an_environment_manager(tmp_path: Path) -> None:
    """conda's prefix, pixi's environment, an in-project .venv, uv's named one; else only the manager knows."""
    for place in ("env", ".pixi/envs/gpu", ".venv"):
        tool(tmp_path / place / "bin/python")

    def python(text: str) -> Path | None:
        return interpreter_path(parse_command(text, tmp_path), tmp_path, {"PATH": "/usr/bin:/bin"})

    assert python("conda run -p env python t.py") == tmp_path / "env/bin/python"
    assert python("pixi run -e gpu python t.py") == tmp_path / ".pixi/envs/gpu/bin/python"
    assert python("poetry run python t.py") == tmp_path / ".venv/bin/python"
    assert python("conda run -n name python t.py") is None
    (tmp_path / "pyproject.toml").touch()
    assert python("uv run t.py") == python("uv run python t.py") == tmp_path / ".venv/bin/python"
    assert python("uv run --no-project --python env/bin/python t.py") == tmp_path / "env/bin/python"
    for made in ("--python 3.11", "--python env/bin/python", "--no-project --python env/bin/python --with x"):
        assert python(f"uv run {made} t.py") is None
    (tmp_path / "t.py").write_text("# /// script\n# dependencies = []\n# ///\n")
    assert python("uv run t.py") is None


# Validation


def findings(text: str, workdir: Path) -> list[tuple[str, bool]]:
    found = validate(parse_command(text, workdir), workdir, dict(os.environ))
    return [(finding.code, finding.refuses) for finding in found]


def messages(text: str, workdir: Path) -> str:
    return "\n".join(finding.message for finding in validate(parse_command(text, workdir), workdir, dict(os.environ)))


def test_module_is_looked_up_by_the_commands_own_interpreter(tmp_path: Path) -> None:
    """Installed, in the project, or not there; the package itself is never run."""
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg/__init__.py").write_text("raise SystemExit('ran')")
    (tmp_path / "pkg/bad.py").write_text("x = (")
    (tmp_path / "pkg/good.py").write_text("")
    assert findings(f"{PYTHON} -m json.tool", tmp_path) == []
    assert findings(f"{PYTHON} -m pkg.good", tmp_path) == []
    assert findings(f"{PYTHON} -m no_such_package.train", tmp_path) == [("entrypoint-missing", True)]
    assert findings(f"{PYTHON} -m json.no_such", tmp_path) == [("entrypoint-missing", True)]
    assert findings(f"{PYTHON} -m pkg.bad", tmp_path) == [("command-refused", True)]
    assert sys.executable in messages(f"{PYTHON} -m no_such_package.train", tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("c.yaml", "a: [1\nb: 2\n", "line 2, column 2"),
        ("c.json", '{"a": 1,}', "line 1, column"),
        ("c.toml", "a = \n", "line 1, column 5"),
        ("c.yaml", None, "does not exist"),
    ],
)
@pytest.mark.parametrize("form", ["--config {}", "--config={}", "--cfg_file {}", "--deepspeed {}"])
def test_config_that_cannot_be_read_is_refused(
    tmp_path: Path, name: str, text: str | None, says: str, form: str
) -> None:
    """With line and column, by the suffix."""
    (tmp_path / "t.py").write_text("")
    if text is not None:
        (tmp_path / name).write_text(text)
    assert findings(f"{PYTHON} t.py {form.format(name)}", tmp_path) == [("command-refused", True)]
    assert says in messages(f"{PYTHON} t.py {form.format(name)}", tmp_path)


@pytest.mark.parametrize(
    "args",
    ["--data gone.json", "--model_config gone.json", "--save-config gone.yaml", "--config s3://b/gone.yaml",
     "--config-name gone.yaml", "--config gone", "x.jsonl gone.json"],
)
def test_files_that_are_no_config_of_the_training_are_left_alone(tmp_path: Path, args: str) -> None:
    """Data, outputs, remote files and Hydra's names."""
    (tmp_path / "t.py").write_text("")
    assert findings(f"{PYTHON} t.py {args}", tmp_path) == []


def test_what_another_machine_may_have_is_only_noted(tmp_path: Path) -> None:
    """Behind srun or mpirun the paths may lie on another file system."""
    tool(tmp_path / "srun")
    found = findings(f"./srun -n1 {PYTHON} gone.py --config gone.yaml", tmp_path)
    assert found == [("entrypoint-elsewhere", False), ("config-elsewhere", False)]


def test_config_of_the_launcher_is_checked(tmp_path: Path) -> None:
    """accelerate's own file."""
    tool(tmp_path / "accelerate")
    (tmp_path / "t.py").write_text("")
    (tmp_path / "c.yaml").write_text("a: [\n")
    found = findings("./accelerate launch --config_file c.yaml t.py", tmp_path)
    assert found == [("command-refused", True)]


@pytest.mark.parametrize(
    "text", ["trl env", "llamafactory-cli webui", "axolotl preprocess", "swift deploy", "accelerate test"]
)
def test_commands_that_do_not_train_are_refused_by_name(tmp_path: Path, text: str) -> None:
    """What the command does instead is said."""
    finding = validate(parse_command(text, tmp_path), tmp_path, dict(os.environ))[0]
    assert finding.refuses and f"`{text}`" in finding.message and "does not train" in finding.message


def test_program_behind_a_launcher_is_looked_for(tmp_path: Path) -> None:
    """Each program of the command, except what an environment manager will provide."""
    (tmp_path / "t.py").write_text("")
    assert ("command-not-found", True) in findings("nice no-such-launcher t.py", tmp_path)
    tool(tmp_path / "conda")
    assert findings("./conda run -n e no-such-python t.py", tmp_path) == []
