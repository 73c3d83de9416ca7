from __future__ import annotations

from pathlib import Path

import pytest
from fakes import linux, software, sysfs

from wavefit.doctor import rocm_kernels
from wavefit.doctor.checks import kernel_version
from wavefit.schema import Finding


def only(root: Path) -> Finding:
    (finding,) = kernel_version.check(linux.machine(root))
    return finding


def test_a_gpu_that_kfd_lists_is_offered(tmp_path: Path) -> None:
    assert only(linux.healthy(tmp_path)).status == "ok"


def test_a_gpu_that_kfd_leaves_out(tmp_path: Path) -> None:
    linux.without_compute(linux.healthy(tmp_path))
    found = only(tmp_path)
    assert found.status == "problem"
    assert linux.KERNEL in found.cause


def test_a_chip_that_compute_never_took_is_a_note_with_the_route_left(tmp_path: Path) -> None:
    """The line is that of ROCm issue 2232."""
    linux.without_compute(linux.healthy(tmp_path))
    linux.log(tmp_path, "[    3.548555] kfd kfd: amdgpu: PITCAIRN  not supported in kfd")
    found = only(tmp_path)
    assert found.status == "note"
    assert "webgpu" in linux.commands(found)


def test_without_the_log_it_is_said_that_it_could_not_be_read(tmp_path: Path) -> None:
    linux.without_compute(linux.healthy(tmp_path))
    (tmp_path / "wavefit/dmesg.txt").unlink()
    assert any("cannot be read" in line for line in only(tmp_path).evidence)


def test_a_container_sees_only_part_of_kfds_list(tmp_path: Path) -> None:
    linux.docker(linux.healthy(tmp_path))
    linux.without_compute(tmp_path)
    assert kernel_version.check(linux.machine(tmp_path)) == []


@pytest.mark.parametrize(
    ("release", "status"), [("6.17.0-6-generic", "note"), ("6.18.4-1", "ok"), ("7.0.0", "ok")]
)
def test_strix_halo_wants_a_kernel_with_its_mend(tmp_path: Path, release: str, status: str) -> None:
    linux.healthy(tmp_path, apu=True)
    properties = sysfs.gpu_properties(
        linux.APU, simd_count=80, simd_per_cu=2, gfx_target_version=110501, device_id=0x1586
    )
    sysfs.kfd_node(tmp_path, 1, properties)
    sysfs.write(tmp_path, {"proc/sys/kernel/osrelease": release})
    assert only(tmp_path).status == status


def test_rocms_own_driver_is_not_judged_by_the_kernel(tmp_path: Path) -> None:
    linux.healthy(tmp_path, apu=True)
    properties = sysfs.gpu_properties(
        linux.APU, simd_count=80, simd_per_cu=2, gfx_target_version=110501, device_id=0x1586
    )
    sysfs.kfd_node(tmp_path, 1, properties)
    sysfs.write(tmp_path, {"sys/module/amdgpu/version": "6.16.13"})
    assert only(tmp_path).status == "ok"


def with_rocm(root: Path, rocm: str, os: str, kernel: str, apu: bool = False) -> Path:
    """A machine with a ROCm below /opt, a distribution "ubuntu 24.04" and a kernel."""
    linux.healthy(root, apu=apu)
    name, version = os.split()
    files = {
        "opt/rocm/.info/version": rocm,
        "etc/os-release": f'ID={name}\nVERSION_ID="{version}"',
        "proc/sys/kernel/osrelease": kernel,
    }
    sysfs.write(root, files)
    return root


@pytest.mark.parametrize(
    ("rocm", "os", "kernel", "apu", "status"),
    [
        ("7.2.4-42", "ubuntu 24.04", "6.8.0-90-generic", False, "ok"),
        ("7.2.4-42", "ubuntu 24.04", "6.17.0-8-generic", False, "ok"),
        ("7.2.4-42", "ubuntu 24.04", "7.0.0-12-generic", False, "note"),  # ROCm discussion 6225
        ("6.2.0-66", "ubuntu 24.04", "6.11.0-17-generic", False, "note"),
        ("7.1.0-42", "rhel 9.6", "5.14.0-570.12.1.el9_6.x86_64", False, "ok"),
        ("7.1.0-42", "ubuntu 24.04", "6.5.0-15-generic", False, "note"),
        ("10.0.0", "ubuntu 24.04", "6.17.0-1011-oem", True, "ok"),
        ("10.0.0", "ubuntu 24.04", "6.8.0-90-generic", True, "note"),  # Ryzen wants the OEM kernel
        ("10.0.0", "ubuntu 24.04", "6.8.0-90-generic", False, "ok"),
        ("10.1.0", "ubuntu 24.04", "7.0.0-12-generic", True, "ok"),
        ("10.1.0", "ubuntu 24.04", "6.8.0-90-generic", False, "note"),  # a Radeon wants the HWE kernel
        ("10.1.0", "rhel 9.8", "5.14.0-687.el9.x86_64", False, "ok"),  # the notes say nothing of it
        ("10.0.0", "fedora 44", "6.19.14-300.fc44.x86_64", False, "ok"),  # not in AMD's list: unknown
        ("99.0.0", "ubuntu 24.04", "7.0.0-12-generic", False, "ok"),  # a list that is not known
    ],
)
def test_the_kernel_against_those_that_amd_names(
    tmp_path: Path, rocm: str, os: str, kernel: str, apu: bool, status: str
) -> None:
    """The pairs are those of AMD's compatibility matrices."""
    found = only(with_rocm(tmp_path, rocm, os, kernel, apu))
    assert found.status == status
    if status == "note":
        assert kernel in found.title
        assert "AMD names Linux" in found.evidence[-1]


def test_a_kernel_that_is_unknown_to_the_list_is_said_to_be_neither(tmp_path: Path) -> None:
    found = only(with_rocm(tmp_path, "10.0.0", "fedora 44", "6.19.14-300.fc44.x86_64"))
    assert not any("AMD names" in line for line in found.evidence)
    named = only(with_rocm(tmp_path / "named", "7.2.4-42", "ubuntu 24.04", "6.8.0-90-generic"))
    assert "AMD names it for ROCm 7.2 on ubuntu 24.04: Linux 6.8 to 6.17" in named.evidence


def test_cards_of_one_kind_share_a_note(tmp_path: Path) -> None:
    with_rocm(tmp_path, "7.2.4-42", "ubuntu 24.04", "7.0.0-12-generic")
    software.gpu(tmp_path, 110000, "0000:43:00.0", node=3)
    assert len(kernel_version.check(linux.machine(tmp_path))) == 1


def test_every_list_is_read_and_in_order() -> None:
    for release in rocm_kernels._releases():
        assert release.source
        for lowest, highest in release.kernels.values():
            assert rocm_kernels._numbers(lowest) <= rocm_kernels._numbers(highest)
