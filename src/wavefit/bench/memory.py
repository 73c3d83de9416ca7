"""The most memory that this process has held."""

from __future__ import annotations

import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")


def host_peak_bytes() -> int | None:
    """The largest resident size of this process so far, in bytes; None where the system does not tell.

    On Linux this is VmHWM, not getrusage's ru_maxrss: that one starts, in a child process, at the peak of the
    parent that started it (getrusage(2): the value survives execve).
    """
    if sys.platform == "win32":
        import psutil

        return int(psutil.Process().memory_info().peak_wset)
    if sys.platform == "linux":
        return _high_water_mark(_STATUS)
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS


def _high_water_mark(status: Path) -> int | None:
    """VmHWM of a /proc/PID/status; proc(5) gives it in units of 1,024 bytes."""
    try:
        lines = status.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, value = line.partition(":")
        if name == "VmHWM":
            return int(value.split()[0]) * 1024
    return None
