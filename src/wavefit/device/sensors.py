"""A GPU's power caps and fan, from amdgpu's hwmon folder.

Source: Linux, Documentation/gpu/amdgpu/thermal.rst: caps in microwatts, fan speed in revolutions a minute. Of two
channels (slowPPT and fastPPT on the Steam Deck) the first is the one that lasts.
"""

from __future__ import annotations

from pathlib import Path

from wavefit.device.files import read_int
from wavefit.schema import Sensors

_UNKNOWN = frozenset((0, 0xFFFF * 10**6))  # a card's second die says 0; firmware says 0xFFFF for "not known"


def sensors(hwmon: Path) -> Sensors | None:
    """What the folder says, None where it says nothing."""
    found = Sensors(
        power_cap_w=_watts(hwmon / "power1_cap"),
        power_cap_default_w=_watts(hwmon / "power1_cap_default"),
        power_cap_max_w=_watts(hwmon / "power1_cap_max"),
        fan_rpm=_rpm(hwmon / "fan1_input"),
        fan_max_rpm=_rpm(hwmon / "fan1_max"),
    )
    return found if found != Sensors() else None


def _watts(path: Path) -> float | None:
    value = read_int(path)
    return None if value is None or value < 0 or value in _UNKNOWN else value / 1e6


def _rpm(path: Path) -> float | None:
    value = read_int(path)
    return None if value is None or not 0 <= value < 0xFFFF else float(value)
