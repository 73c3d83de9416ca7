"""A recording while it is made: files, links and folders below a root, written as a .tar.gz."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import re
import stat
import tarfile
from dataclasses import dataclass, field
from pathlib import Path

from wavefit.device.files import children
from wavefit.doctor.machine import Machine
from wavefit.doctor.scrub import Scrubber
from wavefit.errors import InputError

_LARGEST_FILE = 1 << 20
_MOST_FILES = 20_000
_MOST_LINKS = 40  # of Linux, MAXSYMLINKS
_DEEPEST = 8


@dataclass
class Recording:
    """The members as they are gathered, by path."""

    machine: Machine
    scrub: Scrubber
    files: dict[str, bytes] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)

    def path(self, name: str) -> Path:
        return self.machine.root / name

    def add(self, name: str) -> None:
        """A file, the links on the way to it included. What cannot be read is left out."""
        real = self._follow(name)
        if real is None or real in self.files or len(self.files) >= _MOST_FILES:
            return
        try:
            status = self.path(real).stat()
            if stat.S_ISDIR(status.st_mode):
                self.folders.add(real)
            if not stat.S_ISREG(status.st_mode):
                return
            with self.path(real).open("rb") as file:
                data = file.read(_LARGEST_FILE)
        except OSError:
            return
        self.files[real] = self.scrub.file(real, data.decode("latin-1")).encode("latin-1", "replace")

    def mark(self, name: str) -> None:
        """A file of which only its being there is recorded."""
        real = self._follow(name)
        if real is None or real in self.files:
            return
        try:
            status = self.path(real).stat()
        except OSError:
            return
        if stat.S_ISDIR(status.st_mode):
            self.folders.add(real)
        else:
            self.files[real] = b""

    def listing(self, name: str, pattern: str) -> None:
        """The entries of a folder whose name matches: that they are there, not what is in them."""
        for path in children(self.path(name), pattern):
            self.mark(f"{name}/{path.name}")

    def tree(self, name: str, pattern: str, folders: str = r".+", depth: int = _DEEPEST) -> None:
        """The files below a folder whose name matches, in those folders whose name does; links are not entered."""
        real = self._follow(name)
        if real is None:
            return
        try:
            entries = sorted(os.scandir(self.path(real)), key=lambda entry: entry.name)
        except OSError:
            return
        self.folders.add(real)
        for entry in entries:
            below = f"{real}/{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                if depth > 0 and re.fullmatch(folders, entry.name):
                    self.tree(below, pattern, folders, depth - 1)
            elif not entry.is_symlink() and re.fullmatch(pattern, entry.name):
                self.add(below)

    def _follow(self, name: str) -> str | None:
        """The path below the root without links; each link on the way is recorded, as a relative one."""
        done: list[str] = []
        parts = [part for part in name.split("/") if part not in ("", ".")]
        for _ in range(len(parts) + 64 * _MOST_LINKS):
            if not parts:
                return "/".join(done) or None
            part = parts.pop(0)
            if part == "..":
                done = done[:-1]
                continue
            here = "/".join([*done, part])
            if here == "proc/self":  # a link to a number that means nothing elsewhere
                done.append(part)
                continue
            try:
                target = str(self.path(here).readlink())
            except OSError:
                done.append(part)
                continue
            self.links[here] = (
                target if not target.startswith("/") else "../" * len(done) + target.lstrip("/")
            )
            if target.startswith("/"):
                done = []
            parts = [piece for piece in target.split("/") if piece not in ("", ".")] + parts
        return None  # a loop of links


def write(recording: Recording, file: Path) -> None:
    """Fixed times, owners and order: two recordings of one state are equal byte for byte.

    Raises:
        InputError: the file cannot be written; nothing is left of it then.
    """
    buffer = io.BytesIO()
    scrub = recording.scrub.path
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in sorted(recording.folders):
            tar.addfile(_member(scrub(name), tarfile.DIRTYPE))
        for name, data in sorted(recording.files.items()):
            member = _member(scrub(name), tarfile.REGTYPE)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
        for name, target in sorted(recording.links.items()):
            member = _member(scrub(name), tarfile.SYMTYPE)
            member.linkname = scrub(target)
            tar.addfile(member)
    try:
        file.write_bytes(gzip.compress(buffer.getvalue(), mtime=0))
    except OSError as error:
        with contextlib.suppress(OSError):
            file.unlink(missing_ok=True)
        raise InputError(
            f"{file} cannot be written: {error.strerror}",
            "name a file in a folder with room that you may write to",
        ) from error


def _member(name: str, kind: bytes) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type = kind
    member.mode = 0o755 if kind == tarfile.DIRTYPE else 0o644
    return member
