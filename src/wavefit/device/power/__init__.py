"""Power meters: one a file, found by its name. Adding one edits nothing else.

A meter's module ``power/NAME.py`` (no leading underscore) offers ``meters(device) -> list[Meter]``: those of its meters
that can be read here and now, none where there are none. A reading that is missing, "N/A" or an error is None, never 0.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Literal, Protocol

from wavefit.schema import Device, Power

Covers = Literal["card", "package", "chip"]


class Meter(Protocol):
    """Something that tells the energy between two moments. Used once at a time; start and stop may be repeated."""

    @property
    def name(self) -> str:
        """The source, for people: "amdgpu hwmon power1_average (PPT)"."""
        ...

    @property
    def covers(self) -> Covers:
        """What the figure includes: the whole card, the package (on an APU: CPU and GPU), or the chip alone."""
        ...

    def start(self) -> None:
        """Begins to measure."""
        ...

    def stop(self, inferences: int) -> Power | None:
        """Ends, and gives the energy since start; None where too little could be read.

        Args:
            inferences: items inferred since start, for joules per inference; 0 leaves that None.
        """
        ...


def meters(device: Device) -> list[Meter]:
    """The meters of a device, in the order of their files' names. They overlap: never add one to another."""
    found: list[Meter] = []
    for entry in pkgutil.iter_modules(__path__):
        if not entry.name.startswith("_"):
            found += importlib.import_module(f"{__name__}.{entry.name}").meters(device)
    return found
