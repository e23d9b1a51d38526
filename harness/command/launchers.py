"""Words into launcher, entrypoint and arguments: what each launcher's options look like.

Tables of options are those of the launchers' own help: uv 0.8, torch 2.13, accelerate 1.14, deepspeed 0.18,
Slurm 22.05, Open MPI 5 and MPICH 4, conda 25, poetry 2, pixi 0.50, GNU coreutils 9.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from harness.command.model import Launcher
from harness.command.words import ASSIGNMENT

_PYTHON = re.compile(r"(python|pypy)[0-9.]*(w|t|d)?(\.exe)?$")
_SHELLS = ("bash", "sh", "zsh", "dash", "ksh")
ENVIRONMENT_MANAGERS = (
    *("uv", "poetry", "pixi", "conda", "mamba", "micromamba", "pdm", "pipenv", "rye", "hatch"),
)
"""Launchers that decide which Python and packages the program sees."""
DISTRIBUTED = ("torchrun", "accelerate", "deepspeed", "srun", "mpirun", "mpiexec")
REMOTE = ("srun", "mpirun", "mpiexec", "ssh", "docker", "podman", "apptainer", "singularity", "kubectl", "ray")
"""Launchers whose program may see another file system than this one."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Options of torchrun, `accelerate launch` and deepspeed that take no value; every other one without `=` takes one.
_TORCHRUN_SWITCHES = _words("standalone module no-python run-path use-env virtual-local-rank")
_ACCELERATE_SWITCHES = _words(
    "quiet cpu multi-gpu tpu use-mps-device use-deepspeed use-fsdp use-parallelism-config use-megatron-lm "
    "use-xpu module no-python tpu-cluster no-tpu-cluster tpu-use-cluster tpu-use-sudo debug "
    "enable-cpu-affinity same-network"
)
_DEEPSPEED_SWITCHES = _words(
    "module no-python no-local-rank no-ssh no-ssh-check force-multi save-pid elastic-training bind-cores-to-rank"
)
# Options of `uv run` that take a value; every other one takes none.
_UV_VALUES = _words(
    "-p -w -i -f -P -C --with --with-editable --with-requirements --extra --no-extra --group --no-group "
    "--only-group --python --project --directory --env-file --package --index --default-index --index-url "
    "--extra-index-url --find-links --config-file --cache-dir --config-setting --config-settings-package "
    "--upgrade-package --upgrade-group --reinstall-package --refresh-package --no-build-package "
    "--no-binary-package --no-build-isolation-package --index-strategy --keyring-provider --resolution "
    "--prerelease --fork-strategy --exclude-newer --exclude-newer-package --link-mode --color "
    "--allow-insecure-host --python-platform --no-editable-package --no-sources-package"
)
_SRUN_VALUES = (
    "-A -B -C -D -G -J -L -M -N -S -T -W -c -d -e -i -m -n -o -p -q -r -t -w -x --account --acctg-freq --bb "
    "--bbf --begin --chdir --cluster-constraint --clusters --comment --constraint --container --core-spec "
    "--container-image --container-mounts --container-name --container-workdir --cores-per-socket --cpu-bind "
    "--cpu-freq --cpus-per-gpu --cpus-per-task --deadline --delay-boot --dependency --distribution --epilog "
    "--error --exclude --export --export-file --extra-node-info --gid --gpu-bind --gpu-freq --gpus "
    "--gpus-per-node --gpus-per-socket --gpus-per-task --gres --gres-flags --het-group --hint --input "
    "--job-name --jobid --licenses --mail-type --mail-user --mem --mem-bind --mem-per-cpu --mem-per-gpu "
    "--mincpus --mpi --msg-timeout --network --nodefile --nodelist --nodes --ntasks --ntasks-per-core "
    "--ntasks-per-gpu --ntasks-per-node --ntasks-per-socket --open-mode --output --partition --power --prefer "
    "--priority --profile --prolog --qos --relative --reservation --signal --slurmd-debug --sockets-per-node "
    "--task-epilog --task-prolog --thread-spec --threads --threads-per-core --time --time-min --tmp --uid "
    "--wait --wckey"
)
_MPI_VALUES = (
    "-n -np -c -N -H -f -x -rf --n --np --host -host -hosts --hostfile -hostfile --machinefile -machinefile "
    "--wdir -wdir --wd -wd --path -path --prefix -prefix --map-by -map-by --bind-to -bind-to --rank-by -rank-by "
    "--rankfile -rankfile --timeout -timeout --output-filename -output-filename --app -app --tune -tune -ppn "
    "--ppn -perhost --report-uri --stdin -genvlist -envlist -iface -bootstrap --launcher -launcher -configfile "
    "--cpu-set --slot-list --personality --npernode -npernode --npersocket -npersocket --output --display"
)
_MPI_PAIRS = "--mca -mca --gmca -gmca --prtemca --pmixmca --omca -env -genv"


@dataclass(slots=True)
class Target:
    """What is known so far about the program that trains."""

    start: int
    """Index of the first word that is not understood yet."""
    directory: Path
    """Where relative paths of the program start."""
    entrypoint: Path | None = None
    module: str | None = None
    interpreter: str = ""
    args_start: int = 0
    shell_text: int | None = None
    """Index of the text that a shell is given by `-c`."""
    launchers: list[Launcher] = field(default_factory=list)
    alias: str = ""
    """The launcher that a module stands for: torchrun for `python -m torch.distributed.run`."""
    done: bool = False


_Step = Callable[[tuple[str, ...], Target], None]
"""Understands one program and its options."""


def find_target(argv: tuple[str, ...], directory: Path) -> Target:
    """The program that trains: every launcher before it is stepped over, with its own options."""
    target = Target(start=0, directory=directory)
    while not target.done:
        start = target.start
        if start >= len(argv):
            target.args_start, target.done = len(argv), True
            break
        name = Path(argv[start]).name
        step = _PROGRAMS.get(name)
        if step is None and _PYTHON.match(name):
            name, step = "python", _python
        (step or _program)(argv, target)
        stop = target.args_start if target.done else min(target.start, len(argv))
        target.launchers.append(Launcher(name=target.alias or name, start=start, stop=stop))
        target.alias = ""
    return target


def _program(argv: tuple[str, ...], target: Target) -> None:
    """A script that is run directly, or a console script."""
    word = argv[target.start]
    target.done, target.args_start = True, target.start + 1
    if word.endswith((".py", ".sh")) or ("/" in word and _has_shebang(target.directory / word, b"python")):
        target.entrypoint = target.directory / word


def _python(argv: tuple[str, ...], target: Target) -> None:
    target.interpreter = argv[target.start]
    index = target.start + 1
    while index < len(argv) and argv[index].startswith("-") and argv[index] != "-":
        word = argv[index]
        if word == "--":
            index += 1
            break
        cluster = (
            re.match(r"-[bBdEhiIOPqRsSuvVx?]*([cmWX])(.*)$", word, re.DOTALL) if word[1] != "-" else None
        )
        if cluster and cluster.group(1) in "cm":
            rest = cluster.group(2)
            value = rest or "".join(argv[index + 1 : index + 2])
            index += 1 if rest else 2
            target.done, target.args_start = True, min(index, len(argv))
            if cluster.group(1) == "m":
                _module(argv, target, value)
            return
        index += 2 if word == "--check-hash-based-pycs" or (cluster and not cluster.group(2)) else 1
    _script(argv, target, index)


def _module(argv: tuple[str, ...], target: Target, module: str) -> None:
    target.module = module
    alias, launcher = _LAUNCHER_MODULES.get(module, ("", None))
    if launcher is not None:
        target.module, target.done, target.alias = None, False, alias
        target.start = target.args_start - 1
        launcher(argv, target)


def _profiler(argv: tuple[str, ...], target: Target) -> None:
    """`python -m cProfile [-o FILE] [-s KEY] (-m MODULE | SCRIPT)`."""
    index = target.start + 1
    while index < len(argv) and argv[index].startswith("-") and argv[index] != "-m":
        index += 2 if argv[index] in ("-o", "-s", "--outfile", "--sort") else 1
    if argv[index : index + 1] == ("-m",):
        target.done, target.args_start = True, min(index + 2, len(argv))
        _module(argv, target, "".join(argv[index + 1 : index + 2]))
    else:
        _script(argv, target, index)


def _script(argv: tuple[str, ...], target: Target, index: int) -> None:
    target.done, target.args_start = True, min(index + 1, len(argv))
    if index < len(argv) and argv[index] != "-":
        path = target.directory / argv[index]
        target.entrypoint = path / "__main__.py" if path.is_dir() else path


def _shell(argv: tuple[str, ...], target: Target) -> None:
    """`bash [options] run.sh`, or `-c TEXT [NAME ARGUMENT...]`."""
    index = target.start + 1
    while index < len(argv) and argv[index][:1] in "-+" and argv[index] not in ("-", "--"):
        if "c" in argv[index] and not argv[index].startswith("--"):
            _shell_text(argv, target, index + 1)
            return
        index += 2 if argv[index] in ("-o", "+o", "-O", "+O", "--rcfile", "--init-file") else 1
    _script(argv, target, index + (argv[index : index + 1] == ("--",)))


def _shell_text(argv: tuple[str, ...], target: Target, index: int) -> None:
    while index < len(argv) and argv[index][:1] == "-":
        index += 1
    target.done, target.args_start = True, min(index + 2, len(argv))
    target.shell_text = index if index < len(argv) else None


def _uv(argv: tuple[str, ...], target: Target) -> None:
    """`uv [options] run [options] [--] SCRIPT|COMMAND`."""
    index, ran, as_module, as_script = target.start + 1, False, False, False
    while index < len(argv):
        word = argv[index]
        if word == "--":
            index += 1
            break
        if not word.startswith("-") or word == "-":
            if ran or word != "run":
                break
            ran = True
        name, equals, value = word.partition("=")
        as_module |= word in ("-m", "--module")
        as_script |= word in ("-s", "--script", "--gui-script")
        if name in _UV_VALUES and not equals:
            index += 1
            value = "".join(argv[index : index + 1])
        if name == "--directory" and value:
            target.directory = target.directory / value
        index += 1
    if not ran:
        target.done, target.args_start = True, target.start + 1
    elif as_module:
        target.module = "".join(argv[index : index + 1])
        target.done, target.args_start = True, min(index + 1, len(argv))
    elif as_script or argv[index : index + 1] == ("-",) or "".join(argv[index : index + 1]).endswith(".py"):
        _script(argv, target, index)
    else:
        target.start = index


def _torchrun(argv: tuple[str, ...], target: Target) -> None:
    _launched(argv, target, *_skip_options(argv, target.start + 1, _TORCHRUN_SWITCHES))


def _deepspeed(argv: tuple[str, ...], target: Target) -> None:
    _launched(argv, target, *_skip_options(argv, target.start + 1, _DEEPSPEED_SWITCHES))


def _accelerate(argv: tuple[str, ...], target: Target) -> None:
    if argv[target.start + 1 : target.start + 2] != ("launch",):
        _program(argv, target)
        return
    target.start += 1
    _accelerate_options(argv, target)


def _accelerate_options(argv: tuple[str, ...], target: Target) -> None:
    _launched(argv, target, *_skip_options(argv, target.start + 1, _ACCELERATE_SWITCHES))


def _skip_options(argv: tuple[str, ...], index: int, switches: frozenset[str]) -> tuple[int, set[str]]:
    """Index of the first positional word, and the switches before it. A `.py` file is no option's value."""
    given: set[str] = set()
    while index < len(argv) and argv[index].startswith("-") and argv[index] != "-":
        name = argv[index].lstrip("-").replace("_", "-")
        short = {"m": "module", "q": "quiet"}.get(name, name)
        given.add(short)
        following = "".join(argv[index + 1 : index + 2])
        takes_value = "=" not in name and short not in switches and not following.endswith(".py")
        index += 2 if takes_value else 1
    return min(index, len(argv)), given


def _launched(argv: tuple[str, ...], target: Target, index: int, switches: set[str]) -> None:
    if "no-python" in switches:
        target.start = index
    elif "module" in switches:
        target.module = "".join(argv[index : index + 1])
        target.done, target.args_start = True, min(index + 1, len(argv))
    else:
        _script(argv, target, index)


def _wrapper(
    valued: str = "",
    positional: int = 0,
    *,
    pairs: str = "",
    chdir: str = "",
    subcommand: str = "",
    assignments: bool = False,
) -> _Step:
    """A launcher with options and positional words before the program.

    Options in `valued` take a value, those in `pairs` two, those in `chdir` the directory to start in. With a
    `subcommand` it is a launcher only by that word (`conda run`).
    """
    with_value, with_two, directories = _words(f"{valued} {chdir}"), _words(pairs), _words(chdir)

    def step(argv: tuple[str, ...], target: Target) -> None:
        index, missing, directory = target.start + 1, bool(subcommand), target.directory
        while index < len(argv):
            word = argv[index]
            if missing and word == subcommand:
                missing = False
            elif not word.startswith("-"):
                break
            elif word == "--":
                index += 1
                break
            name, equals, value = word.partition("=")
            index += 1
            if name in with_two:
                index += 2
            elif name in with_value and not equals:
                value = "".join(argv[index : index + 1])
                index += 1
            if name in directories and value:
                directory = directory / value
        if missing:
            _program(argv, target)
            return
        while assignments and index < len(argv) and ASSIGNMENT.match(argv[index]):
            index += 1
        target.start, target.directory = index + positional, directory

    return step


_CONDA = _wrapper("-n --name -p --prefix -e --env", subcommand="run", chdir="--cwd")
_MPI = _wrapper(_MPI_VALUES, pairs=_MPI_PAIRS, chdir="--wdir -wdir --wd -wd")
_PROGRAMS: dict[str, _Step] = {
    **dict.fromkeys(_SHELLS, _shell),
    **dict.fromkeys(("conda", "mamba", "micromamba"), _CONDA),
    **dict.fromkeys(("mpirun", "mpiexec", "orterun", "mpiexec.hydra"), _MPI),
    "uv": _uv,
    "torchrun": _torchrun,
    "accelerate": _accelerate,
    "accelerate-launch": _accelerate_options,
    "deepspeed": _deepspeed,
    "srun": _wrapper(_SRUN_VALUES, chdir="-D --chdir"),
    "poetry": _wrapper("-P --project", subcommand="run", chdir="-C --directory"),
    "pixi": _wrapper("-e --environment --manifest-path -w --workspace --color", subcommand="run"),
    "pdm": _wrapper("-p --project --env-file", subcommand="run"),
    "pipenv": _wrapper("--python --pypi-mirror", subcommand="run"),
    "rye": _wrapper("--pyproject", subcommand="run"),
    "env": _wrapper("-u --unset", chdir="-C --chdir", assignments=True),
    "nohup": _wrapper(),
    "setsid": _wrapper(),
    "time": _wrapper("-o -f --output --format"),
    "nice": _wrapper("-n --adjustment"),
    "ionice": _wrapper("-c -n --class --classdata"),
    "stdbuf": _wrapper("-i -o -e --input --output --error"),
    "timeout": _wrapper("-s -k --signal --kill-after", positional=1),
    "numactl": _wrapper("-i -p -m -N -C --interleave --preferred --membind --cpunodebind --physcpubind"),
    "taskset": _wrapper(positional=1),
    "xvfb-run": _wrapper("-e -f -n -p -s -w --error-file --auth-file --server-num --server-args --wait"),
}
_LAUNCHER_MODULES: dict[str, tuple[str, _Step]] = {
    "torch.distributed.run": ("torchrun", _torchrun),
    "torch.distributed.launch": ("torchrun", _torchrun),
    "accelerate.commands.launch": ("accelerate", _accelerate_options),
    "accelerate.commands.accelerate_cli": ("accelerate", _accelerate),
    "deepspeed.launcher.runner": ("deepspeed", _deepspeed),
    "cProfile": ("", _profiler),
}


def _has_shebang(path: Path, needle: bytes) -> bool:
    try:
        with path.open("rb") as stream:
            first = stream.readline(256)
    except OSError:
        return False
    return first.startswith(b"#!") and needle in first
