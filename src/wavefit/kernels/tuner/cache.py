"""Records in a file of JSON lines that several processes append to, and that a crash may tear."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Generic, TypeVar

import msgspec
from filelock import FileLock

from wavefit.errors import InputError
from wavefit.schema import Struct

T = TypeVar("T", bound=Struct)


class Lines(Generic[T]):
    """A file of records.

    Args:
        path: is made where it is not there.
        kind: of the records; a union of tagged ones, or one.
    """

    def __init__(self, path: Path, kind: object) -> None:
        self._path = path
        self._lock = FileLock(f"{path}.lock")
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(kind)  # type: ignore[arg-type]

    def append(self, *records: T) -> None:
        """Writes records, on the disk before it returns: what comes next may end the machine.

        Raises:
            InputError: the file cannot be written.
        """
        text = b"".join(msgspec.json.encode(record) + b"\n" for record in records)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._lock, self._path.open("a+b") as stream:
                if self._torn(stream.tell()):
                    text = b"\n" + text
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
        except OSError as error:
            raise InputError(
                f"{self._path} cannot be written: {error.strerror}", "free space or mend its rights"
            ) from error

    def _torn(self, size: int) -> bool:
        """Whether the last line has no end: a process was ended while it wrote."""
        if not size:
            return False
        with self._path.open("rb") as stream:
            stream.seek(-1, os.SEEK_END)
            return stream.read(1) != b"\n"

    def read(self) -> Iterator[T]:
        """The records in order; lines that are torn or of another form are left out."""
        try:
            text = self._path.read_bytes()
        except OSError:
            return
        for line in text.splitlines():
            try:
                yield self._decoder.decode(line)
            except msgspec.DecodeError:
                continue
