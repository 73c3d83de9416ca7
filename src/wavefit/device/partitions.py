"""Cards that are divided: an MI300X in CPX mode is one card that runtimes list as eight GPUs.

Source: AMD, "AMD Instinct MI300X GPU Partitioning Overview", and AMD SMI's "GPU partitioning" (the modes SPX, DPX, TPX,
QPX and CPX, NPS1 to NPS8); amdgpu shows them in current_compute_partition and current_memory_partition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from wavefit.device.files import children, read_pairs, read_text, to_int
from wavefit.schema import Device, Partition, Runtime

_NUMBER_SHIFT = 28  # of a partition's number in location_id, on kernels that do not write it in the function


def partitions(nodes: Sequence[tuple[Path, Mapping[str, int]]]) -> tuple[Partition, ...]:
    """The parts of a card from its KFD nodes, in the nodes' order; none where it is whole."""
    if len(nodes) < 2:
        return ()
    numbers = [_number(properties) for _, properties in nodes]
    if len(set(numbers)) < len(numbers):
        numbers = list(range(len(nodes)))
    return tuple(
        Partition(
            number=number,
            compute_units=_compute_units(properties),
            memory_bytes=_memory(path),
            unique_id=f"{properties['unique_id']:x}" if properties.get("unique_id") else None,
        )
        for number, (path, properties) in zip(numbers, nodes, strict=True)
    )


def mode(folder: Path) -> str | None:
    """Compute and memory mode from a card's PCI folder, "CPX/NPS4"; None where its driver knows no modes."""
    compute = read_text(folder / "current_compute_partition")
    memory = read_text(folder / "current_memory_partition")
    known = [text for text in (compute, memory) if text and text.isalnum() and text.isupper()]
    return "/".join(known) or None


def number_runtimes(device: Device, runtimes: Sequence[tuple[Runtime, int]]) -> tuple[Runtime, ...]:
    """A runtime's entries for one card, each with the partition that it is.

    Args:
        device: the card.
        runtimes: the runtime's entries in its own order, each with the PCI function by which it calls it.

    The partition is the function, where these differ; the place, where every partition is seen; else unknown.
    """
    if not device.partitions:
        return tuple(runtime for runtime, _ in runtimes)
    numbers = [part.number for part in device.partitions]
    functions = [function for _, function in runtimes]
    if len(set(functions)) == len(functions) and len(functions) > 1 and set(functions) <= set(numbers):
        found: list[int | None] = [*functions]
    elif len(runtimes) == len(numbers):
        found = [*numbers]
    else:
        found = [None] * len(runtimes)
    return tuple(
        msgspec.structs.replace(runtime, partition=number)
        for (runtime, _), number in zip(runtimes, found, strict=True)
    )


def _number(properties: Mapping[str, int]) -> int:
    location = properties.get("location_id", 0)
    return location >> _NUMBER_SHIFT or location & 7


def _compute_units(properties: Mapping[str, int]) -> int | None:
    per_unit = properties.get("simd_per_cu", 0)
    return properties.get("simd_count", 0) // per_unit or None if per_unit > 0 else None


def _memory(node: Path) -> int | None:
    sizes = [
        to_int(read_pairs(bank / "properties").get("size_in_bytes")) or 0
        for bank in children(node / "mem_banks", r"\d+")
    ]
    return sum(sizes) or None
