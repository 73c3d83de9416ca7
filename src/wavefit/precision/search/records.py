"""What a search is asked and what it answers."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

from wavefit.errors import InputError
from wavefit.schema import Device, Model, Precision, Request, Struct, Unsupported, Variant, decode, encode

_PACKAGES = re.compile("onnx|onnx-ir|onnxruntime.*|amd-quark")
INDEX = "search.json"
"""The file beside the variants that says what was found out."""


class Wanted(Struct, frozen=True, kw_only=True):
    """A precision that a route would run as a file on a device."""

    precision: Precision
    route: str
    device: Device


class Making(Struct, frozen=True, kw_only=True):
    """What is to be made.

    Args:
        key: a hash of all that the variants depend on.
        reference: the folder that bench.prepare wrote.
        folder: the variants' files are written there.
    """

    key: str
    model: Model
    request: Request
    reference: str
    folder: str
    wanted: tuple[Wanted, ...]


class Made(Struct, frozen=True, kw_only=True):
    variants: tuple[Variant, ...] = ()
    refusals: tuple[Unsupported, ...] = ()


class Found(Struct, frozen=True, kw_only=True):
    """What is known by now of a search; ``key`` hashes all that it depends on."""

    key: str
    made: Made
    jobs: tuple[str, ...] = ()  # that are done
    whole: bool = False  # all are


def read_found(key: str, folder: Path) -> Found | None:
    """What an earlier search of that key came to; None where there was none, or its record is damaged."""
    index = folder / INDEX
    try:
        found = decode(index.read_bytes(), Found, str(index)) if index.is_file() else None
    except InputError:
        return None
    return found if found is not None and found.key == key else None


def write_found(found: Found, folder: Path) -> None:
    """Writes beside its place and moves it there, so that no half of it is ever read."""
    part = folder / f"{INDEX}.part"
    part.write_bytes(encode(found))
    part.replace(folder / INDEX)


def searched_with() -> tuple[str, ...]:
    """The packages that a search's result depends on, each with its version."""
    found = {str(entry.metadata["Name"]).lower(): entry.version for entry in metadata.distributions()}
    return tuple(f"{name} {found[name]}" for name in sorted(found) if _PACKAGES.fullmatch(name))
