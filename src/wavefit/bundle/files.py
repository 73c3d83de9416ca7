"""Files written whole or not at all, and their hashes."""

from __future__ import annotations

import hashlib
import os
import shutil
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
    """Writes a file beside its place and moves it there when it is on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    with part.open("wb") as sink:
        sink.write(data)
        sink.flush()
        os.fsync(sink.fileno())
    part.replace(path)


def copy_whole(source: Path, path: Path) -> None:
    """Copies a file beside its place and moves it there, unless the same bytes lie there already."""
    if path.exists() and path.stat().st_size == source.stat().st_size and sha256(path) == sha256(source):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    shutil.copyfile(source, part)
    part.replace(path)
