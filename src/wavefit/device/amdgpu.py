"""What the amdgpu driver adds in a GPU's PCI folder: memory pools, product name, what hwmon betrays of the chip.

Source of the files' meaning: Linux, Documentation/gpu/amdgpu/driver-misc.rst and thermal.rst.
"""

from __future__ import annotations

from pathlib import Path

from wavefit.device import partitions, pci
from wavefit.device.files import children, read_int, read_text
from wavefit.device.sensors import sensors
from wavefit.device.versions import amdgpu_driver
from wavefit.schema import Device, Pool

_POOLS = ("vram", "gtt", "vis_vram")


def gpus(root: Path) -> list[Device]:
    """One Device for each GPU of AMD's, with what only amdgpu says."""
    found = []
    for folder in pci.folders(root):
        known, where = pci.ids(folder), pci.address(folder)
        if known is None or known[0] != 0x1002 or where is None:
            continue
        pools = [pool for name in _POOLS if (pool := _pool(folder, name)) is not None]
        found.append(
            Device(
                id="",
                kind="gpu",
                name=read_text(folder / "product_name"),
                integrated=_integrated(folder),
                pci_address=where,
                memory=tuple(pools),
                sensors=sensors(monitor) if (monitor := hwmon(folder)) is not None else None,
                partition_mode=partitions.mode(folder),
                driver=amdgpu_driver(root) if monitor or pools else None,
            )
        )
    return found


def hwmon(folder: Path) -> Path | None:
    """The folder of amdgpu's sensors."""
    for candidate in children(folder / "hwmon", r"hwmon\d+"):
        if read_text(candidate / "name") in ("amdgpu", None):
            return candidate
    return None


def _pool(folder: Path, name: str) -> Pool | None:
    path = folder / f"mem_info_{name}_total"
    total, used = read_int(path), read_int(folder / f"mem_info_{name}_used")
    if total is None or total <= 0:
        return None
    free = total - used if used is not None and 0 <= used <= total else None
    return Pool(name=name, total_bytes=total, free_bytes=free, source=f"amdgpu {path.name}")


def _integrated(folder: Path) -> bool | None:
    """From the sensors. Source: hwmon_attributes_visible() in drivers/gpu/drm/amd/pm/amdgpu_pm.c: only APUs have a
    northbridge voltage "vddnb" and only cards a memory clock "mclk". (MI300A is an APU with the second; its target is
    told apart by PCI id.)
    """
    monitor = hwmon(folder)
    if monitor is None:
        return None
    if read_text(monitor / "in1_label") == "vddnb":
        return True
    instinct = (pci.ids(folder) or (0, 0))[1] == 0x74A0
    return False if read_text(monitor / "freq2_label") == "mclk" and not instinct else None
