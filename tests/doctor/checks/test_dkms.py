from __future__ import annotations

from pathlib import Path

import pytest
from fakes import linux, sysfs

from wavefit.doctor.checks import amdgpu_module, dkms

VERSION = "var/lib/dkms/amdgpu/6.12.12-2202139.24.04"


def registered(root: Path) -> Path:
    sysfs.write(linux.healthy(root), {f"{VERSION}/source/dkms.conf": 'PACKAGE_NAME="amdgpu"'})
    return root


@pytest.mark.parametrize("name", ["updates/dkms/amdgpu.ko.zst", "updates/amdgpu.ko", "extra/amdgpu.ko.xz"])
def test_built_as_each_distribution_keeps_it(tmp_path: Path, name: str) -> None:
    sysfs.write(registered(tmp_path), {f"lib/modules/{linux.KERNEL}/{name}": ""})
    (found,) = dkms.check(linux.machine(tmp_path))
    assert found.status == "ok"
    assert found.evidence == (f"/lib/modules/{linux.KERNEL}/{name}",)


def test_built_for_another_kernel_only_and_no_driver(tmp_path: Path) -> None:
    linux.unbind(registered(tmp_path))
    log = f"{VERSION}/build/make.log"
    sysfs.write(
        tmp_path,
        {
            "lib/modules/6.8.0-31-generic/updates/dkms/amdgpu.ko": "",
            log: "CC amdgpu_drv.o\n/var/lib/x.c:7:1: error: implicit declaration of drm_foo\nmake: *** [all] Error 2",
        },
    )
    (found,) = dkms.check(linux.machine(tmp_path))
    assert found.status == "problem"
    assert linux.KERNEL in found.title
    assert any("implicit declaration" in line for line in found.evidence)
    assert "linux-headers-" in linux.commands(found)
    assert amdgpu_module.check(linux.machine(tmp_path)) == []


def test_not_built_while_the_kernels_own_driver_works_is_a_note(tmp_path: Path) -> None:
    (found,) = dkms.check(linux.machine(registered(tmp_path)))
    assert found.status == "note"
    assert "kernel's own amdgpu" in found.cause


def test_a_blacklist_comes_before_a_missing_build(tmp_path: Path) -> None:
    linux.unbind(registered(tmp_path))
    sysfs.write(tmp_path, {"etc/modprobe.d/a.conf": "blacklist amdgpu"})
    (found,) = dkms.check(linux.machine(tmp_path))
    assert found.status == "note"


def test_without_dkms_or_in_a_container_there_is_nothing_to_say(tmp_path: Path) -> None:
    assert dkms.check(linux.machine(linux.healthy(tmp_path / "plain"))) == []
    linux.docker(registered(tmp_path / "docker"))
    assert dkms.check(linux.machine(tmp_path / "docker")) == []


def test_a_loaded_module_with_a_version_is_dkmss_wherever_it_lies(tmp_path: Path) -> None:
    """The kernel's own amdgpu has no version."""
    sysfs.write(registered(tmp_path), {"sys/module/amdgpu/version": "6.12.12"})
    assert dkms.check(linux.machine(tmp_path)) == []
