"""Rows of data files, raw, with flat memory, in the interpreter that trains; standard library only at import."""

from __future__ import annotations

import csv
import itertools
import json
import signal
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

Get = Callable[[], Any]
"""Gives one row; may raise Unreadable."""
Rows = Iterator["tuple[int, Get]"]
SUFFIXES = (".json", ".jsonl", ".parquet", ".csv", ".tsv", ".arrow")
MAX_ROW_BYTES = 16 << 20
"""A longer line or element is not read."""
COUNT_BYTES = 1 << 30
"""Text up to this size is counted before rows are picked; of a larger one the first rows are read."""
CHUNK = 1 << 20
BLANK = b" \t\r\n\xef\xbb\xbf"


class Unreadable(Exception):
    """What a user must hear, with its code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def die_with_parent() -> None:
    """Nobody reads the rows of a dead harness, and nobody else would stop a loader that hangs (PR_SET_PDEATHSIG)."""
    if sys.platform.startswith("linux"):
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)


def raw_rows(
    path: str, limit: int, *, delimiter: str | None = None, first: bool = False
) -> tuple[int | None, Rows]:
    """(total or None, rows that were picked) of a local path; with `first` its first rows. Raises Unreadable."""
    files = data_files(path) if Path(path).is_dir() else [path]
    suffix = Path(files[0]).suffix.lower() if files else ""
    if suffix in (".parquet", ".arrow"):
        table = Table(files)
        return table.total, table.rows(list(range(min(table.total, limit))) if first else picked(table.total, limit))

    def stream() -> Rows:
        numbers = itertools.count()
        for file in files:
            for _, row in file_rows(file, suffix, delimiter):
                yield next(numbers), row

    if first or sum(Path(file).stat().st_size for file in files) > COUNT_BYTES:
        return None, itertools.islice(stream(), limit)
    total = sum(1 for _ in stream())
    wanted = set(picked(total, limit))
    return total, (item for item in stream() if item[0] in wanted)


def picked(total: int, limit: int) -> list[int]:
    """Indices of the rows to look at: all of them, or `limit` spread over the whole with the first and the last."""
    if total <= limit:
        return list(range(total))
    if limit == 1:
        return [0]
    return sorted({number * (total - 1) // (limit - 1) for number in range(limit)})


def data_files(path: str) -> list[str]:
    """The files that a directory's rows lie in: of save_to_disk, or the data files in it as AReno takes them."""
    directory = Path(path)
    if (directory / "dataset_dict.json").is_file():
        splits = json.loads((directory / "dataset_dict.json").read_text(encoding="utf-8")).get("splits") or []
        if "train" not in splits:
            raise Unreadable("no-train-split", f"{path} holds the splits {', '.join(splits)} and no `train`")
        directory = directory / "train"
    if (directory / "state.json").is_file():
        state = json.loads((directory / "state.json").read_text(encoding="utf-8"))
        return [str(directory / item["filename"]) for item in state.get("_data_files") or []]
    found = sorted(str(item) for item in directory.iterdir() if item.is_file() and item.suffix.lower() in SUFFIXES)
    if not found:
        raise Unreadable("no-data-files", f"{path} holds no data file ({', '.join(SUFFIXES)})")
    kinds = sorted({Path(item).suffix.lower() for item in found})
    if len(kinds) > 1:
        message = f"{path} mixes {', '.join(kinds)}; AReno reads all of them as {Path(found[0]).suffix.lower()}"
        raise Unreadable("mixed-files", message)
    return found


def given(value: Any) -> Any:
    """The value; as `partial(given, value)` a row that is there already."""
    return value


def file_rows(path: str, suffix: str, delimiter: str | None) -> Rows:
    """Rows of one text file."""
    if suffix == ".jsonl":
        return json_lines(path)
    if suffix == ".json":
        return json_rows(path)
    if suffix in (".csv", ".tsv"):
        return csv_rows(path, delimiter or ("\t" if suffix == ".tsv" else ","))
    message = f"{path}: {suffix or 'extensionless'} files are not read; give one of {', '.join(SUFFIXES)}"
    raise Unreadable("suffix-unknown", message)


def text_lines(path: str) -> Iterator[bytes | None]:
    """Every line that is not blank; None for one that is too long."""
    with Path(path).open("rb") as stream:
        while True:
            line = stream.readline(MAX_ROW_BYTES + 1)
            if not line:
                return
            whole = len(line) <= MAX_ROW_BYTES
            rest = line
            while not whole and rest and not rest.endswith(b"\n"):
                rest = stream.readline(MAX_ROW_BYTES)
            if line.strip(BLANK):
                yield line if whole else None


def json_lines(path: str) -> Rows:
    """JSON lines, parsed when they are asked for."""
    for number, line in enumerate(text_lines(path)):
        yield number, partial(parsed_line, line)


def parsed_line(line: bytes | None) -> Any:
    """One JSON line."""
    if line is None:
        raise Unreadable("row-too-long", f"the line is longer than {MAX_ROW_BYTES >> 20} MiB")
    try:
        return json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise Unreadable("row-not-json", f"not JSON: {error}") from error


def json_rows(path: str) -> Rows:
    """A .json file may hold an array, one object, or JSON lines."""
    with Path(path).open("rb") as stream:
        start = stream.read(4096).lstrip(BLANK)
    if start.startswith(b"["):
        return json_elements(path)
    try:
        json.loads((next(text_lines(path), None) or b"").decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return json_elements(path)
    return json_lines(path)


def json_elements(path: str) -> Rows:
    """Elements of a JSON array, or objects one after the other, read in pieces."""
    decoder = json.JSONDecoder()
    with Path(path).open(encoding="utf-8-sig", errors="surrogateescape") as stream:
        buffer = stream.read(CHUNK).lstrip()
        inside = buffer.startswith("[")
        buffer = buffer[1:] if inside else buffer
        number = 0
        while True:
            buffer = buffer.lstrip(" \t\r\n,")
            if inside and buffer.startswith("]"):
                return
            if not buffer:
                buffer = stream.read(CHUNK)
                if buffer:
                    continue
                if inside:
                    raise Unreadable("file-cut", f"{path}: the JSON array has no end")
                return
            try:
                value, stop = decoder.raw_decode(buffer)
                more = "" if stop < len(buffer) or isinstance(value, (dict, list, str)) else stream.read(CHUNK)
            except (ValueError, RecursionError) as error:
                more = stream.read(CHUNK) if len(buffer) <= MAX_ROW_BYTES else ""
                if not more:
                    raise Unreadable("file-not-json", f"{path}: element {number} is not JSON: {error}") from error
            if more:
                buffer += more
                continue
            yield number, partial(given, value)
            number, buffer = number + 1, buffer[stop:]


def csv_rows(path: str, delimiter: str) -> Rows:
    """Rows by the header; an empty cell is null."""
    csv.field_size_limit(MAX_ROW_BYTES)
    with Path(path).open(encoding="utf-8-sig", errors="surrogateescape", newline="") as stream:
        try:
            for number, row in enumerate(csv.DictReader(stream, delimiter=delimiter)):
                cells = {key: value or None for key, value in row.items() if key is not None}
                yield number, partial(given, cells)
        except csv.Error as error:
            raise Unreadable("file-not-csv", f"{path}: not readable as CSV: {error}") from error


def numbers_as_numbers(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A CSV column of numbers only is a column of numbers for AReno's reader."""
    columns = {key for row in rows for key in row}
    numeric = {key for key in columns if all(_is_number(row.get(key)) for row in rows)
               and any(row.get(key) is not None for row in rows)}
    return [{key: _number(value) if key in numeric and value is not None else value for key, value in row.items()}
            for row in rows]


def _is_number(value: Any) -> bool:
    try:
        return value is None or float(value) is not None
    except (TypeError, ValueError):
        return False


def _number(value: str) -> int | float:
    try:
        return int(value)
    except ValueError:
        return float(value)


class Table:
    """Rows of Parquet or Arrow files by index, one batch in memory at a time."""

    def __init__(self, paths: list[str]) -> None:
        try:
            import pyarrow
        except ImportError as error:
            message = f"reading {Path(paths[0]).suffix} files needs pyarrow in {sys.executable}"
            raise Unreadable("reader-missing", message) from error
        self.paths = paths
        self.damage = (pyarrow.ArrowException, OSError)
        self.sizes = [self._size(path) for path in paths]
        self.total = sum(self.sizes)

    def _size(self, path: str) -> int:
        try:
            return sum(rows for rows, _ in batches(path))
        except self.damage as error:
            raise Unreadable("file-damaged", f"{path}: {str(error)[:300]}") from error

    def rows(self, wanted: list[int]) -> Rows:
        """The rows of these rising indices."""
        base = 0
        for number, path in enumerate(self.paths):
            size = self.sizes[number]
            inside = [index - base for index in wanted if base <= index < base + size]
            try:
                for index, row in rows_of_table(path, inside):
                    yield base + index, partial(given, row)
            except self.damage as error:
                raise Unreadable("file-damaged", f"{path}: {str(error)[:300]}") from error
            base += size


def rows_of_table(path: str, wanted: list[int]) -> Iterator[tuple[int, Any]]:
    """(index, row) of one file; row groups without a wanted row are not read."""
    base, left = 0, list(wanted)
    for rows, read in batches(path):
        here = [index for index in left if index < base + rows]
        left = left[len(here):]
        start = base
        for batch in read() if here else ():
            while here and here[0] < start + batch.num_rows:
                index = here.pop(0)
                yield index, batch.slice(index - start, 1).to_pylist()[0]
            start += batch.num_rows
        base += rows
        if not left:
            return


def batches(path: str) -> Iterator[tuple[int, Callable[[], Any]]]:
    """(rows, function that reads them) of every row group or record batch."""
    if not path.endswith(".parquet"):
        for batch in arrow_batches(path):
            yield batch.num_rows, partial(given, (batch,))
        return
    from pyarrow import parquet

    reader = parquet.ParquetFile(path)
    for group in range(reader.num_row_groups):
        yield reader.metadata.row_group(group).num_rows, partial(
            reader.iter_batches, batch_size=256, row_groups=[group])


def arrow_batches(path: str) -> Iterator[Any]:
    """Record batches of an Arrow stream, which save_to_disk writes, or of an Arrow file."""
    import pyarrow

    with pyarrow.memory_map(path) as source:
        try:
            reader = pyarrow.ipc.open_stream(source)
        except pyarrow.ArrowInvalid:
            source.seek(0)
            reader = pyarrow.ipc.open_file(source)
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)
            return
        yield from reader
