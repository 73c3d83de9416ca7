"""A bundle's variants: files in ``variants/``, and what was found out, so that the same search is not made twice."""

from __future__ import annotations

import shutil
from pathlib import Path

from msgspec import structs

from wavefit.bundle.files import copy_whole, sha256
from wavefit.precision.search.records import INDEX, Made, read_found
from wavefit.schema import Variant

FOLDER = "variants"


def known(key: str, folder: Path, whole: bool = True) -> Made | None:
    """What an earlier search in that folder came to; None where there was none or a file of it has changed.

    Args:
        whole: only where the search had ended by itself.
    """
    found = read_found(key, folder)
    if found is None or (whole and not found.whole):
        return None
    made = structs.replace(
        found.made, variants=tuple(located(variant, folder) for variant in found.made.variants)
    )
    return made if all(_whole(variant) for variant in made.variants) else None


def located(variant: Variant, folder: Path) -> Variant:
    """The variant with its file where it lies in ``folder``."""
    path = str((folder / f"{variant.name}.onnx").resolve())
    return structs.replace(variant, model=structs.replace(variant.model, path=path))


def copy_variants(variants: tuple[Variant, ...], source: Path, folder: Path) -> list[str]:
    """Copies variants' files into a bundle and removes those of others; returns names relative to the bundle."""
    names = [INDEX] if (source / INDEX).is_file() else []
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
