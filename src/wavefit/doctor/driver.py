"""Why no driver holds a GPU: the causes that can be read, asked in an order so that each state has one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from wavefit.device.files import children
from wavefit.doctor import kernel
from wavefit.doctor.container import container
from wavefit.doctor.machine import Machine
from wavefit.schema import Device

Kind = Literal[
    "nomodeset",
    "blacklist",
    "secure boot",
    "dkms",
    "firmware",
    "too old",
    "experimental",
    "no BIOS",
    "failed",
    "no module",
    "not loaded",
]

# kernel/module/main.c (module_blacklist, later module_denylist), modprobe(8) and dracut.cmdline(7)
_BLACKLISTS = (
    "module_blacklist",
    "module_denylist",
    "modprobe.blacklist",
    "rd.driver.blacklist",
    "modules.blacklist",
)

# kernel/module/signing.c: "Loading of unsigned module is rejected", "... module with unavailable key is rejected";
# security/lockdown/lockdown.c: "Lockdown: modprobe: unsigned module loading is restricted"
_REJECTED = (
    r"(unsigned module|module with unavailable key|module with unsupported crypto).*(rejected|restricted)"
)

# drivers/base/firmware_loader/main.c
FIRMWARE_FAILED = r"direct firmware load for (amdgpu/\S+) failed with error (-?\d+)"

# The 5 bytes of the variable end in 1 where Secure Boot is on. Source: UEFI specification, globally defined variables;
# Documentation/filesystems/efivarfs.rst (4 bytes of attributes come first).
_SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"

DKMS = "/var/lib/dkms/amdgpu"

# What amdgpu says of a GPU that it gives up. Sources, below drivers/gpu/drm/amd/amdgpu: amdgpu_discovery.c, "Failed to
# add gmc ip block(GC_HWIP:0x...)" for a part of the chip that it does not know; amdgpu_drv.c, "This hardware requires
# experimental hardware support. See modparam exp_hw_support"; amdgpu_bios.c, "Unable to locate a BIOS ROM".
_MESSAGES: dict[Kind, str] = {
    "too old": r"failed to add \S+ ip block",
    "experimental": r"experimental hardware support|exp_hw_support",
    "no BIOS": r"unable to locate a bios rom",
}


@dataclass(frozen=True)
class Cause:
    kind: Kind
    evidence: tuple[str, ...]


def unbound(machine: Machine) -> tuple[Device, ...]:
    """GPUs that no driver holds."""
    return tuple(gpu for gpu in kernel.gpus(machine) if kernel.driver(gpu) == "")


def cause(machine: Machine) -> Cause | None:
    """Why no driver holds the GPUs that have none; None where every GPU has one."""
    without = unbound(machine)
    if not without:
        return None
    found = _modeset(machine) or _blacklist(machine) or _rejected(machine)
    if found is not None:
        return found
    if kernel.module_loaded(machine):
        return _failed(machine, without)
    if dkms_missing(machine):
        return Cause("dkms", (f"{DKMS} has no module for kernel {kernel.release(machine)}",))
    if module_missing(machine):
        return Cause("no module", (f"/lib/modules/{kernel.release(machine)}/modules.dep has no amdgpu",))
    known = kernel.module_loaded(machine) is False
    return Cause("not loaded", ("amdgpu is not among /sys/module",) if known else ())


def _modeset(machine: Machine) -> Cause | None:
    """amdgpu gives up under nomodeset unless amdgpu.modeset=1. Source: amdgpu_init() in amdgpu_drv.c."""
    words = kernel.command_line(machine)
    off = [word for word in words if word in ("nomodeset", "amdgpu.modeset=0")]
    if not off or "amdgpu.modeset=1" in words:
        return None
    return Cause("nomodeset", (f"/proc/cmdline has {off[-1]}",))


def _blacklist(machine: Machine) -> Cause | None:
    if kernel.module_loaded(machine):
        return None  # whatever forbids it did not hold
    found = blacklisting(machine)
    return Cause("blacklist", tuple(found)) if found else None


def blacklisting(machine: Machine) -> list[str]:
    """Each statement that keeps amdgpu from being loaded, and where it stands."""
    found = []
    for word in kernel.command_line(machine):
        name, _, modules = word.partition("=")
        if name in _BLACKLISTS and "amdgpu" in modules.split(","):
            found.append(f"/proc/cmdline has {word}")
    if container(machine) is not None:
        return found  # modprobe's files are then not the host's
    for where, words in kernel.modprobe_lines(machine):
        if words[:2] == ["blacklist", "amdgpu"]:
            found.append(f"{where} has: blacklist amdgpu")
        elif words[:2] == ["install", "amdgpu"] and words[2:3] in (["/bin/false"], ["/bin/true"], [":"]):
            found.append(f"{where} has: {' '.join(words)}")
    return found


def _rejected(machine: Machine) -> Cause | None:
    if kernel.module_loaded(machine):
        return None
    log = kernel.log(machine)
    lines = log.lines(_REJECTED) if log is not None else []
    if log is not None and lines:
        return Cause("secure boot", (f"{log.source}: {lines[-1]}", *_secure_boot_words(machine)))
    if secure_boot(machine) and dkms_module(machine):
        where = dkms_module(machine)
        return Cause("secure boot", (*_secure_boot_words(machine), f"{where} was built on this machine"))
    return None


def _secure_boot_words(machine: Machine) -> tuple[str, ...]:
    return ("the UEFI variable SecureBoot is 1",) if secure_boot(machine) else ()


def secure_boot(machine: Machine) -> bool | None:
    """Whether Secure Boot is on; None where the firmware's variable cannot be read."""
    text = machine.read(_SECURE_BOOT)  # read_text takes NUL bytes off its ends
    return None if text is None else text.endswith("\x01")


def dkms_module(machine: Machine) -> str | None:
    """The module that DKMS built for the running kernel. Source: dkms(8); the folder differs by distribution."""
    release = kernel.release(machine)
    if release is None or container(machine) is not None:
        return None
    for folder in ("updates/dkms", "updates", "extra", "weak-updates"):
        for path in children(machine.root / f"lib/modules/{release}/{folder}", r"amdgpu\.ko(\.\w+)?"):
            return f"/lib/modules/{release}/{folder}/{path.name}"
    return None


def dkms_missing(machine: Machine) -> bool:
    """Whether DKMS knows amdgpu and has no module of it for the running kernel."""
    release = kernel.release(machine)
    if release is None or container(machine) is not None or not machine.exists(DKMS):
        return False
    if machine.exists("/sys/module/amdgpu/version"):
        return False  # the kernel's own module has no version: DKMS's is loaded
    if not machine.live and not machine.exists(f"/lib/modules/{release}"):
        return False  # the modules were not recorded
    return dkms_module(machine) is None


def module_missing(machine: Machine) -> bool:
    """Whether the running kernel was installed without amdgpu. Sources: depmod(8), modules.dep; kbuild.rst,
    modules.builtin.
    """
    folder = f"/lib/modules/{kernel.release(machine)}"
    listed = machine.read(f"{folder}/modules.dep")
    if listed is None or container(machine) is not None:
        return False
    return "/amdgpu.ko" not in listed + (machine.read(f"{folder}/modules.builtin") or "")


def _failed(machine: Machine, gpus: tuple[Device, ...]) -> Cause:
    """The module is loaded and left a GPU alone: its messages about that GPU, which firmware may begin."""
    log = kernel.log(machine)
    if log is None:
        return Cause("failed", ("amdgpu is loaded; the kernel's log cannot be read here",))
    addresses = "|".join(gpu.pci_address for gpu in gpus if gpu.pci_address) or "amdgpu"
    if log.lines(rf"({addresses}).*{FIRMWARE_FAILED}"):
        return Cause("firmware", ())
    for kind, pattern in _MESSAGES.items():
        found = log.lines(pattern)
        if found:
            return Cause(kind, ("amdgpu is loaded", f"{log.source}: {found[-1]}"))
    lines = log.lines(rf"({addresses}).*(fatal error|failed|error -\d+)") or log.lines(
        r"amdgpu.*(fatal error|failed)"
    )
    return Cause("failed", ("amdgpu is loaded", *(f"{log.source}: {line}" for line in lines[:3])))
