from __future__ import annotations

from pathlib import Path

import pytest
from fakes import linux, sysfs

from wavefit.doctor.checks import amdgpu_module, secure_boot

# kernel/module/signing.c and security/lockdown/lockdown.c
LINES = (
    "[    4.2] Loading of unsigned module is rejected",
    "[    4.2] Loading of module with unavailable key is rejected",
    "[    4.2] Lockdown: modprobe: unsigned module loading is restricted; see man kernel_lockdown.7",
)


@pytest.mark.parametrize("line", LINES)
def test_the_kernels_refusal_is_the_cause(tmp_path: Path, line: str) -> None:
    linux.unbind(linux.healthy(tmp_path))
    linux.log(tmp_path, line)
    linux.secure_boot(tmp_path, True)
    (found,) = secure_boot.check(linux.machine(tmp_path))
    assert found.status == "problem"
    assert any(line in each for each in found.evidence)
    assert "mokutil --import" in linux.commands(found)
    assert amdgpu_module.check(linux.machine(tmp_path)) == []


def test_without_the_log_a_module_built_here_under_secure_boot_is_suspected(tmp_path: Path) -> None:
    linux.unbind(linux.healthy(tmp_path))
    (tmp_path / "wavefit/dmesg.txt").unlink()
    linux.secure_boot(tmp_path, True)
    assert linux.problems(secure_boot.check(linux.machine(tmp_path))) == []
    sysfs.write(tmp_path, {f"lib/modules/{linux.KERNEL}/updates/dkms/amdgpu.ko": ""})
    assert linux.problems(secure_boot.check(linux.machine(tmp_path))) == ["secure_boot"]


@pytest.mark.parametrize(("on", "title"), [(True, "is on"), (False, "is off")])
def test_the_variable_is_read(tmp_path: Path, on: bool, title: str) -> None:
    linux.secure_boot(linux.healthy(tmp_path), on)
    (found,) = secure_boot.check(linux.machine(tmp_path))
    assert found.status == "ok"
    assert title in found.title


def test_a_refused_module_of_another_name_does_not_count_while_amdgpu_is_loaded(tmp_path: Path) -> None:
    linux.log(linux.healthy(tmp_path), LINES[0])
    linux.secure_boot(tmp_path, True)
    assert [found.status for found in secure_boot.check(linux.machine(tmp_path))] == ["ok"]
