"""Files written whole or not at all, and their hashes."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_CHUNK_BYTES = 1 << 20


def sha256(path: Path) -> str:
    """The SHA-256 of a file, read in chunks."""
    digest = hashlib.sha256()
    with path.open("rb") as data:
        while chunk := data.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def write_whole(path: Path, data: bytes) -> None:
    """Writes a file beside its place and moves it there when it is on the disk.

    Raises:
        OSError: it cannot be written; nothing is left beside its place then.
    """
    with _part(path) as part, part.open("wb") as sink:
        sink.write(data)
        sink.flush()
        os.fsync(sink.fileno())


def copy_whole(source: Path, path: Path) -> None:
    """Copies a file beside its place and moves it there, unless the same bytes lie there already.

    Raises:
        OSError: it cannot be written; nothing is left beside its place then.
    """
    if path.exists() and path.stat().st_size == source.stat().st_size and sha256(path) == sha256(source):
        return
    with _part(path) as part:
        shutil.copyfile(source, part)


@contextmanager
def _part(path: Path) -> Iterator[Path]:
    """The file beside ``path`` that takes its place at the end; an error names ``path``, as a full disk's does not."""
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield part
        part.replace(path)
    except OSError as error:
        if part.is_file():
            part.unlink()
        raise OSError(error.errno, error.strerror, str(path)) from error
