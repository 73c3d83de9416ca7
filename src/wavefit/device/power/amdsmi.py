"""An AMD Instinct card's energy counter from AMD SMI (package amdsmi, part of ROCm).

Source: amdsmi's amdgpu reference, amdsmi_get_energy_count: an accumulator times a resolution in microjoules. Cards and
APUs without that counter have their power from hwmon. Never run on AMD hardware by the authors.
"""

from __future__ import annotations

import contextlib
import io
from functools import partial
from typing import Any

from wavefit.device.power import Covers, Meter
from wavefit.device.power._clock import CounterMeter
from wavefit.schema import Device

_FULL = 2**64 - 1  # "not supported"


def meters(device: Device) -> list[Meter]:
    """The energy counter, where AMD SMI is installed and the card has one."""
    if device.vendor != "amd" or device.kind != "gpu" or device.pci_address is None:
        return []
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # it prints why it could not load
            import amdsmi
    except (
        ImportError,
        OSError,
        KeyError,
        AttributeError,
    ):  # without libamd_smi.so its import ends in a KeyError
        return []
    try:
        amdsmi.amdsmi_init()  # stays open while the process lives
        handle = amdsmi.amdsmi_get_processor_handle_from_bdf(device.pci_address)
    except amdsmi.AmdSmiException:
        return []
    read = partial(_joules, amdsmi, handle)
    covers: Covers = "package" if device.integrated else "card"
    return [CounterMeter("amdsmi energy count", covers, read)] if read() is not None else []


def _joules(amdsmi: Any, handle: Any) -> float | None:
    try:
        count = amdsmi.amdsmi_get_energy_count(handle)
    except amdsmi.AmdSmiException:
        return None
    total, microjoules = count.get("energy_accumulator", count.get("power")), count.get("counter_resolution")
    known = isinstance(total, int) and isinstance(microjoules, float) and 0 < total < _FULL
    return total * microjoules / 1e6 if known else None
