"""What a measuring child is told, and what it answers."""

from __future__ import annotations

from wavefit.schema import Device, Runtime, Struct


class Order(Struct, frozen=True, kw_only=True):
    """Measure a device through one runtime."""

    device: Device
    runtime: Runtime


class Reading(Struct, frozen=True, kw_only=True):
    """The median of several runs."""

    value: float
    unit: str
    runs: int
    how: str  # what was run: "copy of 256 MiB, read and written"


class Readings(Struct, frozen=True, kw_only=True):
    """All that was measured, by the name of the peak."""

    runtime: str  # with its version, for people: "PyTorch 2.9.1+rocm6.4"
    readings: dict[str, Reading]
