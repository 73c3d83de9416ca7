"""Can the GPU's power be read?"""

from __future__ import annotations

from wavefit.device.power import hwmon
from wavefit.doctor import kernel
from wavefit.doctor.machine import Machine
from wavefit.schema import Finding, Fix


def check(machine: Machine) -> list[Finding]:
    """Energy is measured by amdgpu's sensors. Source: Documentation/gpu/amdgpu/thermal.rst."""
    findings = []
    for gpu in kernel.gpus(machine):
        if gpu.sysfs is None or kernel.driver(gpu) != "amdgpu":
            continue
        meters = [meter.name for meter in hwmon.meters(gpu)]
        called = kernel.called(gpu)
        if meters:
            findings.append(_finding("ok", f"the power of {called} can be read", evidence=tuple(meters)))
        else:
            findings.append(
                _finding(
                    "note",
                    f"the power of {called} cannot be read: energy will not be measured",
                    evidence=(f"no readable power or energy below {kernel.folder(gpu)}/hwmon",),
                    cause="this chip's firmware reports none, or a container hides it",
                    fixes=(Fix(command=f"grep -H . {kernel.folder(gpu)}/hwmon/*/power*", safe=True),),
                    verify=f"cat {kernel.folder(gpu)}/hwmon/*/power1_average",
                )
            )
    return findings


def _finding(status: str, title: str, **known: object) -> Finding:
    return Finding(check="power", layer="hardware", status=status, title=title, **known)  # type: ignore[arg-type]
