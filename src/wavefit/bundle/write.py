"""Packs a bundle: the model, every record, the report, and last ``bundle.json``, which makes it one."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from wavefit.bundle.files import copy_whole, sha256, write_whole
from wavefit.bundle.journal import RECORDS, WORK
from wavefit.bundle.variants import FOLDER, copy_variants
from wavefit.errors import InputError
from wavefit.schema import Bundle, Model, Record, encode, pretty

MANIFEST = "bundle.json"
REPORT = "report.html"
MODEL = "model.onnx"
PROGRAM = "model.pt2"


def write_bundle(
    folder: Path,
    draft: Bundle,
    model: Model,
    records: Sequence[Record],
    page: str,
    searched: Path | None = None,
    carried: Mapping[str, Path] | None = None,
) -> Bundle:
    """Writes a bundle into ``folder``, which may hold an older one.

    The manifest is moved into its place last: a bundle that was not written to its end cannot be opened as whole.

    Args:
        draft: the manifest without its files.
        model: what the records were measured on; its files are copied in.
        page: the report.
        searched: the folder that the draft's variants lie in.
        carried: further files by their names in the bundle: what the picked plan's route compiled.

    Returns:
        The manifest as written.

    Raises:
        InputError: the model's weights lie in a file of a name that a bundle needs for itself.
    """
    names = _copy_model(folder, model)
    if searched is not None:
        names += copy_variants(draft.variants, searched, folder)
    for name, path in (carried or {}).items():
        copy_whole(path, folder / name)
        names.append(name)
    write_whole(folder / RECORDS, b"".join(encode(record) + b"\n" for record in records))
    write_whole(folder / REPORT, page.encode())
    names += [RECORDS, REPORT]
    manifest = msgspec.structs.replace(draft, files={name: sha256(folder / name) for name in names})
    write_whole(folder / MANIFEST, pretty(manifest).encode() + b"\n")
    shutil.rmtree(folder / WORK, ignore_errors=True)
    return manifest


def _copy_model(folder: Path, model: Model) -> list[str]:
    """Copies the model's files, its external data under the names that it calls them by.

    Raises:
        InputError: one of them has the name of a file of every bundle.
    """
    source = Path(model.path)
    for name in model.external:
        if Path(name).parts[0] in (MODEL, PROGRAM, RECORDS, REPORT, MANIFEST, WORK, FOLDER):
            raise InputError(
                f"{model.name} keeps weights in {name!r}, a name that a bundle needs for itself",
                "save the model with its external data under another name",
            )
    copies = {MODEL: source, **{name: source.parent / name for name in model.external}}
    if model.exported_program is not None:
        copies[PROGRAM] = Path(model.exported_program)
    for name, path in copies.items():
        copy_whole(path, folder / name)
    return list(copies)
