"""Product names, from the tables that a Linux machine has: libdrm's amdgpu.ids, then pci.ids.

One PCI id covers several products (1002:744c is the RX 7900 XTX, XT, GRE and 7900M); libdrm's table tells them apart by
the revision, and pci.ids names them all. No table, no name.
"""

from __future__ import annotations

from pathlib import Path

from wavefit.device.files import read_text

_AMDGPU_IDS = ("usr/share/libdrm/amdgpu.ids", "opt/amdgpu/share/libdrm/amdgpu.ids")
_PCI_IDS = ("usr/share/misc/pci.ids", "usr/share/hwdata/pci.ids")


def product_name(root: Path, vendor: int, device: int, revision: int | None) -> str | None:
    """The name of a PCI device, or None where no table of this machine has it."""
    if vendor == 0x1002 and revision is not None:
        for path in _AMDGPU_IDS:
            name = _from_amdgpu_ids(read_text(root / path) or "", device, revision)
            if name:
                return name
    for path in _PCI_IDS:
        name = _from_pci_ids(read_text(root / path) or "", vendor, device)
        if name:
            return name
    return None


def _from_amdgpu_ids(text: str, device: int, revision: int) -> str | None:
    """Lines "744C,\\tC8,\\tAMD Radeon RX 7900 XTX"."""
    wanted = [f"{device:X}", f"{revision:02X}"]
    for line in text.splitlines():
        fields = [field.strip() for field in line.split(",", 2)]
        if len(fields) == 3 and [field.upper() for field in fields[:2]] == wanted:
            return fields[2] or None
    return None


def _from_pci_ids(text: str, vendor: int, device: int) -> str | None:
    """A vendor's line "1002  Advanced Micro Devices", then its devices, each after one tab."""
    inside = False
    for line in text.splitlines():
        if not line.startswith("\t"):
            inside = line.startswith(f"{vendor:04x} ")
        elif inside and line.startswith(f"\t{device:04x} "):
            return line[5:].strip() or None
    return None
