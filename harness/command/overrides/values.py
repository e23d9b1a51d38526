"""A value as typed, and how each kind of reader must find it written.

YAML 1.1 (PyYAML) reads a float only with a dot and a signed exponent: `1e-4` is text there, `1.0e-4` a number.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

_INT = re.compile(r"[-+]?[0-9][0-9_]*$")
_FLOAT = re.compile(r"[-+]?([0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)([eE][-+]?[0-9]+)?$")
YAML11_FLOAT = re.compile(
    r"[-+]?(?:[0-9][0-9_]*)\.[0-9_]*(?:[eE][-+][0-9]+)?$|[-+]?\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?$"
    r"|[-+]?\.(?:inf|Inf|INF)$|\.(?:nan|NaN|NAN)$"
)
YAML_WORDS = frozenset(("y", "n", "yes", "no", "on", "off", "true", "false", "null", "~", "none", "nan", "inf"))
_PLAIN = re.compile(r"[A-Za-z_/.][A-Za-z0-9_./+@-]*$")
TRUE, FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")


@dataclass(frozen=True, slots=True, kw_only=True)
class Typed:
    """A value with its type: int, float, bool, null, str, list or dict."""

    type: str
    data: Any
    """The value itself; for float the text, so that no digit changes."""
    text: str
    """As typed, outer blanks apart."""
    quoted: bool = False
    """Whether the user quoted it, which makes it text."""


def read_value(text: str) -> Typed:
    """The type of a typed value: numbers, true/false, null, JSON lists and objects, quoted text, else text."""
    value = text.strip()
    lower = value.lower()
    if _INT.match(value):
        return Typed(type="int", data=int(value.replace("_", "")), text=value)
    if _FLOAT.match(value):
        return Typed(type="float", data=value.replace("_", ""), text=value)
    if lower in ("true", "false"):
        return Typed(type="bool", data=lower == "true", text=value)
    if lower in ("null", "~"):
        return Typed(type="null", data=None, text=value)
    if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        return Typed(type="str", data=value[1:-1], text=value, quoted=True)
    if value[:1] in ("[", "{") and value[-1:] in ("]", "}"):
        data = _structure(value)
        if data is not None:
            return Typed(type="list" if isinstance(data, list) else "dict", data=data, text=value)
    return Typed(type="str", data=value, text=value)


def _structure(text: str) -> Any:
    """A JSON or YAML flow list or mapping; None for what is neither. Words without quotes are text."""
    try:
        return json.loads(text)
    except ValueError:
        pass
    if text[0] == "[" and text[-1] == "]" and not re.search(r"[\[\]{}\"':#]", text[1:-1]):
        parts = [part.strip() for part in text[1:-1].split(",")]
        return [plain_data(read_value(part)) for part in parts if part] if text[1:-1].strip() else []
    return None


def plain_data(typed: Typed) -> Any:
    """The value as Python data, a float as a float."""
    return float(typed.data) if typed.type == "float" else typed.data


def as_bool(typed: Typed) -> bool | None:
    """true/false, 1/0, yes/no, on/off; None for everything else."""
    word = str(typed.data).lower()
    if word in TRUE:
        return True
    return False if word in FALSE else None


def as_int_text(typed: Typed) -> str | None:
    """The value as an integer's digits where it is a whole number (`1e3` is 1000), else None."""
    if typed.type == "int":
        return str(typed.data)
    if typed.type == "float" and float(typed.data).is_integer() and abs(float(typed.data)) < 2**53:
        return str(int(float(typed.data)))
    return None


def float_text(digits: str) -> str:
    """A float as YAML 1.1, YAML 1.2, TOML and JSON all read it: `3e-5` as `3.0e-5`, `.5` as `0.5`."""
    match = re.match(r"([-+]?)([0-9]*)\.?([0-9]*)(?:[eE]([-+]?)([0-9]+))?$", digits)
    assert match is not None, digits
    sign, whole, fraction, exponent_sign, exponent = match.groups()
    sign = "-" if sign == "-" else ""
    mantissa = f"{sign}{whole.lstrip('0') or '0'}.{fraction or '0'}"
    return f"{mantissa}e{exponent_sign or '+'}{exponent}" if exponent else mantissa


def yaml_text(typed: Typed, style: str | None) -> str:
    """A value as YAML text on one line. `style` is the quote around the value that it replaces, if any."""
    if typed.type == "float":
        return float_text(typed.data)
    if typed.type == "int":
        return str(typed.data)
    if typed.type in ("bool", "null"):
        return {True: "true", False: "false", None: "null"}[typed.data]
    if typed.type in ("list", "dict"):
        return _yaml_flow(typed.data)
    return yaml_string(str(typed.data), style)


def _yaml_flow(data: Any) -> str:
    if isinstance(data, list):
        return "[" + ", ".join(_yaml_flow(item) for item in data) + "]"
    if isinstance(data, dict):
        return "{" + ", ".join(f"{yaml_string(str(k), None)}: {_yaml_flow(v)}" for k, v in data.items()) + "}"
    if isinstance(data, float):
        return float_text(repr(data)) if data == data and abs(data) != float("inf") else repr(data)
    if isinstance(data, str):
        return yaml_string(data, None)
    return json.dumps(data)


def yaml_string(text: str, style: str | None) -> str:
    """Text that every YAML reader takes for text, in the quotes given, plain where that is safe."""
    printable = text.isprintable()
    if style == '"' or not printable:
        return '"' + "".join(map(_escaped, text)) + '"'
    plain = _PLAIN.match(text) and text.lower() not in YAML_WORDS and not _FLOAT.match(text)
    if style == "'" or not plain or text in (".", "..") or re.match(r"0[xob]|\.[0-9in]", text, re.IGNORECASE):
        return "'" + text.replace("'", "''") + "'"
    return text


def _escaped(character: str) -> str:
    """A character inside a double-quoted YAML text."""
    if character in '"\\':
        return "\\" + character
    code = ord(character)
    if character.isprintable():
        return character
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def json_text(typed: Typed) -> str:
    """A value as JSON text."""
    if typed.type == "float":
        return float_text(typed.data)
    return json.dumps(typed.data, ensure_ascii=False)
