"""The exception at the end of a log: whether it ends it, or was got over or noted aside."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.record.redaction import Redactor
from harness.supervise.log import LINES_AFTER, LogWriter

TRACE = "Traceback (most recent call last):\n  File \"t.py\", line 3, in <module>\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("step 1\n" + TRACE + "OSError: full\n", ("OSError: full", True)),
        (TRACE + "OSError: full\n\n  \n", ("OSError: full", True)),
        (TRACE + "KeyError: 'a'\n\nDuring handling of it, another one:\n\n" + TRACE + "my.OddError\n",
         ("my.OddError", True)),
        (TRACE + "OSError: full\nretrying\n", ("OSError: full", False)),
        ("Exception ignored in: <function f at 0x1>\n" + TRACE + "TypeError: x\n", ("TypeError: x", False)),
        ("Exception in thread Thread-1:\n" + TRACE + "OSError: x\n", ("OSError: x", False)),
        ("--- Logging error ---\n" + TRACE + "OSError: x\n", ("OSError: x", False)),
        (TRACE + "odd\n", ("an exception without a readable type", False)),
        (TRACE + "OSError: full\n" + "step\n" * (LINES_AFTER + 2), (None, False)),
        ("OSError: full\n", (None, False)),
        ("", (None, False)),
    ],
)
def test_exception_that_ends_a_log(tmp_path: Path, text: str, expected: tuple[str | None, bool]) -> None:
    """Only one that nothing follows, and that Python did not print beside a program that goes on."""
    log = LogWriter(tmp_path / "train.log", Redactor(()).stream())
    log.feed(text.encode())
    log.close()
    assert log.last_exception() == expected
