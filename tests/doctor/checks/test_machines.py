"""Whole machines against every check of driver and hardware: a healthy one gives only ok, a broken one exactly its
problem, the recorded ones none that is false.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import linux, sysfs

from wavefit import doctor
from wavefit.doctor.machine import Machine

OURS = (
    "amdgpu_module",
    "containers",
    "device_nodes",
    "disk",
    "dkms",
    "firmware",
    "integrated_beside_discrete",
    "iommu",
    "kernel_version",
    "memory_pools",
    "paths",
    "pcie_atomics",
    "power",
    "secure_boot",
    "wsl",
)
FIXTURES = Path(__file__).parents[3].parent / "shared/fixtures"
DENIED = {"errno": 13, **linux.NODE}
MISSING = {"errno": 2}


def firmware_missing(root: Path) -> None:
    linux.unbind(root, loaded=True)
    linux.log(
        root,
        "amdgpu 0000:03:00.0: Direct firmware load for amdgpu/gc_11_0_0_pfp.bin failed with error -2\n"
        "amdgpu 0000:03:00.0: amdgpu: Fatal error during GPU init\n"
        "amdgpu 0000:03:00.0: probe with driver amdgpu failed with error -2",
    )


def no_atomics(root: Path) -> None:
    linux.without_compute(root)
    linux.log(root, "kfd kfd: amdgpu: skipped device 1002:744c, PCI rejects atomics 730<0")


def nomodeset(root: Path) -> None:
    linux.unbind(root)
    sysfs.write(root, {"proc/cmdline": "BOOT_IMAGE=/vmlinuz ro nomodeset"})


def blacklisted(root: Path) -> None:
    linux.unbind(root)
    sysfs.write(root, {"etc/modprobe.d/local.conf": "# a\nblacklist amdgpu"})


def dkms_not_built(root: Path) -> None:
    linux.unbind(root)
    sysfs.write(root, {"var/lib/dkms/amdgpu/6.12.12-2202139.24.04/source/dkms.conf": ""})


def unsigned(root: Path) -> None:
    linux.unbind(root)
    linux.secure_boot(root, True)
    linux.log(root, "[    3.0] Loading of unsigned module is rejected")


def in_docker_without_devices(root: Path) -> None:
    linux.docker(root)
    linux.nodes(root, kfd=MISSING, renderD128=MISSING)


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "firmware": (firmware_missing, "firmware"),
    "atomics": (no_atomics, "pcie_atomics"),
    "no compute": (linux.without_compute, "kernel_version"),
    "nomodeset": (nomodeset, "amdgpu_module"),
    "blacklist": (blacklisted, "amdgpu_module"),
    "not loaded": (linux.unbind, "amdgpu_module"),
    "vfio": (lambda root: linux.unbind(root, driver="vfio-pci"), "amdgpu_module"),
    "dkms": (dkms_not_built, "dkms"),
    "secure boot": (unsigned, "secure_boot"),
    "denied": (lambda root: linux.nodes(root, kfd=DENIED, renderD128=DENIED), "device_nodes"),
    "docker": (in_docker_without_devices, "containers"),
}


@pytest.mark.parametrize("apu", [False, True], ids=["card", "apu"])
def test_a_healthy_machine_gives_only_ok(tmp_path: Path, apu: bool) -> None:
    found = doctor.examine(linux.machine(linux.healthy(tmp_path, apu)), OURS)
    assert {finding.status for finding in found} == {"ok"}
    assert {"amdgpu_module", "device_nodes", "kernel_version", "power"} <= {
        finding.check for finding in found
    }


@pytest.mark.parametrize("state", BROKEN)
def test_a_broken_machine_gives_exactly_its_problem(tmp_path: Path, state: str) -> None:
    breaks, check = BROKEN[state]
    breaks(linux.healthy(tmp_path))
    found = doctor.examine(linux.machine(tmp_path), OURS)
    assert linux.problems(found) == [check]
    (problem,) = [finding for finding in found if finding.status == "problem"]
    assert problem.evidence
    assert problem.cause
    assert problem.fixes
    assert problem.verify


FORBIDDEN = ("reboot", "grub", "update-initramfs", "rm ", "modprobe -r", "unbind", "mokutil", "tee ", "apt ")


@pytest.mark.parametrize("state", BROKEN)
def test_nothing_safe_reboots_deletes_or_edits_the_boot(tmp_path: Path, state: str) -> None:
    BROKEN[state][0](linux.healthy(tmp_path))
    for finding in doctor.examine(linux.machine(tmp_path), OURS):
        for fix in finding.fixes:
            reads_only = fix.command.startswith(("grep ", "cat ", "lspci "))
            assert not fix.safe or reads_only or not any(word in fix.command for word in FORBIDDEN), (
                fix.command
            )


@pytest.mark.parametrize("other", ["none", "nvidia", "windows subsystem"])
def test_without_an_amd_gpu_there_is_at_most_a_note(tmp_path: Path, other: str) -> None:
    """Even where everything else would be a problem."""
    sysfs.linux(tmp_path)
    nomodeset_line = {"proc/cmdline": "nomodeset", "etc/modprobe.d/a.conf": "blacklist amdgpu"}
    sysfs.write(tmp_path, nomodeset_line)
    linux.nodes(tmp_path, kfd=MISSING)
    if other == "nvidia":
        sysfs.pci(tmp_path, "0000:01:00.0", {"vendor": "0x10de", "device": "0x2684", "class": "0x030000"})
    if other == "windows subsystem":
        sysfs.write(tmp_path, {"proc/sys/kernel/osrelease": "6.6.87.2-microsoft-standard-WSL2"})
    statuses = [finding.status for finding in doctor.examine(linux.machine(tmp_path), OURS)]
    assert set(statuses) == {"note"}


@pytest.mark.skipif(not FIXTURES.is_dir(), reason="the recorded machines are not here")
@pytest.mark.parametrize("name", ["lact/phoenix", "lact/vangogh", "lact/rx7900xtx", "lact/rx580"])
@pytest.mark.parametrize("alone", [False, True], ids=["with its kfd", "card alone"])
def test_recorded_machines_have_no_problem(tmp_path: Path, name: str, alone: bool) -> None:
    (card,) = (FIXTURES / name).glob("card*")
    skip = shutil.ignore_patterns("ip_discovery")
    shutil.copytree(card, tmp_path / "sys/class/drm" / card.name, ignore=skip)
    if not alone and (FIXTURES / name / "kfd").is_dir():
        shutil.copytree(FIXTURES / name / "kfd", tmp_path / "sys/class/kfd/kfd")
    found = doctor.examine(Machine(tmp_path), OURS)
    assert linux.problems(found) == []
    assert "amdgpu_module" in {finding.check for finding in found if finding.status == "ok"}


@pytest.mark.skipif(not FIXTURES.is_dir(), reason="the recorded machines are not here")
@pytest.mark.parametrize("topology", ["topo-mi210-xgmi-pcie", "topology-parsing/topology"])
def test_recorded_topologies_have_no_problem(tmp_path: Path, topology: str) -> None:
    shutil.copytree(FIXTURES / "kfd" / topology, tmp_path / "sys/class/kfd/kfd/topology")
    found = doctor.examine(Machine(tmp_path), OURS)
    assert linux.problems(found) == []


def test_an_empty_recording_says_nothing_is_there(tmp_path: Path) -> None:
    assert [finding.status for finding in doctor.examine(Machine(tmp_path), OURS)] == ["note"]
