"""What this machine is: every source asked once, merged into Devices."""

from __future__ import annotations

from pathlib import Path

from wavefit.device.cpu import cpu
from wavefit.schema import Device


def probe(root: Path = Path("/")) -> tuple[Device, ...]:
    """The devices of a machine: the CPU first, then GPUs in PCI order.

    Args:
        root: "/" for this machine; any other folder is a recorded tree, and nothing outside it is asked.
    """
    return (cpu(root),)
