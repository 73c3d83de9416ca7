"""A CPU's package energy from RAPL's counters in /sys/class/powercap (Intel, and AMD from Zen on).

Unit: microjoules, starting again from 0 after max_energy_range_uj. Source: Linux,
Documentation/power/powercap/powercap.rst. Since 2020 (CVE-2020-8694) only root may read them: then there is no meter.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from wavefit.device.files import children, read_int, read_text
from wavefit.device.power import Meter
from wavefit.device.power._clock import CounterMeter, Unwrapped
from wavefit.schema import Device


def meters(device: Device) -> list[Meter]:
    """One meter of all the CPU's packages together; none where one of them cannot be read."""
    if device.kind != "cpu" or device.sysfs is None:
        return []
    zones = {}
    for zone in children(Path(device.sysfs), r"intel-rapl:\d+"):
        name = read_text(zone / "name") or ""
        if name.startswith("package"):
            zones[name] = zone
    if not zones or any(read_int(zone / "energy_uj") is None for zone in zones.values()):
        return []
    counters = [
        Unwrapped(partial(read_int, zone / "energy_uj"), read_int(zone / "max_energy_range_uj"))
        for zone in zones.values()
    ]
    return [CounterMeter(f"rapl {' + '.join(zones)}", "package", partial(_joules, counters))]


def _joules(counters: list[Unwrapped]) -> float | None:
    values = [counter() for counter in counters]
    known = [value for value in values if value is not None]
    return sum(known) / 1e6 if len(known) == len(values) else None
