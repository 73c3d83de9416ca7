"""Opening a recorded machine: a folder, or a .tar.gz that is unpacked into a temporary folder for a while.

Who sends a recording may be a stranger: nothing is written outside the folder, links lead nowhere outside, and the size
is bounded before anything is unpacked.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import re
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import msgspec

from wavefit.device import rocm_smi
from wavefit.device.files import exists, read_text
from wavefit.doctor.machine import Machine, Process
from wavefit.errors import InputError

_MOST_BYTES = 64 << 20
_MOST_MEMBERS = 50_000
_LONGEST_PATH = 2048  # Linux takes 4096 bytes, NAME_MAX is 255: limits.h


@contextlib.contextmanager
def open_machine(root: Path) -> Iterator[Machine]:
    """A recorded machine, for as long as the block runs.

    Raises:
        InputError: there is no recording at that path, or it is not one that is safe to open.
    """
    if root.is_file():
        with tempfile.TemporaryDirectory(prefix="wavefit-") as folder:
            if root.suffix == ".json":
                _lay_out(root, Path(folder))
            else:
                unpack(root, Path(folder))
            yield _recorded(Path(folder), root)
        return
    yield _recorded(root, root)


def _recorded(root: Path, said: Path) -> Machine:
    if not any(exists(root / name) for name in ("sys", "proc", "wavefit")):
        raise InputError(
            f"--root {said} is no recorded machine", "give a file that --collect wrote, or its folder"
        )
    return Machine(root, process_of(Machine(root)))


def _lay_out(file: Path, folder: Path) -> None:
    """Makes a recording of what ``rocm-smi -a --json`` printed.

    Raises:
        InputError: it is something else.
    """
    text = read_text(file) or ""
    if not any(name.startswith("card") for name in rocm_smi.cards(text)):
        raise InputError(f"--root {file} tells of no GPU", "give what `rocm-smi -a --json` printed")
    target = folder / rocm_smi.FILE
    target.parent.mkdir(parents=True)
    target.write_text(text)


def process_of(machine: Machine) -> Process | None:
    """The process that a recording tells of, None where it has none that can be read."""
    text = machine.read("/wavefit/process.json")
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=Process)
    except msgspec.DecodeError:
        return None


def unpack(file: Path, folder: Path) -> None:
    """Unpacks a recording.

    Raises:
        InputError: no .tar.gz, too large, or with a member that leads out of the folder.
    """
    try:
        with tarfile.open(fileobj=io.BytesIO(_decompressed(file)), mode="r:") as tar:
            _extract(tar, folder, file)
    except (tarfile.TarError, UnicodeError, EOFError) as error:
        raise InputError(f"{file} is no recording: {error}", "give a file that --collect wrote") from error


def _decompressed(file: Path) -> bytes:
    try:
        with gzip.open(file) as packed:
            data = packed.read(_MOST_BYTES + 1)
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise InputError(f"{file} is no recording: {error}", "give a file that --collect wrote") from error
    if len(data) > _MOST_BYTES:
        raise InputError(f"{file} is too large: it unpacks to more than {_MOST_BYTES >> 20} MiB")
    return data


def _extract(tar: tarfile.TarFile, folder: Path, file: Path) -> None:
    """Files first, links last: nothing is ever written through a link."""
    links: list[tuple[Path, str]] = []
    folder = folder.resolve()
    for number, member in enumerate(tar):
        path = folder / _safe(member.name, file)
        if number >= _MOST_MEMBERS:
            raise InputError(f"{file} has more than {_MOST_MEMBERS} files")
        if member.issym():
            links.append((path, member.linkname))
        elif member.isdir():
            _make(path, file)
        elif member.isreg() and not member.issparse():
            _make(path.parent, file)
            data = tar.extractfile(member)
            if data is None or path.exists():
                raise InputError(f"{file} holds {member.name} twice")
            path.write_bytes(data.read())
        else:
            raise InputError(f"{file} holds {member.name}, which is neither a file, a folder nor a link")
    _link(links, folder, file)


def _safe(name: str, file: Path) -> PurePosixPath:
    path = PurePosixPath(name)
    if len(name) > _LONGEST_PATH or any(len(part.encode("utf-8", "replace")) > 255 for part in path.parts):
        raise InputError(f"{file} holds a name of {len(name)} characters, which Linux cannot have")
    if (
        path.is_absolute()
        or ".." in path.parts
        or not path.parts
        or re.search(r"[\\\0]", name)
        or ":" in path.parts[0]
    ):
        raise InputError(f"{file} holds the path {name!r}, which leads out of it")
    return path


def _make(folder: Path, file: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{file} holds a folder that cannot be made: {error}") from error


def _link(links: list[tuple[Path, str]], root: Path, file: Path) -> None:
    """Makes the links, none of them in the way to another, then looks where each one leads."""
    for path, _ in links:
        _make(path.parent, file)
    for path, target in links:
        if target.startswith("/") or path.exists() or path.is_symlink():
            raise InputError(
                f"{file} holds the link {path.name}, which leads out of it or stands there twice"
            )
        path.symlink_to(target)
    for path, target in links:
        try:
            inside = path.resolve().is_relative_to(root)
        except (OSError, RuntimeError):  # a loop
            inside = False
        if not inside:
            raise InputError(f"{file} holds the link {path.name} to {target}, which leads out of it")
