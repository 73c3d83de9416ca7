"""Reads a bundle and refuses one that was changed."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import msgspec

from wavefit.bundle.files import sha256
from wavefit.bundle.journal import RECORDS, WORK, read_records
from wavefit.bundle.variants import FOLDER
from wavefit.bundle.write import MANIFEST, MODEL, PROGRAM, REPORT
from wavefit.errors import InputError
from wavefit.schema import SCHEMA_VERSION, Bundle, Model, Record, Struct, decode

_GO_ON = "run the same `wavefit optimize` again: it goes on"
_AGAIN = "make it again with the command in bundle.json"


class _Version(Struct, frozen=True, kw_only=True):
    """What every version of the manifest begins with."""

    schema: int
    wavefit: str = "of unknown version"


def load_bundle(folder: Path) -> tuple[Bundle, list[Record]]:
    """Reads a bundle's manifest and records, after holding every file against its hash.

    Raises:
        InputError: no bundle, an unfinished one, one of a newer wavefit, a missing or changed file, or one outside
            the folder.
    """
    manifest = folder / MANIFEST
    if not folder.exists():
        raise InputError(
            f"{folder} does not exist", "give the folder of a bundle that `wavefit optimize` made"
        )
    if not manifest.is_file():
        if (folder / WORK).is_dir():
            raise InputError(f"{folder} is unfinished", _GO_ON)
        raise InputError(f"{folder} is no bundle: it has no {MANIFEST}", "make one with `wavefit optimize`")
    text = manifest.read_bytes()
    _check_version(folder, text)
    bundle = decode(text, Bundle, str(manifest))
    for name, digest in bundle.files.items():
        _check_file(folder, name, digest)
    for name in (MODEL, RECORDS, REPORT):
        if (folder / name).exists() and name not in bundle.files:
            raise InputError(f"{manifest} has no SHA-256 of {name}", _AGAIN)
    return bundle, list(read_records(folder / RECORDS))


def is_bundle(path: str | Path) -> bool:
    """Whether a path is the folder of a bundle."""
    return (Path(path) / MANIFEST).is_file()


def picked(folder: Path) -> Record:
    """The record of a bundle's pick.

    Raises:
        InputError: no plan passed, or the bundle cannot be read.
    """
    bundle, records = load_bundle(folder)
    for record in records:
        if record.key == bundle.choice.pick:
            return record
    raise InputError(f"no plan in {folder} passed", "its report.html says why")


def model_of(folder: Path, record: Record) -> Model:
    """The record's model, a variant where its plan has one, at the place where it lies in this bundle."""
    name = MODEL if record.plan.variant is None else f"{FOLDER}/{record.plan.variant}.onnx"
    return _placed(folder, record.model, name)


def source_of(folder: Path, bundle: Bundle) -> Model:
    """The model that a bundle was made of.

    Raises:
        InputError: an older wavefit wrote the bundle and did not say.
    """
    if bundle.model is None:
        raise InputError(f"{folder} does not say what model it was made of", _AGAIN)
    return _placed(folder, bundle.model, MODEL)


def _placed(folder: Path, model: Model, name: str) -> Model:
    program = str((folder / PROGRAM).resolve()) if model.exported_program is not None else None
    return msgspec.structs.replace(model, path=str((folder / name).resolve()), exported_program=program)


def _check_version(folder: Path, text: bytes) -> None:
    """Looks at the version before the rest, which a newer wavefit may have written in another form."""
    seen = decode(text, _Version, str(folder / MANIFEST))
    if seen.schema > SCHEMA_VERSION:
        raise InputError(
            f"{folder} was written by wavefit {seen.wavefit}, newer than this one", "update wavefit"
        )


def _check_file(folder: Path, name: str, digest: str) -> None:
    inside = PurePosixPath(name)
    if inside.is_absolute() or ".." in inside.parts or "\\" in name or ":" in name:
        raise InputError(
            f"{folder / MANIFEST} names a file outside the bundle: {name!r}", "do not use this bundle"
        )
    path = folder / name
    if not path.is_file():
        raise InputError(f"{path} is missing from the bundle", _AGAIN)
    if sha256(path) != digest:
        if (folder / WORK).is_dir():  # the last run was killed while it packed
            raise InputError(f"{folder} is unfinished: {name} is not what {MANIFEST} names", _GO_ON)
        raise InputError(
            f"{path} was changed since the bundle was made (its SHA-256 differs)",
            _AGAIN,
        )
