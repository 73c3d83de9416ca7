"""Reading small files of sysfs and procfs. What is missing, unreadable or garbage is None, never an error.

Paths are below a root, so that a recorded tree reads as the machine that it was recorded on.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from pathlib import Path

_MOST_BYTES = (
    4 << 20
)  # /proc/cpuinfo of a machine with 512 threads has 1 MB; a recorded tree may hold anything


def read_text(path: Path) -> str | None:
    """A file's text without blanks around it. None where it is missing, unreadable, empty or no regular file.

    Amdgpu pads some values with NUL bytes; these go too.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return None  # a pipe in a recorded tree would block for ever
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):
        return None
    return text.strip(" \t\r\n\0") or None


def exists(path: Path) -> bool:
    """Whether there is anything at a path; False where that may not be asked."""
    try:
        path.stat()
    except (OSError, ValueError):
        return False
    return True


def temporary() -> bool:
    """Whether there is a folder for temporary files: a child process needs one."""
    import tempfile

    try:
        tempfile.gettempdir()
    except FileNotFoundError:
        return False
    return True


def read_int(path: Path) -> int | None:
    """A file's whole number, decimal or with 0x. None where it holds anything else ("N/A", "max")."""
    return to_int(read_text(path))


def to_int(text: str | None) -> int | None:
    """A whole number in a text, decimal or with 0x; None for anything else."""
    if text is None or not re.fullmatch(r"-?\d{1,20}|0[xX][0-9a-fA-F]{1,16}", text, re.ASCII):
        return None
    return int(text, 16) if text[:2] in ("0x", "0X") else int(text)


def printable(text: str) -> str:
    """A text without control characters: a recording comes from anyone, and a terminal obeys its escapes (ECMA-48)."""
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", "", text)


def encodable(text: str) -> str:
    """A text from the command line or the environment, where bytes that are no UTF-8 came as surrogates (PEP 383)."""
    return text.encode("utf-8", "replace").decode()


def read_pairs(path: Path, separator: str | None = None) -> dict[str, str]:
    """A file of lines ``key separator value`` (a blank by default): KFD properties, uevent, os-release."""
    pairs = {}
    for line in (read_text(path) or "").splitlines():
        key, *value = line.split(separator, 1) if line.strip() else [""]
        if value:
            pairs[key.strip()] = value[0].strip()
    return pairs


def children(path: Path, pattern: str) -> Iterator[Path]:
    """Entries of a folder whose whole name matches, in natural order: card2 before card10."""
    try:
        names = [entry.name for entry in path.iterdir()]
    except OSError:
        return
    for name in sorted(names, key=_natural):
        if re.fullmatch(pattern, name):
            yield path / name


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]
