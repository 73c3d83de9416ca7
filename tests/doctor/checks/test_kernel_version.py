from __future__ import annotations

from pathlib import Path

import pytest
from fakes import linux, sysfs

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
