"""Constructions of which one or two numbers are not told: those of the checkpoint's own shapes are tried.

A size of a vocabulary that the program reads from its data is one. Whatever is tried, a class counts only where all
keys and shapes fit; and nothing is held against a checkpoint by what was tried here.
"""

# mypy: ignore-errors

import inspect
import itertools
import re
import time

from _constructions import Construction, Unknown, calls_of, classes_of
from _keys import keys_in

MAX_HOLES = 2
MAX_NUMBERS = 24
SECONDS = 20.0
_HOLE = object()


def filled(sources, tables, options, state):
    """(Construction, its keys) one after the other, the program's own calls first; bounded in time."""
    numbers, until = numbers_of(state), time.monotonic() + SECONDS
    for kind, make, count in (*_open_calls(sources, tables, options), *_open_classes(sources)):
        for values in itertools.product(numbers, repeat=count):
            for made in _tried(kind, _filler(make, values), MAX_HOLES - count, numbers, until):
                if time.monotonic() > until:
                    return
                yield made


def numbers_of(state):
    """Sizes of the state's tensors, the most frequent first, then how many layers its names count, then 1 and 2."""
    sizes, layers = {}, {}
    for name, tensor in state.items():
        for size in tensor.shape:
            sizes[size] = sizes.get(size, 0) + 1
        for match in re.finditer(r"(?<=\.)\d+(?=\.)|(?<=_l)\d+", name):
            place = re.sub(r"\d+", "*", name[: match.start()])
            layers[place] = max(layers.get(place, 0), int(match[0]) + 1)
    found = [*sorted(sizes, key=sizes.get, reverse=True), *layers.values(), 1, 2]
    return list(dict.fromkeys(found))[:MAX_NUMBERS]


def _open_calls(sources, tables, options):
    """(class, make of values, how many) of calls that lack at most MAX_HOLES arguments, and of those that lack none,
    since what the class itself reads may be what is not told."""
    own = classes_of(sources)
    for reader, call, is_root in calls_of(sources, tables, options):
        kind = reader.kind(call.func)
        if kind not in own or not is_root:
            continue
        try:
            args = [_or_hole(reader, item) for item in call.args]
            kwargs = {item.arg: _or_hole(reader, item.value) for item in call.keywords}
        except Unknown:
            continue
        count = sum(value is _HOLE for value in (*args, *kwargs.values()))
        if count <= MAX_HOLES and None not in kwargs:
            yield kind, _maker(kind, args, kwargs), count


def _or_hole(reader, node):
    try:
        return reader.value(node)
    except Exception:
        return _HOLE


def _open_classes(sources):
    """The program's classes that take one or two arguments, and those that take none."""
    for kind in classes_of(sources):
        try:
            parameters = list(inspect.signature(kind.__init__).parameters.values())[1:]
        except (TypeError, ValueError):
            continue
        needed = [item for item in parameters if item.default is item.empty
                  and item.kind not in (item.VAR_POSITIONAL, item.VAR_KEYWORD)]
        if len(needed) <= MAX_HOLES:
            yield kind, _maker(kind, [], {item.name: _HOLE for item in needed}), len(needed)


def _maker(kind, args, kwargs):
    def make(values):
        rest = iter(values)
        given = [next(rest) if value is _HOLE else value for value in args]
        named = {name: next(rest) if value is _HOLE else value for name, value in kwargs.items()}
        return kind(*given, **named)

    return make


def _filler(make, values):
    return lambda: make(values)


def _tried(kind, make, left, numbers, until):
    """A construction, where it can be made; a name that its code lacks is given each of the numbers."""
    import torch

    try:
        with torch.device("meta"):
            keys = keys_in(make())
    except NameError as error:
        name, names = getattr(error, "name", None), _names_at(error)
        if not left or not name or name in names:
            return
        for number in numbers:
            if time.monotonic() > until:
                break
            names[name] = number
            yield from _tried(kind, make, left - 1, numbers, until)
        names.pop(name, None)
        return
    except BaseException:
        return
    yield Construction(kind=kind, make=make, where="with sizes of its own tensors"), keys


def _names_at(error):
    """The namespace of the code that lacks a name."""
    frame = error.__traceback__
    while frame.tb_next is not None:
        frame = frame.tb_next
    return frame.tb_frame.f_globals
