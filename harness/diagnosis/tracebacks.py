"""Python tracebacks put together line by line: chains, nested ones, and the lines of a message."""

from __future__ import annotations

import re

from harness.diagnosis.model import Link, Place
from harness.diagnosis.prefixes import stamp_in

HEADER = re.compile(r"(?:Exception Group )?(Original )?Traceback \(most recent call last\)")
NAMED = re.compile(
    r"^((?:[A-Za-z_]\w{0,80}\.){0,12}_?[A-Z]\w{0,80}(?:Error|Exception|Interrupt|Exit|Iteration|Warning|Empty|Full"
    r"|Timeout|Group|Traceback|Killed|Died)(?:\w{0,40})(?:\([\w.]{1,80}\))?|(?:_?queue\.Empty)|ReadTimeout|StopIteration)"
    r"(?::\s?(.{0,4000}))?$"
)
"""`module.NameError: message` at the beginning of a line, as a traceback ends."""
_ANY_NAME = re.compile(r"^((?:[A-Za-z_]\w{0,80}\.){0,12}[A-Za-z_]\w{0,80}(?:\([\w.]{1,80}\))?)(?::\s?(.{0,4000}))?$")
"""Any exception may have any name; behind a header that is what stands there."""
_CHAIN = ("The above exception was the direct cause", "During handling of the above exception")
_FRAME = re.compile(r'^\s*[│|]?\s*(?:File "(.{1,1000}?)", line (\d{1,9})|(/\S{1,1000}?):(\d{1,9}) in )')
_BOX = "│╭╰┃┏┗❱"
_OTHERS = ("srun:", "slurmstepd:", "====", "----", "{'", "***")
_PROGRESS = re.compile(r"(?i)\s{0,9}(?:\d{1,3}%\||(?:global[_ ])?steps?\b|epochs?\b|iter(?:ation)?s?\b)")
"""How lines begin that are no part of a message."""
MAX_LINES = 600
MAX_LINKS = 40
MAX_MESSAGE_LINES = 8
MAX_FRAME_CHARS = 16_000
NUM_FRAMES = 4


class Assembler:
    """One traceback of one stream. `feed` says whether the line belonged to it; `is_open` whether more is awaited."""

    def __init__(self, header: Place, text: str) -> None:
        """`header`: the line that begins it, `text` without its labels."""
        self.links: list[Link] = []
        """In the order of causes, innermost first."""
        self.frame_text = ""
        self.is_open = True
        self._base = _indent(text)
        self._state = "frames"
        self._header = header
        self._frames: list[Place] = []
        self._nested = False
        self._position = 0
        """Where the next link goes."""
        self._lines = 0
        self._blank = False
        self._message_lines = 0
        self._while_handling = False

    @classmethod
    def of_exception(cls, place: Place, kind: str, message: str) -> Assembler:
        """An exception that stands without a traceback; lines of its message may follow."""
        made = cls(place, "")
        made._take_exception(place, kind, message)
        return made

    @property
    def is_behind(self) -> bool:
        """Whether the exception was met, so that what follows may be something else."""
        return self._state == "after"

    def feed(self, place: Place, text: str) -> bool:
        """Take the stream's next line, without its labels."""
        self._lines += 1
        if self._lines > MAX_LINES or len(self.links) >= MAX_LINKS:
            self.is_open = False
            return False
        return self._feed_frames(place, text) if self._state == "frames" else self._feed_after(place, text)

    def _feed_frames(self, place: Place, text: str) -> bool:
        bare = text.lstrip(" |+")
        if not text.strip():
            return True
        if HEADER.search(text):
            return True
        if _indent(text) > self._base or bare[:1] in _BOX or text.startswith(("╰", "+")):
            self._take_frame(place, text)
            return True
        match = NAMED.match(bare) or _ANY_NAME.match(bare)
        if match is None or (":" not in bare and not NAMED.match(bare) and "." not in bare and not bare[:1].isupper()):
            self.is_open = False
            return False
        self._take_exception(place, match[1], match[2] or "")
        return True

    def _take_frame(self, place: Place, text: str) -> None:
        if len(self.frame_text) < MAX_FRAME_CHARS:
            self.frame_text += text[:500] + "\n"
        else:
            half = MAX_FRAME_CHARS // 2
            self.frame_text = self.frame_text[:half] + self.frame_text[-half + 501:] + text[:500] + "\n"
        self._frames = [*self._frames[1 - 2 * NUM_FRAMES:], place]

    def _take_exception(self, place: Place, kind: str, message: str) -> None:
        link = Link(kind=kind, message=message.strip(), place=place, frames=self._frames,
                    is_raised_while_handling=self._while_handling)
        for frame in reversed(self._frames):
            found = _FRAME.match(frame.text)
            if found:
                link.file, link.source_line = found[1] or found[3], int(found[2] or found[4])
                break
        if self._nested:
            self.links.insert(max(0, self._position - 1), link)
        else:
            self.links.append(link)
        self._position = len(self.links)
        self._current = link
        self._frames, self._nested, self._blank, self._message_lines = [], False, False, 0
        self._while_handling = False
        self._state = "after"

    def _feed_after(self, place: Place, text: str) -> bool:
        bare = text.strip()
        if not bare or bare == '"""':
            self._blank = True
            return True
        if any(text.lstrip(" |+").startswith(marker) for marker in _CHAIN):
            self._state = "between"
            self._while_handling = bare.startswith(_CHAIN[1])
            return True
        header = HEADER.search(text)
        if header and (header[1] or self._state == "between" or self._current.kind.endswith("Traceback")):
            self._nested = bool(header[1])
            self._state, self._base = "frames", _indent(text)
            return True
        if header or self._blank or self._message_lines >= MAX_MESSAGE_LINES or self._is_another(text):
            self.is_open = False
            return False
        self._message_lines += 1
        self._current.message = f"{self._current.message}\n{bare[:1000]}"[:4000]
        return True

    def _is_another(self, text: str) -> bool:
        if _indent(text) < self._base or NAMED.match(text.strip()):
            return True
        if _PROGRESS.match(text) or stamp_in(text[:60]) is not None:
            return True
        return text.lstrip().startswith(_OTHERS)


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip(" |+\t"))
