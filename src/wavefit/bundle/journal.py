"""Records on disk as they are made, so that an interrupted optimize goes on where it stopped."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from wavefit.errors import InputError
from wavefit.schema import Record, decode, encode

WORK = ".work"  # below the bundle's folder: the journal, the exported model and temporary files while optimize runs
RECORDS = "records.jsonl"


class Journal:
    """The records of one bundle: those of finished runs (``records.jsonl``) and of this one (``.work/``).

    Use as a context manager: it holds a lock, so that two runs on one folder do not mix.

    Args:
        folder: the bundle's folder, made on entering where it is not there.

    Raises:
        InputError: on entering, another process is working on this folder, it cannot be written, or it is no folder of
            ours.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.work = folder / WORK
        self.variants = self.work / "variants"
        self._path = self.work / RECORDS
        self._lock = FileLock(self.work / "lock", timeout=0)
        self._records: dict[str, Record] = {}
        self._made: list[Path] = []

    def __enter__(self) -> Journal:
        try:
            check_folder(self.folder)
            self._made = [path for path in (self.folder, *self.folder.parents) if not path.exists()]
            self.work.mkdir(parents=True, exist_ok=True)
            self._lock.acquire()
        except Timeout as error:
            raise InputError(
                f"another wavefit is working on {self.folder}", "wait for it, or use another --output"
            ) from error
        except OSError as error:
            _remove_empty(self._made)
            raise InputError(
                f"{self.folder} cannot be written: {error.strerror or error}", "choose another --output"
            ) from error
        try:
            for path in (self.folder / RECORDS, self._path):
                self._records.update((record.key, record) for record in read_records(path))
        except InputError:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Leaves nothing behind but a bundle, or the records that the next run goes on from."""
        unfinished = self._path.exists() or self.variants.exists()
        if not unfinished:
            shutil.rmtree(self.work, ignore_errors=True)
        self._lock.release()
        if not unfinished:
            if sys.platform == "win32":  # it cannot delete a lock that is held
                shutil.rmtree(self.work, ignore_errors=True)
            _remove_empty(self._made)

    def find(self, key: str) -> Record | None:
        return self._records.get(key)

    def others(self, records: Iterable[Record]) -> list[Record]:
        """Earlier records of the same model that are not among these: a later run may want them again."""
        known = list(records)
        keys, models = {record.key for record in known}, {record.model.sha256 for record in known}
        return [
            record
            for record in self._records.values()
            if record.key not in keys and record.model.sha256 in models and record.passed
        ]

    def shed(self) -> None:
        """Removes the exported model and the reference, which are big; records and variants stay for the next run."""
        for path in self.work.iterdir():
            if path.is_dir() and path != self.variants:
                shutil.rmtree(path, ignore_errors=True)

    def append(self, record: Record) -> None:
        """Writes one record and waits until it is on the disk."""
        self._records[record.key] = record
        _end_torn_line(self._path)
        with self._path.open("ab") as lines:
            lines.write(encode(record) + b"\n")
            lines.flush()
            os.fsync(lines.fileno())


def check_folder(folder: Path) -> None:
    """Holds that a folder is free to become a bundle, or is one.

    Raises:
        InputError: it is a file, or a folder with other things in it.
    """
    if folder.is_file():
        raise InputError(f"{folder} is a file, and a bundle is a folder", "choose another --output")
    if (
        folder.is_dir()
        and any(folder.iterdir())
        and not any((folder / name).exists() for name in (WORK, "bundle.json"))
    ):
        raise InputError(f"{folder} is a folder that holds something else", "choose another --output")


def _remove_empty(folders: Iterable[Path]) -> None:
    """Removes folders, the innermost first, up to the first that holds something or is not there."""
    for folder in folders:
        try:
            folder.rmdir()
        except OSError:
            return


def read_records(path: Path) -> Iterator[Record]:
    """The records of a ``records.jsonl``. A torn last line, left by a kill, is passed over.

    Raises:
        InputError: a line that is not the last is no record.
    """
    if not path.exists():
        return
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            yield decode(line, Record, f"{path}, line {number},")
        except InputError:
            if number == len(lines):
                return
            raise


def _end_torn_line(path: Path) -> None:
    """Drops a last line that was not written to its end."""
    if not path.exists():
        return
    with path.open("r+b") as lines:
        data = lines.read()
        if data and not data.endswith(b"\n"):
            lines.truncate(data.rfind(b"\n") + 1)
