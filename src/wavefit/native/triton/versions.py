"""Versions that code objects depend on, without importing what they are of."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def triton_version() -> str | None:
    """Of the package, by whichever name this build has it."""
    for name in ("triton", "pytorch-triton-rocm", "triton-rocm", "pytorch-triton"):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None
