"""Error text made comparable: without colours, log prefixes, blanks and capitals, so that no noise hides a message."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from wavefit.doctor.known_errors import Pattern

MOST_BYTES = 4 << 20  # read at the beginning of a log, and as much again at its end
_MOST_TRIES = 5_000  # of one pattern in one text: a text may repeat a message's first words a million times
_SHOWN = 200  # characters of a line that are repeated

# ECMA-48: control sequences (colours, cursor), operating system commands (titles, links), two-character escapes.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]{0,40}[ -/]{0,8}[@-~]|\][^\x07\x1b]{0,2000}(?:\x07|\x1b\\)|[@-Z\\-_])")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ufffd\ufeff]")
# What loggers put before each line: dmesg's seconds, dates, a host and its service, a rank, a container's name.
_PREFIX = re.compile(
    r"""\s{0,80}(?:
        \[\s{0,8}\d{1,9}\.\d{1,9}\]                                             # [   12.345678]
      | \[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[\d.,:+Z-]{0,20}\]?                 # 2026-03-01T12:34:56.789Z
      | \[?(?:\w{3},?[ ])?\w{3}[ ]{1,2}\d{1,2}[ ]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:[ ]\d{4})?\]?   # Mar  1 12:34:56
      | \[?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:[ ][AP]M)?\]?
      | \[?(?:rank|default)\s?\d{1,5}\]?:
      | \((?:\w{1,40}[ ])?pid=\d{1,9}(?:,[ ]ip=[\d.]{7,15})?\)                  # Ray
      | \[?(?:DEBUG|INFO|WARN|WARNING|ERROR|FATAL|CRITICAL)\]?[ :]
      | [\w.-]{1,64}[ ](?:kernel|systemd|kubelet|dockerd|containerd|[\w.-]{1,32}\[\d{1,9}\]):   # host service[pid]:
      | [\w.-]{1,64}\s{0,20}\|(?=\s)                                            # docker compose
      | [│┃|>]                                                                  # boxes and quotations
      | E\s{2,12}                                                               # pytest
    )[ ]{0,4}""",
    re.VERBOSE,
)


def read(stream: BinaryIO) -> tuple[bytes, bool]:
    """The beginning and the end of a stream, however long it is, and whether something between them was left out."""
    head = _exactly(stream, MOST_BYTES)
    tail, cut = bytearray(), False
    while part := stream.read(1 << 16):
        tail += part
        if len(tail) > 2 * MOST_BYTES:
            del tail[:-MOST_BYTES]
            cut = True
    if len(tail) > MOST_BYTES:
        del tail[:-MOST_BYTES]
        cut = True
    return (head + b"\n" if cut else head) + bytes(tail), cut


def _exactly(stream: BinaryIO, size: int) -> bytes:
    """Up to ``size`` bytes: a pipe gives fewer at a time."""
    parts, missing = [], size
    while missing and (part := stream.read(missing)):
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)


def decode(data: bytes) -> str:
    """Bytes as text: UTF-16 with its mark (what PowerShell writes), else UTF-8 with whatever is not left as a sign."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", "replace")
    return data.decode("utf-8", "replace")


class Log:
    """A text in which messages are looked for."""

    def __init__(self, text: str) -> None:
        lines = _ESCAPES.sub("", text).splitlines()
        self._lines = [_CONTROLS.sub("", line) for line in lines]
        self._starts: list[int] = []
        parts, length = [], 0
        for line in self._lines:
            self._starts.append(length)
            part = "".join(_bare(line).split()).lower()
            parts.append(part)
            length += len(part)
        self._text = "".join(parts)

    def __bool__(self) -> bool:
        return any(line.strip() for line in self._lines)

    def first(self, patterns: Iterable[Pattern]) -> int | None:
        """The earliest place at which one of the patterns matches; None where none does."""
        places = [place for pattern in patterns for place in self._places(pattern)]
        return min(places, default=None)

    def line(self, place: int) -> str:
        """The line that a place is in, as it was given, cut to a width."""
        text = " ".join(self._lines[bisect_right(self._starts, place) - 1].split())
        return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "\N{HORIZONTAL ELLIPSIS}"

    def _places(self, pattern: Pattern) -> Iterator[int]:
        """The first match: tried only where the pattern's literal beginning stands."""
        place = -1
        for _ in range(_MOST_TRIES):
            place = self._text.find(pattern.anchor, place + 1)
            if place < 0:
                return
            if pattern.regex.match(self._text, place):
                yield place
                return


def _bare(line: str) -> str:
    """A line without what loggers put before it."""
    for _ in range(4):
        match = _PREFIX.match(line)
        if match is None:
            return line
        line = line[match.end() :]
    return line
