"""Is the amdgpu driver loaded and bound to each AMD GPU?"""

from __future__ import annotations

from functools import partial

from wavefit.device.system import is_wsl
from wavefit.doctor import driver, kernel
from wavefit.doctor.machine import Machine
from wavefit.schema import Device, Finding, Fix

CHECK = "amdgpu_module"
_finding = partial(Finding, check=CHECK, layer="driver")
VERIFY = "lspci -nnk -d 1002:"

# What holds GPUs for virtual machines: Documentation/driver-api/vfio.rst; Xen's pciback.
_LENT = frozenset(("vfio-pci", "pci-stub", "xen-pciback", "pciback"))


def check(machine: Machine) -> list[Finding]:
    gpus = kernel.gpus(machine)
    if not gpus:
        return [_none()] if not machine.amd_gpus and not is_wsl(machine.root) else []
    findings = [_lent(gpu) for gpu in gpus if kernel.driver(gpu) in _LENT]
    findings += [_other(gpu) for gpu in gpus if kernel.driver(gpu) not in (None, "", "amdgpu", *_LENT)]
    cause = driver.cause(machine)
    if cause is not None and cause.kind not in ("dkms", "secure boot", "firmware"):  # checks of their own
        findings.append(_unbound(machine, cause))
    bound = [gpu for gpu in gpus if kernel.driver(gpu) == "amdgpu"]
    if bound and len(bound) == len(gpus):
        findings.append(_ok(machine, bound))
    return findings


def _none() -> Finding:
    return _finding(
        status="note",
        title="no AMD GPU is on the PCI bus",
        evidence=("no display device of vendor 0x1002 below /sys/bus/pci/devices",),
        cause="this machine has none, or its firmware or virtual machine does not show it",
        verify="lspci -nn -d 1002:",
    )


def _ok(machine: Machine, bound: list[Device]) -> Finding:
    evidence = [f"{kernel.called(gpu)} is bound to amdgpu" for gpu in bound]
    for statement in driver.blacklisting(machine):
        evidence.append(f"{statement}, and the driver is loaded all the same")
    return _finding(
        status="ok", title="the amdgpu driver holds every AMD GPU", evidence=tuple(evidence), verify=VERIFY
    )


def _lent(gpu: Device) -> Finding:
    address = gpu.pci_address or "ADDRESS"
    return _finding(
        status="problem",
        title=f"{kernel.called(gpu)} is lent to a virtual machine",
        evidence=(f"{kernel.folder(gpu)}/uevent: DRIVER={kernel.driver(gpu)}",),
        cause="a driver that hands PCI devices to virtual machines holds it, so amdgpu cannot",
        fixes=(
            Fix(
                command=f"echo {address} | sudo tee /sys/bus/pci/drivers/{kernel.driver(gpu)}/unbind",
                why="only when no virtual machine uses it",
            ),
            Fix(
                command=f"echo | sudo tee /sys/bus/pci/devices/{address}/driver_override && sudo modprobe amdgpu"
                f" && echo {address} | sudo tee /sys/bus/pci/drivers_probe",
                why="then gives it back to amdgpu",
            ),
            Fix(
                command="grep -rE 'vfio|pci-stub' /etc/modprobe.d /proc/cmdline",
                why="shows what lends it at each start",
                safe=True,
            ),
        ),
        verify=VERIFY,
    )


def _other(gpu: Device) -> Finding:
    """The radeon driver has no compute. It takes chips up to Sea Islands, GCN 1 and 2, unless told otherwise.

    Source: amdgpu's module parameters si_support and cik_support, Documentation/gpu/amdgpu/module-parameters.rst.
    """
    return _finding(
        status="note",
        title=f"{kernel.called(gpu)} is held by the driver {kernel.driver(gpu)}, which does not compute",
        evidence=(f"{kernel.folder(gpu)}/uevent: DRIVER={kernel.driver(gpu)}",),
        cause="chips before GCN 3 go to the radeon driver by default, and ROCm supports none of them",
        fixes=(
            Fix(
                command="radeon.si_support=0 radeon.cik_support=0 amdgpu.si_support=1 amdgpu.cik_support=1",
                why="on the kernel's command line gives GCN 1 and 2 to amdgpu, for Vulkan",
            ),
        ),
        verify=VERIFY,
    )


def _unbound(machine: Machine, cause: driver.Cause) -> Finding:
    without = driver.unbound(machine)
    why, fixes = _EXPLAINED[cause.kind]
    return _finding(
        status="problem",
        title=f"no driver holds {' and '.join(kernel.called(gpu) for gpu in without)}",
        evidence=(*cause.evidence, *(f"{kernel.folder(gpu)}/uevent names no DRIVER" for gpu in without)),
        cause=why,
        fixes=fixes,
        verify=VERIFY,
    )


_INITRAMFS = Fix(command="sudo update-initramfs -u && sudo reboot", why="on Fedora and RHEL: sudo dracut -f")
_EXPLAINED: dict[str, tuple[str, tuple[Fix, ...]]] = {
    "nomodeset": (
        "the kernel was started with graphics drivers switched off, as some installers and safe modes do",
        (
            Fix(
                command="sudoedit /etc/default/grub",
                why="take that word out of GRUB_CMDLINE_LINUX and GRUB_CMDLINE_LINUX_DEFAULT",
            ),
            Fix(
                command="sudo update-grub && sudo reboot",
                why="on Fedora and RHEL: sudo grub2-mkconfig -o /boot/grub2/grub.cfg",
            ),
        ),
    ),
    "blacklist": (
        "a setting forbids loading amdgpu",
        (
            Fix(
                command="sudo modprobe amdgpu",
                why="loads it now, where no more than a blacklist line forbids it",
                safe=True,
            ),
            Fix(
                command="grep -rn amdgpu /etc/modprobe.d /run/modprobe.d /usr/lib/modprobe.d /etc/default/grub",
                why="shows the line to take out, so that it is loaded at each start",
                safe=True,
            ),
            _INITRAMFS,
        ),
    ),
    "no module": (
        "this kernel was installed without the amdgpu module",
        (
            Fix(
                command="sudo apt install linux-modules-extra-$(uname -r)",
                why="Ubuntu's kernels for servers and clouds keep amdgpu in that package",
            ),
            Fix(command="sudo modprobe amdgpu", why="then loads it"),
        ),
    ),
    "not loaded": (
        "amdgpu was not loaded, and nothing that was read forbids it",
        (Fix(command="sudo modprobe amdgpu", why="loads it, or says why it cannot be loaded", safe=True),),
    ),
    "too old": (
        "this kernel is older than the GPU: its amdgpu does not know a part of the chip",
        (
            Fix(
                command="sudo apt install linux-generic-hwe-24.04 && sudo reboot",
                why="Ubuntu's newer kernel; or ROCm's amdgpu-dkms",
            ),
        ),
    ),
    "experimental": (
        "this kernel's support for the GPU is unfinished, and has to be asked for",
        (
            Fix(
                command="sudo apt install linux-generic-hwe-24.04 && sudo reboot",
                why="a newer kernel is better",
            ),
            Fix(command="amdgpu.exp_hw_support=1", why="on the kernel's command line takes it as it is"),
        ),
    ),
    "no BIOS": (
        "amdgpu could not read the card's BIOS: usual where a virtual machine was given the card without it",
        (
            Fix(
                command="virsh edit MACHINE",
                why="on the host: rom file= in the card's hostdev, with a copy of the card's BIOS",
            ),
        ),
    ),
    "failed": (
        "amdgpu is loaded and could not start the GPU",
        (
            Fix(command="sudo dmesg | grep -iE 'amdgpu|kfd|drm'", why="shows its messages", safe=True),
            Fix(
                command="sudo reboot",
                why="a GPU that hung, or that a virtual machine left, may need a reset",
            ),
        ),
    ),
}
