"""What tuning has found out about an OpenCL device; see :mod:`wavefit.native.tuned`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from wavefit.native import tuned
from wavefit.native.opencl.kernels import TEMPLATES
from wavefit.native.operation import Config
from wavefit.native.tuned import Begun, Choice, Evaluated, Store

__all__ = [
    "Begun",
    "Choice",
    "Evaluated",
    "Store",
    "code_hash",
    "code_hashes",
    "known",
    "open_store",
    "state",
    "store",
]


def store(device: Any, folder: Path | None = None) -> Store:
    """Of a ``pyopencl.Device``; ``folder`` is None for the user's cache."""
    return tuned.store(device.name.strip(), device.driver_version.strip(), TEMPLATES, folder)


def open_store(path: Path) -> Store:
    """A file of this language's."""
    return Store(path, TEMPLATES)


def known(device: Any, folder: Path | None = None) -> dict[str, tuple[str, Config]]:
    """Template and configuration by ``Operation.key``, of the operations where tuning beat the prediction."""
    return tuned.choices(store(device, folder))


def state(folder: Path | None = None) -> str | None:
    """How many operations are tuned on this machine, with a short hash of how; None where nothing is."""
    return tuned.state(TEMPLATES, folder)


def code_hash(template: str) -> str:
    """See :meth:`Store.code_hash`."""
    return tuned.code_hash(TEMPLATES, template)


def code_hashes(names: Iterable[str]) -> dict[str, str]:
    return tuned.code_hashes(TEMPLATES, names)
