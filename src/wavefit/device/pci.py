"""GPUs as the PCI bus and DRM show them, whatever their driver: ids, address, link."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from wavefit.device.files import children, read_int, read_pairs, read_text, to_int
from wavefit.device.names import product_name
from wavefit.schema import Device, Link

VENDORS = {0x1002: "amd", 0x10DE: "nvidia", 0x8086: "intel"}
"""Vendors whose PCI display devices compute. Others on a server are consoles (ASPEED, Matrox) or virtual."""

ADDRESS = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"

# VGA, 3D controller (NVIDIA's cards without outputs) and other display controller. Processing accelerator (0x1200) is
# what AMD's Instinct cards are; elsewhere that class holds NPUs as well.
_DISPLAY = frozenset((0x0300, 0x0302, 0x0380))
_ACCELERATOR = 0x1200

# A card with its own PCIe switch runs at full speed behind it; the slot's link is the switch's upstream port.
# Source: pci.ids, 1002:1478 and 1002:1479 "Navi 10 XL Upstream / Downstream Port of PCI Express Switch".
_SWITCH_PORTS = frozenset((0x1478, 0x1479))


def gpus(root: Path) -> list[Device]:
    """One Device a GPU function, with what holds for every vendor."""
    return [device for folder in folders(root) if (device := _device(root, folder)) is not None]


def folders(root: Path) -> Iterator[Path]:
    """The PCI folders that may be GPUs: of the bus, and of DRM's cards where the bus was not recorded."""
    seen = set()
    for folder in children(root / "sys/bus/pci/devices", ADDRESS):
        seen.add(folder.name)
        yield folder
    for card in children(root / "sys/class/drm", r"card\d+"):
        if address(card / "device") not in seen:
            yield card / "device"


def address(folder: Path) -> str | None:
    """A PCI folder's address "0000:03:00.0", from its uevent, or from its real name."""
    slot = read_pairs(folder / "uevent", "=").get("PCI_SLOT_NAME", "").lower()
    if not re.fullmatch(ADDRESS, slot):
        try:
            slot = folder.resolve().name
        except (OSError, RuntimeError):  # a loop of links
            return None
    return slot if re.fullmatch(ADDRESS, slot) else None


def ids(folder: Path) -> tuple[int, int] | None:
    """Vendor and device, from their files or from uevent's PCI_ID."""
    vendor, device = read_int(folder / "vendor"), read_int(folder / "device")
    if vendor is None or device is None:
        match = re.fullmatch(
            r"([0-9a-fA-F]{4}):([0-9a-fA-F]{4})", read_pairs(folder / "uevent", "=").get("PCI_ID", "")
        )
        if match is None:
            return None
        vendor, device = int(match[1], 16), int(match[2], 16)
    return vendor, device


def _device(root: Path, folder: Path) -> Device | None:
    known = ids(folder)
    if known is None or known[0] not in VENDORS or not _is_gpu(folder, known[0]):
        return None
    vendor, device = known
    pairs = read_pairs(folder / "uevent", "=")
    return Device(
        id="",
        kind="gpu",
        vendor=VENDORS[vendor],
        name=product_name(root, vendor, device, read_int(folder / "revision")),
        pci_id=f"{vendor:04x}:{device:04x}",
        pci_address=address(folder),
        link=_link(folder),
        driver=pairs.get("DRIVER") or None,
        sysfs=str(folder),
    )


def _is_gpu(folder: Path, vendor: int) -> bool:
    number = read_int(folder / "class")
    if number is None:
        number = to_int("0x" + read_pairs(folder / "uevent", "=").get("PCI_CLASS", ""))
    if number is None:
        return folder.name == "device"  # what DRM calls a card is one
    kind = number >> 8
    return kind in _DISPLAY or (kind == _ACCELERATOR and VENDORS[vendor] == "amd")


def _link(folder: Path) -> Link | None:
    port = _slot_port(folder)
    link = Link(
        speed_gts=_speed(port / "current_link_speed"),
        width=_width(port / "current_link_width"),
        max_speed_gts=_speed(port / "max_link_speed"),
        max_width=_width(port / "max_link_width"),
    )
    return link if link != Link() else None


def _slot_port(folder: Path) -> Path:
    try:
        port = folder.resolve()
    except (OSError, RuntimeError):
        return folder
    while (above := ids(port.parent)) is not None and above[0] == 0x1002 and above[1] in _SWITCH_PORTS:
        port = port.parent
    return port


def _speed(path: Path) -> float | None:
    """ "16.0 GT/s PCIe" is 16.0; "Unknown" is None."""
    match = re.match(r"(\d{1,3}(?:\.\d)?) GT/s", read_text(path) or "")
    return float(match[1]) if match else None


def _width(path: Path) -> int | None:
    """Lanes; 0 and 255 stand for unknown."""
    width = read_int(path)
    return width if width is not None and 1 <= width <= 32 else None
