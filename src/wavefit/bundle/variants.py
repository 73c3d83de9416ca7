"""A bundle's variants: files in ``variants/``, and what was found out, so that the same search is not made twice."""

from __future__ import annotations

import shutil
from pathlib import Path

from msgspec import structs

from wavefit.bundle.files import copy_whole, sha256, write_whole
from wavefit.errors import InputError
from wavefit.precision.search.records import Made
from wavefit.schema import Struct, Variant, decode, encode

FOLDER = "variants"
_INDEX = "search.json"


class Search(Struct, frozen=True, kw_only=True):
    """What one search came to; ``key`` hashes all that it depends on."""

    key: str
    made: Made


def known(key: str, *folders: Path) -> Made | None:
    """An earlier search's result, from the first folder whose files are whole; None where there is none."""
    for folder in folders:
        index = folder / _INDEX
        if not index.is_file():
            continue
        try:
            search = decode(index.read_bytes(), Search, str(index))
        except InputError:
            continue
        made = structs.replace(
            search.made, variants=tuple(located(variant, folder) for variant in search.made.variants)
        )
        if search.key == key and all(_whole(variant) for variant in made.variants):
            return made
    return None


def keep(key: str, made: Made, folder: Path) -> None:
    """Writes a search's result beside its files."""
    write_whole(folder / _INDEX, encode(Search(key=key, made=made)))


def located(variant: Variant, folder: Path) -> Variant:
    """The variant with its file where it lies in ``folder``."""
    path = str((folder / f"{variant.name}.onnx").resolve())
    return structs.replace(variant, model=structs.replace(variant.model, path=path))


def copy_variants(variants: tuple[Variant, ...], source: Path, folder: Path) -> list[str]:
    """Copies variants' files into a bundle and removes those of others; returns names relative to the bundle."""
    names = [_INDEX] if (source / _INDEX).is_file() else []
    for variant in variants:
        names += [f"{variant.name}.onnx", *variant.model.external]
    place = folder / FOLDER
    for path in place.iterdir() if place.is_dir() else ():
        if path.name not in names:
            path.unlink()
    for name in names:
        copy_whole(source / name, place / name)
    if not names:
        shutil.rmtree(place, ignore_errors=True)
    return [f"{FOLDER}/{name}" for name in names]


def _whole(variant: Variant) -> bool:
    path = Path(variant.model.path)
    if variant.model.external:
        return path.is_file() and all((path.parent / name).is_file() for name in variant.model.external)
    return path.is_file() and sha256(path) == variant.model.sha256
