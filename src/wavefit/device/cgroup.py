"""What the control groups of this process allow it: CPU quota and memory, versions 1 and 2.

Source: Linux, Documentation/admin-guide/cgroup-v2.rst (cpu.max, memory.max, memory.current, memory.stat) and
cgroup-v1/memory.rst, scheduler/sched-bwc.rst.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import msgspec

from wavefit.device.files import read_int, read_pairs, read_text, to_int
from wavefit.schema import Pool


def cpu_limit(root: Path) -> int | None:
    """Whole processors' worth of time that the tightest quota allows; None where there is no quota."""
    quotas = []
    for folder in _groups(root, "cpu"):
        quota, period = _cpu_quota(folder)
        if quota is not None and period and quota > 0:
            quotas.append(max(1, math.ceil(quota / period)))
    return min(quotas, default=None)


def _cpu_quota(folder: Path) -> tuple[int | None, int | None]:
    words = (read_text(folder / "cpu.max") or "").split()
    if len(words) == 2:
        return to_int(words[0]), to_int(words[1])
    return read_int(folder / "cpu.cfs_quota_us"), read_int(folder / "cpu.cfs_period_us")


def memory_limit(root: Path, ram: Pool) -> Pool:
    """The pool cut down to the tightest limit. Page cache that can be dropped counts as free."""
    for folder in _groups(root, "memory"):
        limit, used = _memory_use(folder)
        if limit is None or ram.total_bytes is None or limit >= ram.total_bytes:
            continue
        free = ram.free_bytes if used is None else min(max(limit - used, 0), ram.free_bytes or limit)
        ram = msgspec.structs.replace(ram, total_bytes=limit, free_bytes=free, source="cgroup memory limit")
    return ram


def _memory_use(folder: Path) -> tuple[int | None, int | None]:
    """Limit and bytes used without the droppable page cache."""
    limit, used, key = read_int(folder / "memory.max"), read_int(folder / "memory.current"), "inactive_file"
    if limit is None:
        limit, used = read_int(folder / "memory.limit_in_bytes"), read_int(folder / "memory.usage_in_bytes")
        key = "total_inactive_file"
    cache = to_int(read_pairs(folder / "memory.stat").get(key)) or 0
    return limit, None if used is None else max(used - cache, 0)


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """The folders of this process's group and of the groups above it, for one controller.

    Inside a container the group's path may be that of the host; the folder seen at the mount is then the one
    that counts, and it is always among these.
    """
    for line in (read_text(root / "proc/self/cgroup") or "0::/").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and controller not in controllers.split(","):
            continue
        mount = root / "sys/fs/cgroup" / (controller if controllers else "")
        group = Path(path.lstrip("/"))
        for part in (group, *group.parents):
            if ".." not in part.parts:
                yield mount / part
