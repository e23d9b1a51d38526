"""Each override placed once, where the trainer reads it: a flag, a KEY=VALUE word, or a value of a config file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from harness.command.configs import ConfigRef, config_files
from harness.command.interpreter import child_environment
from harness.command.model import Finding, TrainingCommand
from harness.command.overrides import config_file, hydra, lightning_cli
from harness.command.overrides.arguments import Change, active_subcommand, new_position, positions, set_flag
from harness.command.overrides.conflicts import conflicts, is_deepspeed
from harness.command.overrides.document import Document, EditError, dotted
from harness.command.overrides.help_command import help_argv, help_commands
from harness.command.overrides.help_text import parse_help, run_help
from harness.command.overrides.lookup import OBSERVED, by_name, flag_for, observed, reachable, unique
from harness.command.overrides.model import (
    TEXT_BOOL,
    Flag,
    FlagTable,
    Override,
    OverrideRequest,
    OverrideResult,
)
from harness.command.overrides.notes import launcher_notes, launcher_owner
from harness.command.overrides.program import Program, read_program
from harness.command.overrides.surface import surface_of, with_words
from harness.command.overrides.synonyms import normal, setting_kind
from harness.command.overrides.unplaced import no_place
from harness.command.overrides.values import Typed, as_bool, read_value
from harness.record.files import write_text
from harness.record.reasons import Reason

PAIR_PROGRAMS = ("llamafactory-cli", "lmf")
"""Programs that take KEY=VALUE words over their config file and refuse a key that they do not know."""
CONFIG_MODE = 0o600


def apply_overrides(
    command: TrainingCommand,
    requests: Sequence[OverrideRequest],
    *,
    flag_table: FlagTable,
    workdir: Path,
    environ: Mapping[str, str],
    out_dir: Path,
    write: bool = True,
) -> OverrideResult:
    """The command with every request placed, or a refusing finding for each that could not be.

    Reads the program's source and config files; runs `--help` in a child where nothing else tells a flag; with
    `write`, puts a rewritten config into `out_dir`, unless something was refused. Raises OSError for that.
    """
    session = _Session(command, flag_table, workdir, environ, out_dir)
    for request in requests:
        session.place(request)
    result = session.result()
    if write and result.files and not any(finding.refuses for finding in result.findings):
        out_dir.mkdir(parents=True, exist_ok=True)
        for path, text in result.files.items():
            write_text(path, text, mode=CONFIG_MODE)
        result = replace(result, written=next(iter(result.files)))
    return result


class _Session:
    """The state while the requests are placed one after the other."""

    def __init__(
        self,
        command: TrainingCommand,
        table: FlagTable,
        workdir: Path,
        environ: Mapping[str, str],
        out_dir: Path,
    ) -> None:
        self.command = command
        self.table = table
        self.workdir = workdir
        self.environ = environ
        self.out_dir = out_dir
        self.surface = surface_of(command)
        self.words = self.surface.words
        self.files: dict[Path, str] = {}
        self.applied: dict[str, Override] = {}
        self.findings: list[Finding] = []
        self.unplaced: list[str] = []
        self._program: Program | None = None
        self._help: list[Flag] | None = None
        self._help_problem = ""

    @property
    def program(self) -> Program:
        """What the source tells, read when first needed."""
        if self._program is None:
            self._program = read_program(self.surface.command, self.workdir)
        return self._program

    @property
    def directory(self) -> Path:
        """Where the trainer starts."""
        return self.surface.command.directory or self.workdir

    def result(self) -> OverrideResult:
        """The command as it is now."""
        command = self.command
        findings = list(self.findings)
        try:
            command = with_words(self.command, self.surface, self.words)
        except EditError as error:
            keys = ", ".join(self.applied)
            findings.append(_refusal(f"--hp {keys}: {error}", error.remedy))
        findings += conflicts(command, self.workdir, self.files)
        return OverrideResult(
            command=command,
            applied=tuple(self.applied.values()),
            findings=tuple(dict.fromkeys(findings)),
            unplaced=tuple(self.unplaced),
            files=self.files,
        )

    def place(self, request: OverrideRequest) -> None:
        """One request; what is wrong with it becomes a finding."""
        try:
            if self.surface.refusal:
                raise EditError(f"cannot be given: {self.surface.refusal}")
            placed = self._place(request, read_value(request.value))
            if placed is None:
                raise self._unknown(request)
        except EditError as error:
            if request.optional:
                self.unplaced.append(request.key)
            else:
                message = f"--hp {request.key}={request.value}: {request.key} {error}"
                self.findings.append(_refusal(message, error.remedy))
            return
        self.applied[request.key] = placed

    def _place(self, request: OverrideRequest, value: Typed) -> Override | None:
        if request.flag is not None:
            flag = next((flag for flag in self._flags() if request.flag in flag.names), None)
            return self._as_flag(request, value, flag or Flag(names=(request.flag,), place="--hp-flag"))
        if self._speaks_hydra():
            return self._as_hydra(request, value)
        if self.program.pairs or self.table.pairs or self._is_pair_program():
            flag = flag_for(request.key, self.program.flags, other_names=False)
            return self._as_flag(request, value, flag) if flag else self._as_pair(request, value)
        if self._reads_one_config_only():
            return self._in_config(request, value, exact=True) or self._in_config(request, value, exact=False)
        if any(normal(request.key).startswith(f"{name}.") for name in self.program.config_flags):
            return self._as_flag(request, value, Flag(names=(f"--{request.key}",), place="an absl config flag"))
        flags = self._flags()
        flag = flag_for(request.key, flags, other_names=False)
        if flag is not None and not self._stands_in_config(flag):
            return self._as_flag(request, value, flag)
        if (placed := self._in_config(request, value, exact=True)) is not None:
            return placed
        flag = flag_for(request.key, flags, other_names=True)
        if flag is not None and not self._stands_in_config(flag):
            return self._as_flag(request, value, flag)
        if (placed := self._in_config(request, value, exact=False)) is not None:
            return placed
        shown = self._help_flags()
        for other_names in (False, True):
            if (flag := flag_for(request.key, shown, other_names=other_names)) is not None:
                return self._as_flag(request, value, flag)
        for exact in (True, False):
            if (placed := self._in_config(request, value, exact=exact, deepspeed=True)) is not None:
                return placed
        return None

    # Flags

    def _flags(self) -> list[Flag]:
        """Every flag that is known without running anything, as far as the command's own words reach it."""
        known: list[Flag] = list(self.program.flags)
        if self._table_counts():
            known += self.table.flags
        if self.program.lightning:
            documents = [document for _, document in self._documents()]
            known += lightning_cli.lightning_flags(self.program, documents)
        known = unique(known)
        words = (*self.surface.before, *self.words)
        known = reachable(known, words, active_subcommand(words, known))
        return known + observed(words, known)

    def _table_counts(self) -> bool:
        """An adapter's table is of use where its trainer's own parser reads the command line."""
        program = self.program
        return not program.read or program.from_dataclasses or program.lightning

    def _stands_in_config(self, flag: Flag) -> bool:
        """Whether a setting of the trainer, one among hundreds that are flags, is given by the config file alone."""
        if flag not in self.table.flags or positions(self.words, flag):
            return False
        return any(
            config_file.exact_paths(document, name)
            for config, document in self._documents() if not is_deepspeed(config, document)
            for name in flag.names
        )

    def _as_flag(self, request: OverrideRequest, value: Typed, flag: Flag) -> Override:
        self._not_overruled(flag)
        known = self._flags()
        change = set_flag(
            self.words,
            flag,
            value,
            at=self._new_position(flag, known),
            others=[item for item in known if item.place != OBSERVED],
            abbreviates=self.program.abbreviates,
            ignore_before=lightning_cli.last_config(self.words) if self.program.lightning else 0,
        )
        self.words = change.words
        self._note_flag(request, flag)
        how = f"injected as {change.written or flag.names[0]}"
        if change.before and change.before != change.written:
            how += f", was {change.before}"
        if flag.kind == TEXT_BOOL and not as_bool(value):
            how += ", as type=bool takes any other text for true"
        kind = flag.setting or setting_kind(flag.names[0])
        return Override(key=request.key, value=request.value, how=how, kind=kind, place=flag.names[0])

    def _new_position(self, flag: Flag, known: list[Flag]) -> int:
        """Where a new flag goes; the words that a shell script puts before its own arguments count, too."""
        fixed = len(self.surface.before)
        words = (*self.surface.before, *self.words)
        at = new_position(words, flag, active_subcommand(words, known))
        if at < fixed:
            raise EditError(f"is {flag.names[0]}, which must come earlier in the line {self.surface.place}")
        return at - fixed

    def _not_overruled(self, flag: Flag) -> None:
        if positions(self.surface.overruled_by, flag):
            raise EditError(
                f"is {flag.names[0]}, which {self.surface.place} gives again after \"$@\"; change it there"
            )

    def _note_flag(self, request: OverrideRequest, flag: Flag) -> None:
        self.findings += launcher_notes(self.command, flag)
        for config, document in self._documents():
            for path in config_file.exact_paths(document, request.key) if not self.program.lightning else ():
                message = (
                    f"{config.given} holds {'.'.join(map(str, path))}: {document.leaves[path].text} too; "
                    f"{flag.names[0]} is taken to win over it"
                )
                self.findings.append(Finding(code="config-has-it-too", message=message, refuses=False))

    def _help_flags(self) -> list[Flag]:
        if self._help is None:
            self._help = []
            words = (*self.surface.before, *self.words)
            commands = help_commands(self.surface.command, self.program, words)
            argv = self.table.help_argv or help_argv(
                self.surface.command, self.program, commands, self.workdir, self.environ
            )
            if argv:
                child = child_environment(self.command, self.environ)
                output = run_help(argv, self.directory, child)
                self._help_problem = output.problem
                self._help = parse_help(output.text, f"`{' '.join(argv[-3:])}`")
                self._help = [replace(flag, subcommand=commands) for flag in self._help]
        return self._help

    # KEY=VALUE words

    def _speaks_hydra(self) -> bool:
        if self.program.hydra is not None:
            return True
        if self.program.read or self.table.flags or self.table.pairs or self._is_pair_program():
            return False
        return bool(hydra.overrides_in(self.words)) and not observed(
            tuple(word for word in self.words if word not in ("-m", "--multirun")), ()
        )

    def _is_pair_program(self) -> bool:
        return self.surface.command.launched_by(*PAIR_PROGRAMS) is not None

    def _as_hydra(self, request: OverrideRequest, value: Typed) -> Override:
        tree = hydra.compose(self.program.hydra, self.words, self.directory)
        key, prefix, note = hydra.resolve_key(request.key, self.words, tree)
        self._pair_not_overruled(key)
        change = hydra.set_pair(self.words, key, value, prefix)
        self.words = change.words
        if note:
            self.findings.append(Finding(code="hydra-key", message=f"--hp {request.key}: {note}", refuses=False))
        return _pair_override(request, key, change)

    def _as_pair(self, request: OverrideRequest, value: Typed) -> Override | None:
        keys = {name for _, _, name in hydra.overrides_in(self.words)}
        flags = [Flag(names=(name,)) for name in sorted(keys)] + list(self.table.flags)
        documents = self._documents()
        for _, document in documents:
            flags += [Flag(names=(dotted(path),)) for path in document.leaves]
        flags = unique(flags)
        exact = [flag for flag in flags if by_name(flag, request.key)]
        flag = exact[0] if exact else flag_for(request.key, flags, other_names=True)
        strict = self.table.pairs or self._is_pair_program()
        if flag is None and not strict:
            return None
        key = flag.names[0].lstrip("-") if flag else request.key
        self._pair_not_overruled(key)
        change = hydra.set_pair(self.words, key, value, "", plain=True)
        self.words = change.words
        return _pair_override(request, key, change)

    def _pair_not_overruled(self, key: str) -> None:
        if any(name == key for _, _, name in hydra.overrides_in(self.surface.overruled_by)):
            raise EditError(f"is given again by {self.surface.place} after \"$@\"; change it there")

    # Config files

    def _configs(self) -> tuple[ConfigRef, ...]:
        seen = replace(self.surface.command, argv=self.words, script_args=self.words)
        found = config_files(seen, self.workdir)
        return found or config_file.default_config(self.program.flags, self.directory)

    def _documents(self) -> list[tuple[ConfigRef, Document]]:
        return config_file.documents(self._configs(), self.files)

    def _reads_one_config_only(self) -> bool:
        """HfArgumentParser reads a file only where it is the one argument."""
        configs = self._configs()
        alone = len(self.words) == 1 and len(configs) == 1 and configs[0].index == 0
        return alone and self.program.from_dataclasses

    def _in_config(
        self, request: OverrideRequest, value: Typed, *, exact: bool, deepspeed: bool = False
    ) -> Override | None:
        edit = config_file.edit(
            self._documents(), request.key, value,
            exact=exact, deepspeed=deepspeed, out_dir=self.out_dir, files=self.files,
        )
        if edit is None:
            return None
        self.files[edit.path] = edit.text
        if edit.config.index >= 0:
            word = self.words[edit.config.index]
            new = str(edit.path) if word == edit.config.given else f"{edit.config.flag}={edit.path}"
            self.words = (*self.words[: edit.config.index], new, *self.words[edit.config.index + 1 :])
        else:
            end = new_position(self.words, Flag(names=(edit.config.flag,)), ())
            self.words = (*self.words[:end], edit.config.flag, str(edit.path), *self.words[end:])
        self.findings += edit.notes
        return Override(
            key=request.key,
            value=request.value,
            how=edit.how,
            kind=setting_kind(edit.key),
            place=f"{edit.path.name}:{edit.key}",
        )

    # What is not known

    def _unknown(self, request: OverrideRequest) -> EditError:
        """Why a key has no place, what is near it, and the exact words that give it one."""
        key = request.key
        owner = launcher_owner(self.command, key)
        if owner:
            return EditError(f"is an option of {owner}, which is never changed, and the script has none of this name")
        flags = {normal(name): name for flag in (*self._flags(), *self._help_flags()) for name in flag.names}
        values = {
            normal(dotted(path)): (dotted(path), config.given)
            for config, document in self._documents() for path, leaf in document.leaves.items() if leaf.type != "dict"
        }
        why = "no option or config value of this name is known"
        if self.program.read and not self.program.reads_options and not flags and not values:
            why = "its program reads no options from the command line, and the command names no config file"
        elif self._help_problem:
            why += f" ({self._help_problem})"
        return no_place(request, why, flags, values)


def _pair_override(request: OverrideRequest, key: str, change: Change) -> Override:
    how = f"injected as {change.written}"
    if change.before and change.before != change.written:
        how += f", was {change.before}"
    return Override(key=request.key, value=request.value, how=how, kind=setting_kind(key), place=f"{key}=")


def _refusal(message: str, remedy: str = "") -> Finding:
    return Finding(code=Reason.OVERRIDE_NOT_PLACED.value, message=message, refuses=True, remedy=remedy)
