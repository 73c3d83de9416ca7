"""Can the GPU's power be read?"""

from __future__ import annotations

from functools import partial

from wavefit.device.power import hwmon
from wavefit.doctor import kernel
from wavefit.doctor.machine import Machine
from wavefit.schema import Device, Finding, Fix

_finding = partial(Finding, check="power", layer="hardware")


def check(machine: Machine) -> list[Finding]:
    """Energy is measured by amdgpu's sensors. Source: Documentation/gpu/amdgpu/thermal.rst."""
    held = [gpu for gpu in kernel.gpus(machine) if gpu.sysfs is not None and kernel.driver(gpu) == "amdgpu"]
    meters = {gpu.id: [meter.name for meter in hwmon.meters(gpu)] for gpu in held}
    readable = [gpu for gpu in held if meters[gpu.id]]
    without = [gpu for gpu in held if not meters[gpu.id]]
    return [
        *(
            _finding(
                status="ok",
                title=f"the power of {kernel.called(gpu)} can be read",
                evidence=tuple(meters[gpu.id]),
            )
            for gpu in readable
        ),
        *([_unreadable(without)] if without else []),
        *(found for gpu in held if (found := _capped(gpu)) is not None),
    ]


def _readable(gpu: Device, meters: list[str]) -> Finding:
    return _finding(
        status="ok", title=f"the power of {kernel.called(gpu)} can be read", evidence=tuple(meters)
    )


def _capped(gpu: Device) -> Finding | None:
    """Somebody lowered it: figures of this machine are then not those of the card. Source: thermal.rst, power1_cap."""
    caps = gpu.sensors
    if caps is None or caps.power_cap_w is None or caps.power_cap_default_w is None:
        return None
    if caps.power_cap_w >= caps.power_cap_default_w:
        return None
    where = f"{kernel.folder(gpu)}/hwmon/*/power1_cap"
    return _finding(
        status="note",
        title=f"{kernel.called(gpu)} may draw {caps.power_cap_w:g} W in place of {caps.power_cap_default_w:g} W",
        evidence=(f"{where} and power1_cap_default",),
        cause="a tool or a service has lowered the power cap: what is measured is slower than the card can be",
        fixes=(
            Fix(
                command="sudo rocm-smi --resetpoweroverdrive",
                why="back to the default, where ROCm is installed",
            ),
        ),
        verify=f"cat {where}",
    )


def _unreadable(gpus: list[Device]) -> Finding:
    """One note however many they are: a container hides all sensors alike."""
    first = kernel.folder(gpus[0])
    return _finding(
        status="note",
        title=f"the power of {', '.join(map(kernel.called, gpus))} cannot be read: energy will not be measured",
        evidence=tuple(f"no readable power or energy below {kernel.folder(gpu)}/hwmon" for gpu in gpus),
        cause="this chip's firmware reports none, or a container hides it",
        fixes=(Fix(command=f"grep -H . {first}/hwmon/*/power*", safe=True),),
        verify=f"cat {first}/hwmon/*/power1_average",
    )
