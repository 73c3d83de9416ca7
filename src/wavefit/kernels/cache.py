"""Compiled kernels, kept in the user's cache: the same source for the same target is compiled once."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from wavefit.device.user_cache import user_cache
from wavefit.kernels.code_object import KernelResources
from wavefit.kernels.toolchain import HEADER, Toolchain
from wavefit.schema import Struct, fingerprint

_FORM = 1  # raised when the same code object would be read otherwise


class Question(Struct, frozen=True, kw_only=True):
    """All that a result depends on."""

    source: str
    target: str
    toolchain: str
    options: tuple[str, ...]
    header: str
    form: int = _FORM


class Kept(Struct, frozen=True, kw_only=True):
    """The answer: kernels, or why there are none."""

    kernels: tuple[KernelResources, ...] = ()
    failed: str | None = None


class Cache:
    """Results in a folder, one file each.

    Args:
        folder: None for the user's cache.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or user_cache() / "kernels"
        self._header = HEADER.read_text("utf-8")

    def key(self, source: str, target: str, toolchain: Toolchain, options: tuple[str, ...]) -> str:
        header = self._header if toolchain.library is None else toolchain.library
        return fingerprint(
            Question(
                source=source, target=target, toolchain=toolchain.version, options=options, header=header
            )
        )

    def get(self, key: str) -> Kept | None:
        """None where there is none, or it cannot be read."""
        try:
            return msgspec.json.decode((self._folder / f"{key}.json").read_bytes(), type=Kept)
        except (OSError, msgspec.DecodeError):
            return None

    def put(self, key: str, kept: Kept) -> None:
        """Keeps it; where the folder cannot be written, it is compiled again next time."""
        path = self._folder / f"{key}.json"
        part = path.with_suffix(f".{os.getpid()}.part")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            part.write_bytes(msgspec.json.encode(kept))
            part.replace(path)
        except OSError:
            return
