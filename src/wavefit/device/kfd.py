"""AMD GPUs as the compute driver KFD shows them: /sys/class/kfd/kfd/topology/nodes.

Source of the properties' meaning: ROCr, libhsakmt/include/hsakmt/hsakmttypes.h, and Linux,
drivers/gpu/drm/amd/amdkfd/kfd_topology.c.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from wavefit.device.files import children, read_int, read_pairs, read_text, to_int
from wavefit.device.gfx import gfx_name, gfx_of_pci_id
from wavefit.device.partitions import partitions
from wavefit.schema import Device, Pool

_AMD = 0x1002
_NODES = "sys/class/kfd/kfd/topology/nodes"
_SHARED = 0xFFF8  # of a location: bus and device, without the function
Properties = dict[str, int]


def gpus(root: Path) -> list[Device]:
    """One Device a physical GPU: the partitions of a card are one, their CUs and memory added."""
    cards: dict[str, list[tuple[Path, Properties]]] = defaultdict(list)
    for node in children(root / _NODES, r"\d+"):
        properties = _properties(node / "properties")
        if _is_gpu(properties):
            address = _address(properties) if _may_be_partitioned(properties) else None
            cards[address or node.name].append((node, properties))
    return [_device(nodes) for nodes in cards.values()]


def order(root: Path) -> list[str]:
    """The GPUs' PCI addresses in the order in which ROCm and HIP number them; a card in partitions once for each.

    Source: ROCr and libhsakmt take the nodes of the topology one after another.
    """
    found = [_properties(node / "properties") for node in children(root / _NODES, r"\d+")]
    return [address for each in found if _is_gpu(each) and (address := _address(each)) is not None]


def _properties(path: Path) -> Properties:
    pairs = {key: to_int(value) for key, value in read_pairs(path).items()}
    return {key: value for key, value in pairs.items() if value is not None}


def _is_gpu(properties: Properties) -> bool:
    """A node with SIMDs. CPUs have none, and neither have NPUs; an old APU's node holds CPU cores as well."""
    return properties.get("simd_count", 0) > 0


def _address(properties: Properties) -> str | None:
    """The PCI address. A card in partitions carries the partition's number in the location: in its bits 28 to 31, or,
    on early kernels for gfx942, in the function.
    """
    location = properties.get("location_id")
    if not location or location < 0:
        return None
    location &= _SHARED if _may_be_partitioned(properties) else 0xFFFF
    domain = properties.get("domain", 0)
    return f"{domain:04x}:{location >> 8:02x}:{location >> 3 & 0x1F:02x}.{location & 7}"


def _may_be_partitioned(properties: Properties) -> bool:
    return gfx_name(properties.get("gfx_target_version")) in ("gfx942", "gfx950")


def _device(nodes: list[tuple[Path, Properties]]) -> Device:
    node, properties = nodes[0]
    device = properties.get("device_id")
    pci_id = f"{_AMD:04x}:{device:04x}" if device and properties.get("vendor_id", _AMD) == _AMD else None
    lds_kb, wave = properties.get("lds_size_in_kb"), properties.get("wave_front_size")
    clock_mhz = properties.get("max_engine_clk_fcompute")
    name = read_text(node / "name")
    return Device(
        id="",
        kind="gpu",
        vendor="amd",
        name=None if name == "ip discovery" else name,  # newer kernels know no name
        gfx=gfx_name(properties.get("gfx_target_version")) or gfx_of_pci_id(pci_id),
        integrated=True if properties.get("cpu_cores_count", 0) > 0 else None,
        pci_id=pci_id,
        pci_address=_address(properties),
        compute_units=_sum([_compute_units(each) for _, each in nodes]),
        clock_hz=clock_mhz * 1e6 if clock_mhz else None,
        wave_sizes=(wave,) if wave else (),
        lds_bytes=lds_kb << 10 if lds_kb else None,
        caches=_caches([path for path, _ in nodes]),
        memory=_heap([path for path, _ in nodes]),
        partitions=partitions(nodes),
    )


def _compute_units(properties: Properties) -> int | None:
    simds, per_unit = properties["simd_count"], properties.get("simd_per_cu", 0)
    return simds // per_unit if per_unit > 0 else None


def _sum(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if values and len(known) == len(values) else None


def _caches(nodes: list[Path]) -> dict[str, int]:
    """Sizes of the caches that the whole GPU shares; the sizes of level 1 are given for each CU or pair of them."""
    sizes: dict[str, int] = defaultdict(int)
    for node in nodes:
        for cache in children(node / "caches", r"\d+"):
            properties = _properties(cache / "properties")
            level, kilobytes = properties.get("level", 0), properties.get("size", 0)
            if level in (2, 3) and kilobytes > 0:
                sizes[f"l{level}_bytes"] += kilobytes << 10
    return dict(sizes)


def _heap(nodes: list[Path]) -> tuple[Pool, ...]:
    """What the compute driver offers: on a card its VRAM, on an APU the carve-out or the GTT, by kernel."""
    totals, free = [], []
    for node in nodes:
        for bank in children(node / "mem_banks", r"\d+"):
            total, used = (
                _properties(bank / "properties").get("size_in_bytes", 0),
                read_int(bank / "used_memory"),
            )
            if total > 0:
                totals.append(total)
                free.append(total - used if used is not None and 0 <= used <= total else None)
    if not totals:
        return ()
    return (Pool(name="kfd", total_bytes=sum(totals), free_bytes=_sum(free), source="KFD mem_banks"),)
