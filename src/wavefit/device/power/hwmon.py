"""A GPU driver's sensors in sysfs: power and energy channels of hwmon.

Units: microwatts and microjoules. Source: Linux, Documentation/hwmon/sysfs-interface.rst, and for amdgpu
Documentation/gpu/amdgpu/thermal.rst: power1_average and power1_input are those of the SoC, on APUs including the CPU.
Two channels (slowPPT and fastPPT on the Steam Deck) are the same power over two windows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from wavefit.device.files import children, read_int, read_text
from wavefit.device.power import Covers, Meter
from wavefit.device.power._clock import CounterMeter, PowerMeter
from wavefit.schema import Device

_UNKNOWN = frozenset((0, 0xFFFF, 0xFFFF_FFFF, 0xFFFF * 10**6))
"""What firmware reports for "not known", bare or scaled from watts. 0: the second die of a card with two."""


def meters(device: Device) -> list[Meter]:
    """One meter a channel that can be read now: energy counters first, then power."""
    if device.kind != "gpu" or device.sysfs is None:
        return []
    folders = list(children(Path(device.sysfs) / "hwmon", r"hwmon\d+"))
    found: list[Meter] = []
    for folder in folders:
        found += _energy(folder, device)
    for folder in folders:
        found += _power(folder, device)
    return found


def _energy(folder: Path, device: Device) -> list[Meter]:
    found: list[Meter] = []
    for path in children(folder, r"energy\d+_input"):
        read = partial(_micro, path)
        if read() is not None:
            label = read_text(folder / path.name.replace("_input", "_label"))
            found.append(CounterMeter(_name(folder, path, label), _covers(label, device), read))
    return found


def _power(folder: Path, device: Device) -> list[Meter]:
    found: list[Meter] = []
    channels = sorted({path.name.partition("_")[0] for path in children(folder, r"power\d+_(average|input)")})
    for channel in channels:
        label = read_text(folder / f"{channel}_label")
        for path in (folder / f"{channel}_average", folder / f"{channel}_input"):
            read: Callable[[], float | None] = partial(_micro, path)
            if read() is not None:  # the average where it can be read: it misses no peak between two readings
                found.append(PowerMeter(_name(folder, path, label), _covers(label, device), read))
                break
    return found


def _micro(path: Path) -> float | None:
    value = read_int(path)
    return None if value is None or value < 0 or value in _UNKNOWN else value / 1e6


def _name(folder: Path, path: Path, label: str | None) -> str:
    name = f"{read_text(folder / 'name') or 'unnamed'} hwmon {path.name}"
    return f"{name} ({label})" if label else name


def _covers(label: str | None, device: Device) -> Covers:
    """PPT is package power tracking. On an APU every channel is the package's."""
    return "package" if device.integrated or "PPT" in (label or "") else "card"
