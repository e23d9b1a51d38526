"""Reference bands in a TOML file: one table `[[band]]` each, and `[provenance]` of all of them."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.errors import ConfigError
from harness.judge.bands import Band, parse_band, parse_target

BAND_KEYS = ("expect", "value", "lower", "upper", "unit", "points")
PROVENANCE_KEYS = ("command", "commit", "host", "date", "runs")
MAX_BYTES = 1 << 20


def read_bands(given: Iterable[str], here: Path) -> tuple[Band, ...]:
    """Every --expect: an expression, or a TOML file seen from `here`. ConfigError says what is wrong and where."""
    bands: list[Band] = []
    for text in given:
        path = here / Path(text).expanduser()
        if text.strip().endswith(".toml"):
            bands += bands_of_file(path)
        else:
            bands.append(parse_band(text))
    return tuple(bands)


def read_toml(path: Path, option: str) -> dict[str, Any]:
    """A TOML file as plain data; ConfigError with line and column."""
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        if path.stat().st_size > MAX_BYTES:
            raise ConfigError(f"{option} {path}: larger than {MAX_BYTES} bytes")
        return dict(tomlkit.parse(path.read_text(encoding="utf-8")).unwrap())
    except OSError as error:
        raise ConfigError(f"{option} {path}: cannot be read: {error.strerror}") from error
    except (TOMLKitError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{option} {path}: not TOML: {error}") from error


def refuse_unknown(keys: Iterable[str], known: Iterable[str], where: str) -> None:
    """ConfigError for a key that is none, with the nearest that is one."""
    for key in keys:
        if key not in known:
            near = difflib.get_close_matches(key, list(known), n=1, cutoff=0.5)
            told = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
            raise ConfigError(f"{where}: unknown key {key}; {told}")


def bands_of_file(path: Path) -> list[Band]:
    """The bands of a file as `baseline` writes it. ConfigError for anything else."""
    where = f"--expect {path}"
    document = read_toml(path, "--expect")
    refuse_unknown(document, ("band", "provenance"), where)
    provenance = document.get("provenance") or {}
    rows = document.get("band")
    if not isinstance(rows, list) or not rows or not isinstance(provenance, Mapping):
        raise ConfigError(f"{where}: holds no [[band]]")
    refuse_unknown(provenance, PROVENANCE_KEYS, f"{where}: provenance")
    told = {key: str(value) for key, value in provenance.items()}
    return [_band(row, told, f"{where}: band {number}") for number, row in enumerate(rows, start=1)]


def _band(row: Any, provenance: Mapping[str, Any], where: str) -> Band:
    if not isinstance(row, Mapping) or not isinstance(row.get("expect"), str):
        raise ConfigError(f'{where}: expect = "..." is missing')
    refuse_unknown(row, BAND_KEYS, where)
    numbers = {key: _number(row, key, where) for key in ("value", "lower", "upper")}
    lower, upper, value = numbers["lower"], numbers["upper"], numbers["value"]
    if lower is None and upper is None:
        raise ConfigError(f"{where} ({row['expect']}): neither lower nor upper: a value from one run has no tolerance; "
                          "make the file from 2 runs or more, or write a limit")
    band = Band(target=_target_of(row["expect"], where), lower=lower, upper=upper, value=value,
                unit=str(row.get("unit") or ""), provenance=provenance)
    if lower is not None and upper is not None and lower > upper:
        raise ConfigError(f"{where} ({row['expect']}): lower {lower:g} is above upper {upper:g}")
    if value is not None and not band.holds(value):
        raise ConfigError(f"{where} ({row['expect']}): value {value:g} is not {band.limits}")
    points = row.get("points")
    if points is not None and (isinstance(points, bool) or not isinstance(points, int) or points < 1):
        raise ConfigError(f"{where} ({row['expect']}): points = {points!r} is no count")
    return replace(band, points=points)


def _target_of(text: str, where: str) -> Any:
    try:
        return parse_target(text)
    except ConfigError as error:
        raise ConfigError(f"{where}: {str(error).removeprefix('--expect ')}") from error


def _number(row: Mapping[str, Any], key: str, where: str) -> float | None:
    value = row.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ConfigError(f"{where} ({row['expect']}): {key} = {value!r} is no finite number")
    return float(value)
