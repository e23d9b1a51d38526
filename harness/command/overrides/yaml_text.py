"""YAML with the place of every value, aliases and merges resolved.

The text is read by its parse events, so that comments, order, indentation, quotes, line ends and the spelling
of every other number stay as they are, byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from harness.command.overrides.document import EditError, KeyPath, Leaf, dotted, same_but
from harness.command.overrides.values import YAML11_FLOAT, Typed, read_value, yaml_string, yaml_text

_DECORATION = re.compile(r"(?:[&!][^\s,\[\]{}]*[ \t]*(?:\r?\n[ \t]*)?)+")
_SEXAGESIMAL = re.compile(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?$")
_RADIX = re.compile(r"[-+]?0(x[0-9a-fA-F_]+|b[01_]+|o[0-7_]+)$")
_BOOLS = frozenset(("true", "false", "yes", "no", "on", "off"))
Edit = tuple[int, int, str]


@dataclass(slots=True)
class _Node:
    kind: str
    """scalar, map, seq or alias."""
    start: int
    stop: int
    column: int = 0
    line: int = 0
    value: str = ""
    style: str | None = None
    tag: str | None = None
    anchor: str | None = None
    flow: bool = False
    pairs: list[tuple[_Node, _Node]] = field(default_factory=list)
    items: list[_Node] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Place:
    """How a path is reached."""

    node: _Node
    """The value's node, aliases resolved."""
    written: _Node
    """The node in the text: the alias itself where there is one."""
    merged_into: _Node | None = None
    """The mapping that inherits this value by `<<`."""
    borrowed: str = ""
    """The path of a mapping above it that is an alias."""


class YamlDocument:
    """The first document of a YAML text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._leaves: dict[KeyPath, Leaf] = {}
        self._anchors: dict[str, _Node] = {}
        self._aliases: list[_Node] = []
        self._places: dict[KeyPath, _Place] = {}
        root = self._read()
        if root is not None:
            self._walk(_Place(root, root), (), 0)

    @property
    def leaves(self) -> dict[KeyPath, Leaf]:
        """Every value, tables and lists too, in the order of the file."""
        return self._leaves

    def replace(self, path: KeyPath, value: Typed) -> str:
        """The text with one value changed; an anchor's other users keep their value."""
        place = self._places[path]
        if place.borrowed:
            raise EditError(f"comes by the alias {place.borrowed}, which has other users; write it out there")
        if shared := self._inherited_by(path, place):
            raise EditError(f"also sets {', '.join(shared)} by a merge or alias; name {shared[0]} instead")
        edits = self._insert(path, place, value) if place.merged_into else self._change(place, value)
        text = self.text
        for start, stop, new in sorted(edits, reverse=True):
            text = text[:start] + new + text[stop:]
        try:
            after = YamlDocument(text).leaves
        except Exception as error:
            raise EditError("cannot be changed in this file; write the value by hand") from error
        if not same_but(self._leaves, after, path):
            raise EditError("cannot be changed alone in this file; write the value by hand")
        return text

    def _inherited_by(self, path: KeyPath, place: _Place) -> list[str]:
        """Paths that get their value from this one's place in the text."""
        node = place.node
        if place.merged_into or place.written.kind == "alias":
            return []
        return [
            dotted(other)
            for other, place in self._places.items()
            if other != path and place.node is node and (place.merged_into or place.borrowed)
        ]

    # Changing

    def _change(self, place: _Place, value: Typed) -> list[Edit]:
        node = place.written
        if node.kind == "alias":
            return [(node.start, node.stop, yaml_text(value, None))]
        edits: list[Edit] = []
        start = node.start
        if match := _DECORATION.match(self.text, start):
            start = min(match.end(), node.stop)
        if node.anchor and (users := [alias for alias in self._aliases if alias.value == node.anchor]):
            # The first other user becomes the anchor, with the value as it was.
            if node.kind != "scalar":
                raise EditError(f"is the anchor &{node.anchor} of other places; write it out there")
            edits.append((users[0].start, users[0].stop, self.text[node.start : node.stop].rstrip()))
            start = node.start
        elif node.tag and start > node.start:
            raise EditError(f"has the tag {node.tag}; write the value by hand")
        style = node.style if node.style in ("'", '"') and value.type == "str" else None
        new, old = yaml_text(value, style), self.text[start : node.stop]
        if node.kind in ("map", "seq") and not node.flow:
            raise EditError("is written over several lines; write the value by hand")
        if node.style in ("|", ">"):
            new += "\n" if old.endswith("\n") else ""
        elif start == node.stop and self.text[start - 1 : start] not in (" ", "\t"):
            new = " " + new
        return [*edits, (start, node.stop, new)]

    def _insert(self, path: KeyPath, place: _Place, value: Typed) -> list[Edit]:
        mapping = place.merged_into
        assert mapping is not None
        entry = f"{yaml_string(str(path[-1]), None)}: {yaml_text(value, None)}"
        if mapping.flow:
            at = self.text.index("{", mapping.start) + 1
            return [(at, at, f"{entry}, ")]
        first = mapping.pairs[0][0]
        indent = re.sub(r"[^ \t]", " ", self.text[first.start - first.column : first.start])
        ending = "\r\n" if "\r\n" in self.text else "\n"
        return [(first.start, first.start, f"{entry}{ending}{indent}")]

    # Reading

    def _read(self) -> _Node | None:
        from ruamel.yaml import YAML

        events: Iterator[Any] = iter(list(YAML(typ="safe", pure=True).parse(self.text)))
        documents = []
        for event in events:
            if type(event).__name__ == "DocumentStartEvent":
                documents.append(self._node(next(events), events))
        if len(documents) > 1:
            raise EditError("is in a file of several YAML documents; write the value by hand")
        return documents[0] if documents else None

    def _node(self, event: Any, events: Iterator[Any]) -> _Node:
        kind = type(event).__name__
        mark, end = event.start_mark, event.end_mark
        node = _Node("scalar", mark.index, end.index, column=mark.column, line=mark.line + 1)
        node.anchor, tag = getattr(event, "anchor", None), getattr(event, "tag", None)
        node.tag = str(tag) if tag else None
        if kind == "AliasEvent":
            node.kind, node.value, node.anchor = "alias", str(event.anchor), None
            self._aliases.append(node)
            return node
        if node.anchor:
            self._anchors[node.anchor] = node
        if kind == "ScalarEvent":
            node.value, node.style = event.value, event.style
            return node
        node.flow = bool(event.flow_style)
        node.kind = "map" if kind == "MappingStartEvent" else "seq"
        while True:
            inner = next(events)
            if type(inner).__name__ in ("MappingEndEvent", "SequenceEndEvent"):
                node.stop = inner.end_mark.index
                return node
            child = self._node(inner, events)
            if node.kind == "seq":
                node.items.append(child)
            else:
                value = self._node(next(events), events)
                if value.kind == "scalar" and value.start == value.stop and ":" in self.text[child.stop :]:
                    # The parser places a missing value at the next token.
                    value.start = value.stop = self.text.index(":", child.stop) + 1
                    value.line = child.line
                node.pairs.append((child, value))

    def _walk(self, place: _Place, path: KeyPath, depth: int) -> None:
        if depth > 50 or len(self._places) > 100_000:
            raise EditError("is in a file whose aliases nest too deep; write the value by hand")
        node, borrowed = place.node, place.borrowed
        while node.kind == "alias":
            if node.value not in self._anchors:
                raise EditError(f"is in a file with an unknown alias *{node.value}; mend it")
            node = self._anchors[node.value]
        if place.written.kind == "alias" and node.kind != "scalar":
            borrowed = borrowed or dotted(path)
        self._note(path, _Place(node, place.written, place.merged_into, place.borrowed))
        if node.kind == "seq":
            for index, item in enumerate(node.items):
                self._walk(_Place(item, item, None, borrowed), (*path, index), depth + 1)
        elif node.kind == "map":
            for name, (value, into) in self._entries(node, depth).items():
                self._walk(_Place(value, value, into, borrowed), (*path, name), depth + 1)

    def _entries(self, node: _Node, depth: int) -> dict[str, tuple[_Node, _Node | None]]:
        """Key -> (value, the mapping that inherits it); own keys win over merged ones, earlier merges over later."""
        if depth > 50:
            raise EditError("is in a file whose merges nest too deep; write the value by hand")
        own: dict[str, tuple[_Node, _Node | None]] = {}
        merged: dict[str, tuple[_Node, _Node | None]] = {}
        for key, value in node.pairs:
            if key.value == "<<" and key.style is None:
                for source in value.items if value.kind == "seq" else [value]:
                    target = self._anchors.get(source.value) if source.kind == "alias" else source
                    if target is not None and target.kind == "map":
                        for name, (inner, _) in self._entries(target, depth + 1).items():
                            merged.setdefault(name, (inner, node))
            elif key.kind == "scalar":
                own.pop(key.value, None)
                own[key.value] = (value, None)
        return {**{name: entry for name, entry in merged.items() if name not in own}, **own}

    def _note(self, path: KeyPath, place: _Place) -> None:
        if not path:
            return
        self._places[path] = place
        node = place.node
        kind = {"map": "dict", "seq": "list"}.get(node.kind) or scalar_type(node.value, node.style)
        quote = node.style if node.style in ("'", '"') else ""
        text = f"{quote}{node.value}{quote}" if node.kind == "scalar" else ""
        self._leaves[path] = Leaf(type=kind, text=text, line=place.written.line)


def scalar_type(text: str, style: str | None) -> str:
    """What a YAML scalar means to a person: `1e-4` is a number although YAML 1.1 has it as text."""
    if style is not None:
        inner = read_value(text)
        return "number-text" if inner.type == "float" and not inner.quoted else "str"
    if text == "" or text.lower() in ("~", "null"):
        return "null"
    if text.lower() in _BOOLS:
        return "bool"
    if _RADIX.match(text) or _SEXAGESIMAL.match(text):
        return "int"
    kind = read_value(text).type
    if kind == "float" and not YAML11_FLOAT.match(text):
        return "number-text"
    return kind if kind in ("int", "float") else "str"
