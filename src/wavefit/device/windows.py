"""GPUs on Windows, from the display adapters' registry keys: no sysfs there. Nothing on other systems.

Source: Microsoft, "System-Defined Device Setup Classes" (the class GUID of display adapters).
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from wavefit.device.system import is_machine
from wavefit.schema import Device, Pool

_ADAPTERS = r"SYSTEM\CurrentControlSet\Control\Class\{4d36e968-e325-11ce-bfc1-08002be10318}"
_VENDORS = {"1002": "amd", "10de": "nvidia", "8086": "intel"}


def gpus(root: Path) -> list[Device]:
    """One Device a display adapter of a vendor whose GPUs compute. Address and link stay unknown."""
    if sys.platform != "win32" or not is_machine(root):
        return []
    return [device for values in _adapters() if (device := describe(values)) is not None]


def describe(values: dict[str, object]) -> Device | None:
    """A Device from one adapter's registry values."""
    match = re.search(r"ven_([0-9a-f]{4})&dev_([0-9a-f]{4})", str(values.get("MatchingDeviceId", "")).lower())
    if match is None or match[1] not in _VENDORS:
        return None
    size, version = values.get("HardwareInformation.qwMemorySize"), values.get("DriverVersion")
    known = isinstance(size, int) and size > 0
    return Device(
        id="",
        kind="gpu",
        vendor=_VENDORS[match[1]],
        name=str(values["DriverDesc"]) if "DriverDesc" in values else None,
        pci_id=f"{match[1]}:{match[2]}",
        memory=(Pool(name="vram", total_bytes=int(str(size)), source="registry qwMemorySize"),)
        if known
        else (),
        driver=str(version) if version else None,
    )


def _adapters() -> list[dict[str, object]]:
    if sys.platform != "win32":
        return []
    import winreg

    found = []
    for number in range(32):
        try:
            with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, rf"{_ADAPTERS}\{number:04}") as key:
                count = winreg.QueryInfoKey(key)[1]
                found.append(
                    {name: value for name, value, _ in (winreg.EnumValue(key, i) for i in range(count))}
                )
        except OSError:
            continue
    return found
