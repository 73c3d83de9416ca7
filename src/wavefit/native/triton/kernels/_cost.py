"""How long a kernel is expected to take."""

from __future__ import annotations

from wavefit.native.operation import Limits

LAUNCH_SECONDS = 1.3e-6  # of one kernel within a graph, from the end of the one before it
BANDWIDTH = 1e12  # bytes a second, where the device's is not known
_WAVES = 16  # of a compute unit, that full bandwidth is taken to want


def seconds(moved: float, elements: int, limits: Limits, launches: int = 1) -> float:
    """Time to move bytes with a work-item for each element."""
    filled = min(1.0, elements / (limits.wave * _WAVES * (limits.compute_units or 64)))
    return LAUNCH_SECONDS * launches + moved / (limits.bandwidth or BANDWIDTH) / max(filled, 1e-3) ** 0.5
