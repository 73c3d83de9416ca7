from __future__ import annotations

from pathlib import Path

import pytest
from fakes import linux, sysfs

from wavefit.doctor.checks import amdgpu_module


def problem(root: Path) -> tuple[str, str, str]:
    """Evidence, cause and commands of the one finding."""
    (finding,) = amdgpu_module.check(linux.machine(root))
    assert finding.status == "problem"
    return " ".join(finding.evidence), finding.cause, linux.commands(finding)


def test_nomodeset_is_seen_on_the_command_line(tmp_path: Path) -> None:
    linux.unbind(linux.healthy(tmp_path), loaded=True)  # amdgpu is loaded under nomodeset and gives up
    sysfs.write(tmp_path, {"proc/cmdline": "ro nomodeset quiet"})
    evidence, _, commands = problem(tmp_path)
    assert "/proc/cmdline has nomodeset" in evidence
    assert "/etc/default/grub" in commands


def test_modeset_asked_for_by_name_holds_against_nomodeset(tmp_path: Path) -> None:
    linux.unbind(linux.healthy(tmp_path))
    sysfs.write(tmp_path, {"proc/cmdline": "ro nomodeset amdgpu.modeset=1"})
    assert "nomodeset" not in problem(tmp_path)[0]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("etc/modprobe.d/blacklist-amdgpu.conf", "blacklist amdgpu # for the other card"),
        ("usr/lib/modprobe.d/site.conf", "install amdgpu /bin/false"),
        ("proc/cmdline", "ro module_blacklist=nouveau,amdgpu"),
        ("proc/cmdline", "ro modprobe.blacklist=amdgpu"),
    ],
)
def test_each_way_to_forbid_the_module_is_named_with_its_place(tmp_path: Path, path: str, text: str) -> None:
    linux.unbind(linux.healthy(tmp_path))
    sysfs.write(tmp_path, {path: text})
    evidence, cause, _ = problem(tmp_path)
    assert f"/{path} has" in evidence
    assert "forbids" in cause


@pytest.mark.parametrize("text", ["# blacklist amdgpu", "blacklist amdgpu_other", "options amdgpu dc=1"])
def test_what_only_looks_like_a_blacklist_is_none(tmp_path: Path, text: str) -> None:
    linux.unbind(linux.healthy(tmp_path))
    sysfs.write(tmp_path, {"etc/modprobe.d/a.conf": text})
    assert "forbids loading" not in problem(tmp_path)[1]


def test_a_blacklist_that_did_not_hold_is_no_problem(tmp_path: Path) -> None:
    sysfs.write(linux.healthy(tmp_path), {"etc/modprobe.d/a.conf": "blacklist amdgpu"})
    (finding,) = amdgpu_module.check(linux.machine(tmp_path))
    assert finding.status == "ok"
    assert any("blacklist amdgpu" in line for line in finding.evidence)


def test_a_containers_own_modprobe_files_do_not_count(tmp_path: Path) -> None:
    linux.unbind(linux.healthy(tmp_path))
    linux.docker(tmp_path)
    sysfs.write(tmp_path, {"etc/modprobe.d/a.conf": "blacklist amdgpu"})
    assert "blacklist" not in problem(tmp_path)[0]


def test_a_card_lent_to_a_virtual_machine_is_not_called_a_permission(tmp_path: Path) -> None:
    linux.unbind(linux.healthy(tmp_path), driver="vfio-pci")
    evidence, cause, commands = problem(tmp_path)
    assert "DRIVER=vfio-pci" in evidence
    assert "driver_override && sudo modprobe amdgpu" in commands
    assert "virtual machine" in cause
    assert linux.CARD in commands
    assert "usermod" not in commands


def test_the_radeon_driver_is_a_note(tmp_path: Path) -> None:
    linux.unbind(linux.healthy(tmp_path), driver="radeon")
    (finding,) = amdgpu_module.check(linux.machine(tmp_path))
    assert finding.status == "note"
    assert "radeon" in finding.title


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("amdgpu 0000:03:00.0: amdgpu: Failed to add gmc ip block(GC_HWIP:0xc0001)", "older than the GPU"),
        ("amdgpu: This hardware requires experimental hardware support.", "unfinished"),
        ("amdgpu 0000:03:00.0: amdgpu: Unable to locate a BIOS ROM", "BIOS"),
        ("amdgpu 0000:03:00.0: amdgpu: Fatal error during GPU init", "could not start"),
    ],
)
def test_a_driver_that_gave_up_is_explained_by_its_message(tmp_path: Path, line: str, cause: str) -> None:
    linux.unbind(linux.healthy(tmp_path), loaded=True)
    linux.log(tmp_path, f"[    1.0] Linux version 6.5.0\n[    3.0] {line}")
    found = problem(tmp_path)
    assert line in found[0]
    assert cause in found[1]


def test_without_the_log_the_reason_stays_open(tmp_path: Path) -> None:
    linux.unbind(linux.healthy(tmp_path), loaded=True)
    (tmp_path / "wavefit/dmesg.txt").unlink()
    assert "cannot be read" in problem(tmp_path)[0]


def test_one_of_two_gpus_without_a_driver(tmp_path: Path) -> None:
    sysfs.apu(linux.healthy(tmp_path))
    linux.unbind(tmp_path, loaded=True)
    evidence, _, _ = problem(tmp_path)
    assert linux.CARD in evidence
    assert linux.APU not in evidence


@pytest.mark.parametrize("built_in", [False, True])
def test_a_kernel_installed_without_the_module(tmp_path: Path, built_in: bool) -> None:
    """As Ubuntu's kernels for clouds are, without linux-modules-extra."""
    linux.unbind(linux.healthy(tmp_path))
    folder = f"lib/modules/{linux.KERNEL}"
    sysfs.write(tmp_path, {f"{folder}/modules.dep": "kernel/drivers/net/veth.ko.zst:"})
    if built_in:
        sysfs.write(tmp_path, {f"{folder}/modules.builtin": "kernel/drivers/gpu/drm/amd/amdgpu/amdgpu.ko"})
    assert ("linux-modules-extra" in problem(tmp_path)[2]) != built_in
