"""An NVIDIA card's energy from NVML (package nvidia-ml-py, extra ``wavefit[nvml]``).

Source: NVML API reference: nvmlDeviceGetTotalEnergyConsumption gives millijoules since the driver was loaded (Volta and
newer), nvmlDeviceGetPowerUsage milliwatts "of the GPU and its associated circuitry (e.g. memory)".
"""

from __future__ import annotations

from functools import partial
from typing import Any

from wavefit.device.power import Meter
from wavefit.device.power._clock import CounterMeter, PowerMeter
from wavefit.schema import Device


def meters(device: Device) -> list[Meter]:
    """The energy counter where the card has one, else its power."""
    if device.vendor != "nvidia" or device.pci_address is None:
        return []
    try:
        import pynvml
    except ImportError:
        return []
    try:
        pynvml.nvmlInit()  # stays open while the process lives: the meters read through it
        handle = pynvml.nvmlDeviceGetHandleByPciBusId(device.pci_address.encode())
    except pynvml.NVMLError:
        return []
    joules = partial(_milli, pynvml, pynvml.nvmlDeviceGetTotalEnergyConsumption, handle)
    if joules() is not None:
        return [CounterMeter("nvml total energy", "card", joules)]
    watts = partial(_milli, pynvml, pynvml.nvmlDeviceGetPowerUsage, handle)
    return [PowerMeter("nvml power", "card", watts)] if watts() is not None else []


def _milli(nvml: Any, ask: Any, handle: Any) -> float | None:
    try:
        return float(ask(handle)) / 1e3
    except nvml.NVMLError:
        return None
