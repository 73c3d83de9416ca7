"""What a Linux machine around a GPU looks like: driver, kernel log, device nodes, container. Adds to fakes.sysfs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from fakes import sysfs

from wavefit.doctor.machine import Machine, Process
from wavefit.schema import Finding

KERNEL = "6.14.0-29-generic"
CARD = "0000:03:00.0"
APU = "0000:64:00.0"
RENDER_GID = 993
NODE = {"mode": "crw-rw----", "uid": 0, "gid": RENDER_GID}

CLEAN_LOG = """\
[    0.000000] Linux version 6.14.0-29-generic
[    3.101010] [drm] amdgpu kernel modesetting enabled.
[    3.202020] amdgpu 0000:03:00.0: amdgpu: SE 6, SH per SE 2, CU per SH 8, active_cu_number 96
[    3.303030] kfd kfd: amdgpu: added device 1002:744c
"""


def healthy(root: Path, apu: bool = False) -> Path:
    """Ubuntu on a machine with a card (or an APU) that this user may use."""
    sysfs.linux(root)
    sysfs.cpu_node(root)
    folder, address = (sysfs.apu(root), APU) if apu else (sysfs.card(root), CARD)
    sysfs.write(folder, {"drm/renderD128/dev": "226:128"})
    sysfs.write(
        root,
        {
            "proc/cmdline": "BOOT_IMAGE=/vmlinuz-6.14.0-29-generic root=UUID=1234 ro quiet splash",
            "proc/self/uid_map": "         0          0 4294967295",
            "proc/mounts": "udev /dev devtmpfs rw,nosuid,relatime,size=16g,mode=755 0 0",
            "proc/1/cgroup": "0::/init.scope",
            "etc/group": f"root:x:0:\nvideo:x:44:\nrender:x:{RENDER_GID}:",
            f"lib/modules/{KERNEL}/modules.dep": "kernel/drivers/gpu/drm/amd/amdgpu/amdgpu.ko.zst:",
        },
    )
    log(root, CLEAN_LOG.replace(CARD, address))
    nodes(root, kfd={"errno": 0, **NODE}, renderD128={"errno": 0, **NODE})
    return root


def machine(root: Path, groups: tuple[int, ...] = (1000, RENDER_GID), **environ: str) -> Machine:
    """The recorded machine, as a user in these groups sees it."""
    known = {"HOME": "/home/ada", "USER": "ada", **environ}
    return Machine(root, Process(1000, groups, known, {}, "3.12.3"))


def unbind(root: Path, address: str = CARD, driver: str = "", loaded: bool = False) -> None:
    """Takes a GPU from amdgpu; gives it to another driver, if one is named. KFD and DRM then no longer show it."""
    folder = root / "sys/bus/pci/devices" / address
    name = f"DRIVER={driver}\n" if driver else ""
    (folder / "uevent").write_text(f"{name}PCI_CLASS=30000\nPCI_ID=1002:744C\nPCI_SLOT_NAME={address}\n")
    for left in (*folder.glob("mem_info_*"), *folder.glob("hwmon/*/*"), *folder.glob("drm/*/*")):
        left.unlink()
    for left in folder.glob("drm/*"):
        left.rmdir()
    without_compute(root)
    if not loaded:
        (root / "sys/module/amdgpu/initstate").unlink()
        (root / "sys/module/amdgpu").rmdir()


def without_compute(root: Path) -> None:
    """KFD lists only the CPU."""
    for path in (root / "sys/class/kfd/kfd/topology/nodes").glob("[1-9]/properties"):
        path.write_text("simd_count 0\n")


def log(root: Path, text: str) -> None:
    sysfs.write(root, {"wavefit/dmesg.txt": text})


def nodes(root: Path, **found: Mapping[str, object]) -> None:
    """What opening /dev/kfd and /dev/dri/renderD* gave on the recorded machine."""
    listed = [
        {"path": f"/dev/{'' if name == 'kfd' else 'dri/'}{name}", **fact} for name, fact in found.items()
    ]
    sysfs.write(root, {"wavefit/nodes.json": json.dumps({"nodes": listed})})


def secure_boot(root: Path, on: bool) -> None:
    """The UEFI variable as efivarfs shows it: four bytes of attributes, one of value."""
    path = root / "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x06\x00\x00\x00" + bytes([on]))


def docker(root: Path) -> None:
    sysfs.write(root, {".dockerenv": ""})


def problems(findings: list[Finding]) -> list[str]:
    """The checks that found a problem."""
    return [finding.check for finding in findings if finding.status == "problem"]


def commands(finding: Finding) -> str:
    """All commands of a finding, to search in."""
    return "\n".join(fix.command for fix in finding.fixes)
