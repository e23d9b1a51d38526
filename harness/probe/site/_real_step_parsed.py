"""What the program's own parser made of the settings that were overridden: argparse, absl's flags and click.

REAL_STEP_PROBE_ASKED names them, with commas: a flag, a plain name, or `file:NAME` for a config file that the harness
wrote. Of nothing else a value is read. A process whose parser knows one writes `HOST-PID.parsed.json` beside the
probe's file, when it parses and once more at its first optimizer step, where the program may have put another value in
its place. What the fields mean is written in `harness/probe/parsed.py`.

Standard library only, Python 3.8 and later. No exception leaves a hook.
"""

# mypy: ignore-errors
# ruff: noqa: PTH105, PTH110, PTH118, PTH119, PTH123

import enum
import functools
import os
import sys
import threading
import time
import weakref

FORMAT = 1
ENV_ASKED = "REAL_STEP_PROBE_ASKED"
MAX_NAMES = 64
MAX_PARSES = 64
MAX_TEXT = 200
MAX_ITEMS = 16
MAX_NOTES = 5
MISSING = object()


class Parse:
    """One setting as one parser returned it."""

    def __init__(self, name, parser, dest, value, given, raw=None, plain=False, later=None):
        self.name, self.parser, self.dest, self.given, self.plain = name, parser, dest[:MAX_TEXT], given, plain
        self.value, self.raw = encode(value), raw if raw is not None and is_short(raw) else None
        self.later = later
        """Gives its value now."""
        self.at_step = None

    def look(self):
        """Take down its value at the first step; what cannot be read then stays unknown."""
        value = self.later() if self.later is not None else MISSING
        if value is not MISSING:
            self.at_step = encode(value)

    def to_json(self):
        """Entry in `parses`."""
        names = ("name", "parser", "dest", "given", "raw", "plain", "value", "at_step")
        return {name: getattr(self, name) for name in names}


class Probe:
    """What was parsed in this process and in those that it was forked from."""

    def __init__(self, directory, started_at):
        self.directory = directory
        self.started_at = started_at
        self.asked = os.environ.get(ENV_ASKED, "").split(",")[:MAX_NAMES]
        self.parses = []
        self.path = self.pid = None
        self.inside = threading.local()
        self.stepped_in = None
        self.num_notes = 0
        sys._real_step_parsed = self

    def install(self, module):
        """Listen to the parser that a module defines."""
        if module.__name__ == "argparse":
            self._wrap(module.ArgumentParser, "parse_known_args", read_argparse)
        elif module.__name__ == "click.core":
            self._wrap(getattr(module, "Command", None) or module.BaseCommand, "parse_args", read_click)
        else:
            self._wrap(module.FlagValues, "__call__", read_absl)

    def _wrap(self, owner, name, read):
        probe, original = self, getattr(owner, name)

        @functools.wraps(original)
        def parsed(parser, *args, **kwargs):
            if getattr(probe.inside, "on", False):
                return original(parser, *args, **kwargs)
            probe.inside.on = True
            try:
                result = original(parser, *args, **kwargs)
            finally:
                probe.inside.on = False
            try:
                probe.add(read(probe.asked, parser, result, args, kwargs))
            except Exception as error:
                probe.note("parsed", error)
            return result

        setattr(owner, name, parsed)

    def add(self, parses):
        """Keep what a parser returned, and write it down."""
        if parses and len(self.parses) < MAX_PARSES:
            self.parses += parses
            self.write()

    def at_step(self):
        """An optimizer step was applied: once in each process, see what became of the values."""
        if self.stepped_in == os.getpid() or not self.parses:
            return
        self.stepped_in = os.getpid()
        try:
            for parse in self.parses:
                parse.look()
            self.write()
        except Exception as error:
            self.note("values at the first step", error)

    def write(self):
        """Replace the file of this process."""
        import json

        if self.pid != os.getpid():
            self.pid = os.getpid()
            self.path = free_path(self.directory, f"{host()}-{self.pid}")
        partial = f"{self.path}.partial"
        document = {
            "format": FORMAT, "pid": self.pid, "ppid": os.getppid(), "host": host(), "program": program(),
            "updated_at": time.time(), "stepped": self.stepped_in == self.pid,
            "parses": [parse.to_json() for parse in self.parses],
        }
        with open(partial, "w", encoding="utf-8") as file:
            json.dump(document, file)
        os.replace(partial, self.path)

    def note(self, where, error):
        """Leave a few failures behind in problems.log."""
        self.num_notes += 1
        if self.num_notes > MAX_NOTES:
            return
        try:
            with open(os.path.join(self.directory, "problems.log"), "a", encoding="utf-8") as log:
                log.write(f"pid {os.getpid()}: {where}: {repr(error)[:400]}\n")
        except Exception:
            pass


def read_argparse(asked, parser, result, args, kwargs):
    """Of a parser and its sub-parsers. Words that are no list cannot be looked at a second time."""
    namespace = result[0]
    words = args[0] if args else kwargs.get("args")
    words = sys.argv[1:] if words is None else words
    words = [word for word in words if isinstance(word, str)] if isinstance(words, (list, tuple)) else []
    options = options_of(parser, words)
    found = []
    for name in asked:
        if name.startswith("file:"):
            found += files_named(name, "argparse", getattr(namespace, "__dict__", {}).items())
            continue
        action = options.get(name) or next((one for one in options.values() if one.dest == plain(name)), None)
        dest = action.dest if action is not None else plain(name)
        value = getattr(namespace, dest, MISSING)
        if value is MISSING:
            continue
        given, raw = given_word(words, options, action) if action is not None else (False, None)
        is_plain = action is not None and type(action).__name__ == "_StoreAction" and action.nargs in (None, "?") \
            and action.type in (None, int, float, str, bool)
        found.append(Parse(name, "argparse", dest, value, given, raw, is_plain, later_of(namespace, dest)))
    return found


def options_of(parser, words):
    """{spelling: action} of a parser, and of those of its sub-parsers that were asked for."""
    found = dict(parser._option_string_actions)
    for action in parser._actions:
        choices = action.choices if isinstance(action.choices, dict) else {}
        for word, inner in choices.items():
            if word in words and hasattr(inner, "_option_string_actions"):
                found.update({key: one for key, one in options_of(inner, words).items() if key not in found})
    return found


def given_word(words, options, action):
    """Whether an option is among the words, and the last word that was its value."""
    given, raw = False, None
    for index, word in enumerate(words):
        if word == "--":
            break
        head, equals, tail = word.partition("=")
        if word.startswith("-") and options.get(head) is action:
            given = True
            raw = tail if equals else words[index + 1] if index + 1 < len(words) and action.nargs is None else None
    return given, raw


def later_of(namespace, dest):
    """What gives the value again, without keeping the namespace alive."""
    try:
        held = weakref.ref(namespace)
    except TypeError:
        return None

    def later():
        living = held()
        return MISSING if living is None else getattr(living, dest, MISSING)

    return later


def read_absl(asked, flags, result, args, kwargs):
    """Of absl's flags, whose values can be asked for at any time."""
    found = []
    values = {name: flags[name] for name in flags}
    for name in asked:
        if name.startswith("file:"):
            found += files_named(name, "absl", ((key, flag.value) for key, flag in values.items()))
            continue
        flag = values.get(name.lstrip("-")) or values.get(plain(name))
        if flag is not None:
            found.append(Parse(name, "absl", flag.name, flag.value, bool(flag.present),
                               later=functools.partial(getattr, flag, "value", MISSING)))
    return found


def read_click(asked, command, result, args, kwargs):
    """Of a click command, typer's too, whose values go to a function as arguments."""
    context = args[0] if args else kwargs["ctx"]
    found = []
    for name in asked:
        if name.startswith("file:"):
            found += files_named(name, "click", context.params.items())
            continue
        for param in command.params:
            if name in (*param.opts, *param.secondary_opts) or param.name == plain(name):
                source = context.get_parameter_source(param.name)
                found.append(Parse(name, "click", param.name, context.params.get(param.name),
                                   getattr(source, "name", "") == "COMMANDLINE"))
    return found


def files_named(name, parser, values):
    """The settings whose value is the path of a file of this name."""
    wanted = name[len("file:"):]
    return [Parse(name, parser, str(key), os.fspath(value), True) for key, value in values
            if isinstance(value, (str, os.PathLike)) and os.path.basename(os.fspath(value)) == wanted]


def encode(value, depth=1):
    """{"value": ...} of what JSON holds, {"object": class} of anything else."""
    if isinstance(value, enum.Enum):
        return encode(value.value)
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if type(value).__module__ == "torch" and type(value).__name__ in ("device", "dtype"):
        value = str(value)
    if value is None or isinstance(value, bool):
        return {"value": value}
    if isinstance(value, int) and abs(value) < 2**63:
        return {"value": int(value)}
    if isinstance(value, float):
        return {"value": float(value) if value - value == 0 else str(float(value))}
    if isinstance(value, str) and is_short(value):
        return {"value": str(value)}
    if isinstance(value, (list, tuple)) and len(value) <= MAX_ITEMS and depth:
        items = [encode(item, depth - 1) for item in value]
        if all("value" in item for item in items):
            return {"value": [item["value"] for item in items]}
    kind = type(value)
    return {"object": f"{kind.__module__}.{kind.__qualname__}"[:MAX_TEXT]}


def is_short(text):
    """Whether a text may be written down: short, printable, and no address that may hold a password or a signature."""
    return len(text) <= MAX_TEXT and text.isprintable() and not ("://" in text and set("@?") & set(text))


def plain(name):
    """A flag as the name that a program has for it."""
    return name.lstrip("-").replace("-", "_")


def program():
    """The module or the script that this process runs."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    name = spec.name if spec is not None else os.path.basename(getattr(main, "__file__", None) or "")
    return "".join(char if char.isprintable() else "?" for char in name)[:MAX_TEXT]


def host():
    """This machine's name, as in the names of the probe's files."""
    name = os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "")
    return "".join(char if char.isalnum() or char in "._" else "-" for char in name)[:100] or "host"


def free_path(directory, stem):
    """Path that no earlier process of this number has taken."""
    for index in range(1, 1000):
        path = os.path.join(directory, f"{stem}.parsed.json" if index == 1 else f"{stem}-{index}.parsed.json")
        if not os.path.exists(path):
            return path
    raise OSError(f"no free name for {stem}")
