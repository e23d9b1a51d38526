"""What the program's own parser made of the settings that were overridden: argparse, absl's flags, click and others.

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
import itertools
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
MAX_DEPTH = 4
MAX_FIELDS = 400
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
        owner_name, name, read = PARSERS[module.__name__]
        owner = getattr(module, owner_name) if owner_name else module
        parsed = self._listening(getattr(owner, name), read)
        is_static = isinstance(getattr(owner, "__dict__", {}).get(name), staticmethod)
        setattr(owner, name, staticmethod(parsed) if is_static else parsed)

    def _listening(self, original, read):
        """A parser that is heard, unless it was called by one of its kind, as for a sub-command."""
        probe = self

        @functools.wraps(original)
        def parsed(*args, **kwargs):
            inside = vars(probe.inside)
            if inside.get(read):
                return original(*args, **kwargs)
            inside[read] = True
            try:
                result = original(*args, **kwargs)
            finally:
                inside[read] = False
            try:
                probe.add(read(probe.asked, result, *args, **kwargs))
            except Exception as error:
                probe.note("parsed", error)
            return result

        return parsed

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


def read_argparse(asked, result, parser, args=None, namespace=None):
    """Of a parser and its sub-parsers. Words that are no list cannot be looked at a second time."""
    namespace, words = result[0], args
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


def read_absl(asked, result, flags, *args, **kwargs):
    """Of absl's flags, whose values can be asked for at any time."""
    found = []
    values = {name: flags[name] for name in flags}
    for name in asked:
        if name.startswith("file:"):
            found += files_named(name, "absl", ((key, flag.value) for key, flag in values.items()))
            continue
        flag = values.get(name.lstrip("-"), values.get(plain(name)))
        if flag is not None:
            found.append(Parse(name, "absl", flag.name, flag.value, bool(flag.present),
                               later=functools.partial(getattr, flag, "value", MISSING)))
    return found


def read_click(asked, result, command, ctx, *args, **kwargs):
    """Of a click command, typer's too, whose values go to a function as arguments."""
    context, found = ctx, []
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


def read_fire(asked, result, args, *more, **kwargs):
    """Of a function's keyword arguments, each still the word that was given."""
    values, found = dict(result[0]), []
    for name in asked:
        if name.startswith("file:"):
            found += files_named(name, "fire", values.items())
        elif plain(name) in values:
            word = values[plain(name)]
            found.append(Parse(name, "fire", plain(name), word, True, word))
    return found


def read_object(parser, asked, result, *args, **kwargs):
    """Of the nested config or object that was made of the words, where it has fields."""
    values, found = dict(flat(result)) if has_fields(result) else {}, []
    for name in asked:
        if name.startswith("file:"):
            found += files_named(name, parser, values.items())
        elif plain(name) in values:
            found.append(Parse(name, parser, plain(name), values[plain(name)], False))
    return found


def flat(value, above="", depth=MAX_DEPTH):
    """(dotted name, value) of the fields of nested mappings and objects."""
    inner = value.items() if hasattr(value, "items") else vars(value).items()
    for key, item in itertools.islice(list(inner), MAX_FIELDS):
        name = f"{above}{key}"
        if depth and has_fields(item):
            yield from flat(item, name + ".", depth - 1)
        else:
            yield name, item


def read_file(parser, asked, result, stream, *args, **kwargs):
    """Of the config file that the harness wrote, as it was read from an open file."""
    path = getattr(stream, "name", None)
    if not isinstance(path, str) or "file:" + os.path.basename(path) not in asked:
        return []
    return read_object(parser, [name for name in asked if not name.startswith("file:")], result)


def has_fields(value):
    """Whether a value is a mapping, or an object that is made of its fields."""
    return hasattr(value, "items") or hasattr(type(value), "__dataclass_fields__")


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


PARSERS = {
    "argparse": ("ArgumentParser", "parse_known_args", read_argparse),
    "absl.flags._flagvalues": ("FlagValues", "__call__", read_absl),
    "click.core": ("Command", "parse_args", read_click),
    "fire.core": ("", "_ParseKeywordArgs", read_fire),
    "json": ("", "load", functools.partial(read_file, "json")),
    "jsonargparse._core": ("ArgumentParser", "parse_args", functools.partial(read_object, "jsonargparse")),
    "omegaconf.omegaconf": ("OmegaConf", "from_dotlist", functools.partial(read_object, "omegaconf")),
    "typer._click.core": ("Command", "parse_args", read_click),
    "tomllib": ("", "load", functools.partial(read_file, "tomllib")),
    "tyro._cli": ("", "cli", functools.partial(read_object, "tyro")),
    "yaml": ("", "load", functools.partial(read_file, "yaml")),
}
"""{module: (class or "", function that parses, what reads its result)}; sitecustomize.py waits for these modules."""


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
