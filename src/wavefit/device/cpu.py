"""The CPU: from /proc and /sys on Linux, from psutil elsewhere; limits of affinity and cgroups included."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from wavefit.device.cgroup import cpu_limit, memory_limit
from wavefit.device.files import exists, read_int, read_pairs, read_text, to_int
from wavefit.device.system import is_machine, machine
from wavefit.schema import Device, Pool

_VENDORS = {
    "AuthenticAMD": "amd",
    "GenuineIntel": "intel",
    "HygonGenuine": "hygon",
}  # CPUID leaf 0, as cpuinfo shows it

# Linux, arch/x86/include/asm/cpufeatures.h and arch/arm64/kernel/cpuinfo.c: what int8, half and bfloat16 run on
_VECTOR_FLAGS = ("amx_", "asimd", "avx", "bf16", "f16c", "fma", "i8mm", "sve")  # what their names begin with


def cpu(root: Path) -> Device:
    """The CPU as this process may use it: within its affinity mask, its cgroup's quota and memory limit."""
    blocks = _processors(root)
    first = next(iter(blocks.values()), {})
    cores, threads = _counts(root, blocks)
    return Device(
        id="cpu",
        kind="cpu",
        vendor=_VENDORS.get(first.get("vendor_id", "")),
        name=first.get("model name") or first.get("Model") or _name(root),
        compute_units=cores,
        threads=threads,
        features=_features(first),
        memory=_memory(root),
        sysfs=str(powercap) if exists(powercap := root / "sys/class/powercap") else None,
        machine=machine(root),
    )


def _processors(root: Path) -> dict[int, dict[str, str]]:
    """The blocks of /proc/cpuinfo by processor number."""
    blocks = {}
    for text in (read_text(root / "proc/cpuinfo") or "").split("\n\n"):
        block = {
            key.strip(): value.strip()
            for key, _, value in (line.partition(":") for line in text.splitlines())
        }
        number = to_int(block.get("processor"))
        if number is not None:
            blocks[number] = block
    return blocks


def _features(block: dict[str, str]) -> tuple[str, ...]:
    """The vector instructions among a processor's flags ("Features" on ARM)."""
    flags = (block.get("flags") or block.get("Features") or "").split()
    return tuple(sorted(flag for flag in set(flags) if flag.startswith(_VECTOR_FLAGS)))


def _name(root: Path) -> str | None:
    return (platform.processor() or platform.machine() or None) if is_machine(root) else None


def _counts(root: Path, blocks: dict[int, dict[str, str]]) -> tuple[int | None, int | None]:
    """Cores and hardware threads that may be used."""
    numbers = set(blocks)
    if is_machine(root):
        if hasattr(os, "sched_getaffinity"):
            numbers = set(os.sched_getaffinity(0))
        elif not numbers:
            return _counts_elsewhere()
    if not numbers:
        return None, None
    threads = min(len(numbers), cpu_limit(root) or len(numbers))
    cores = {_core(root, number, blocks.get(number, {})) for number in numbers}
    return (None if None in cores else min(len(cores), threads)), threads


def _core(root: Path, number: int, block: dict[str, str]) -> tuple[int | None, int] | None:
    """Package and core that a processor belongs to; None where nothing says so."""
    topology = root / f"sys/devices/system/cpu/cpu{number}/topology"
    core = read_int(topology / "core_id")
    if core is not None:
        return read_int(topology / "physical_package_id"), core
    core = to_int(block.get("core id"))
    return None if core is None else (to_int(block.get("physical id")), core)


def _counts_elsewhere() -> tuple[int | None, int | None]:
    import psutil

    return psutil.cpu_count(logical=False), psutil.cpu_count()


def _memory(root: Path) -> tuple[Pool, ...]:
    info = {
        key: to_int(value.removesuffix(" kB"))
        for key, value in read_pairs(root / "proc/meminfo", ":").items()
    }
    total, free = info.get("MemTotal"), info.get("MemAvailable")
    if total is not None and total > 0:
        pool = Pool(
            name="ram",
            total_bytes=total << 10,
            free_bytes=None if free is None else free << 10,
            source="/proc/meminfo",
        )
        return (memory_limit(root, pool),)
    if not is_machine(root):
        return ()
    import psutil

    try:
        memory = psutil.virtual_memory()
    except OSError:
        return ()  # a Linux without /proc
    return (Pool(name="ram", total_bytes=memory.total, free_bytes=memory.available, source="psutil"),)
