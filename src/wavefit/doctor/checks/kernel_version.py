"""Does this kernel's amdgpu offer the GPU for compute?"""

from __future__ import annotations

from functools import partial

from wavefit.device.versions import versions
from wavefit.doctor import kernel, rocm_kernels
from wavefit.doctor.container import container
from wavefit.doctor.installed import webgpu
from wavefit.doctor.machine import Machine
from wavefit.doctor.rocm_kernels import Verdict
from wavefit.schema import Device, Finding, Fix

_finding = partial(Finding, check="kernel_version", layer="driver")

# Messages of amdgpu_amdkfd_device_probe() and, later, kgd2kfd_probe(): drivers/gpu/drm/amd/amdkfd/kfd_device.c.
_NOT_SUPPORTED = r"(kfd not supported on this asic|not supported in kfd)"
_ATOMICS = r"pci rejects atomics"

_NEWER = Fix(
    command="sudo apt install linux-generic-hwe-24.04 && sudo reboot",
    why="on Ubuntu 24.04; or any newer kernel",
)
_MATRIX = "https://rocm.docs.amd.com/en/latest/compatibility/compatibility-matrix.html"

# Kernels from which on a target is said to be stable for compute, where amdgpu is the kernel's own.
# gfx1151: github.com/kyuz0/amd-strix-halo-toolboxes, README, "Stable Configuration" (a bug below 6.18.4); AMD, "Strix
# Halo system optimization": 6.18.4 or later outside Ubuntu, whose own kernels have the mend.
_STABLE_FROM = {"gfx1151": (6, 18, 4)}


def check(machine: Machine) -> list[Finding]:
    """Whether KFD lists a GPU is asked first: that is what the kernel's version decides.

    A container sees of KFD's list only what its cgroup allows (kfd_devcgroup_check_permission() in kfd_priv.h), so
    nothing is concluded there.
    """
    findings = []
    for gpu in kernel.gpus(machine):
        if kernel.driver(gpu) != "amdgpu":
            continue
        listed = kernel.computes(machine, gpu)
        if listed:
            finding = _listed(machine, gpu)
            findings += [finding] if finding not in findings else []  # of several alike cards, one note
        elif listed is False and container(machine) is None:
            findings += _left_out(machine, gpu)
    return findings


def _listed(machine: Machine, gpu: Device) -> Finding:
    release = kernel.release(machine)
    evidence = ["/sys/class/kfd/kfd/topology lists it"]
    named = rocm_kernels.verdict(machine, gpu)
    if named is not None and named.fits == "inside":
        evidence.append(f"AMD names it for ROCm {named.rocm} on {named.os}: {_range(named)}")
    elif (wanted := _unstable(machine, gpu)) is not None:
        return _finding(
            status="note",
            title=f"kernel {release} may be unstable with {gpu.gfx} in compute",
            evidence=("/proc/sys/kernel/osrelease", "amdgpu is the kernel's own"),
            cause=f"compute hangs were mended in Linux {'.'.join(map(str, wanted))}",
            fixes=(_NEWER,),
            verify="uname -r",
        )
    elif named is not None:
        return _not_named(release, named, evidence)
    return _finding(
        status="ok",
        title=f"kernel {release or 'of unknown version'} offers {kernel.called(gpu)} for compute",
        evidence=tuple(evidence),
    )


def _unstable(machine: Machine, gpu: Device) -> tuple[int, int, int] | None:
    """The kernel from which on a target is stable, where this one is older and amdgpu is its own."""
    running, wanted = kernel.version(kernel.release(machine)), _STABLE_FROM.get(gpu.gfx or "")
    if running is None or wanted is None or running >= wanted or "amdgpu" in versions(machine.root):
        return None
    return wanted


def _not_named(release: str | None, named: Verdict, evidence: list[str]) -> Finding:
    return _finding(
        status="note",
        title=f"kernel {release} is {named.fits} than those that AMD names for ROCm {named.rocm} on {named.os}",
        evidence=(*evidence, f"AMD names {_range(named)}: {named.source}"),
        cause="AMD has not tried this pair; it often works, and the self-tests below show whether it does here",
        fixes=(Fix(command=f"xdg-open {_MATRIX}", why="which ROCm and kernel go together"),),
        verify="uname -r",
    )


def _range(named: Verdict) -> str:
    return f"Linux {named.lowest}" + ("" if named.lowest == named.highest else f" to {named.highest}")


def _left_out(machine: Machine, gpu: Device) -> list[Finding]:
    log = kernel.log(machine)
    if log is not None and log.lines(_ATOMICS):
        return []  # pcie_atomics tells
    unsupported = log.lines(_NOT_SUPPORTED) if log is not None else []
    evidence = ["/sys/class/kfd/kfd/topology does not list it"]
    if log is None:
        evidence.append("the kernel's log, which says why, cannot be read here")
    else:
        evidence += [f"{log.source}: {line}" for line in unsupported[:2]]
    if unsupported:
        return [
            _finding(
                status="note",
                title=f"the compute driver does not take {kernel.called(gpu)}: Vulkan is the route left",
                evidence=tuple(evidence),
                cause=f"kernel {kernel.release(machine)} has no compute for this chip: too old, or too new for it",
                fixes=webgpu(machine),
                verify="sudo dmesg | grep -i kfd",
            )
        ]
    return [
        _finding(
            status="problem",
            title=f"amdgpu holds {kernel.called(gpu)}, and the kernel does not offer it for compute",
            evidence=tuple(evidence),
            cause=f"kernel {kernel.release(machine)} is older than this chip, or built without CONFIG_HSA_AMD, "
            "or the chip or its slot is one that the compute driver does not take",
            fixes=(
                Fix(command="sudo dmesg | grep -iE 'kfd|amdgpu'", why="says why it was left out", safe=True),
                Fix(command="grep HSA_AMD= /boot/config-$(uname -r)", why="should say y", safe=True),
                _NEWER,
            ),
            verify="grep gfx_target_version /sys/class/kfd/kfd/topology/nodes/*/properties",
        )
    ]
