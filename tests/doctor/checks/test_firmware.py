from __future__ import annotations

from pathlib import Path

from fakes import linux, sysfs

from wavefit.doctor.checks import amdgpu_module, firmware
from wavefit.schema import Finding

# As ROCm issue 1357 has it, with this machine's address
FATAL = """\
[    9.605986] amdgpu 0000:03:00.0: Direct firmware load for amdgpu/arcturus_gpu_info.bin failed with error -2
[    9.605988] amdgpu 0000:03:00.0: Failed to load gpu_info firmware "amdgpu/arcturus_gpu_info.bin"
[    9.605988] amdgpu 0000:03:00.0: Fatal error during GPU init
[    9.606063] amdgpu: probe of 0000:03:00.0 failed with error -2"""
# As ROCm issue 912 has it: "not a requirement for basic ROCm functionality"
HARMLESS = """\
[    3.353884] amdgpu 0000:03:00.0: Direct firmware load for amdgpu/vega20_ta.bin failed with error -2
[    3.353886] amdgpu 0000:03:00.0: psp v11.0: Failed to load firmware "amdgpu/vega20_ta.bin\""""


def only(root: Path) -> Finding:
    (finding,) = firmware.check(linux.machine(root))
    return finding


def test_firmware_that_the_gpu_needs(tmp_path: Path) -> None:
    linux.unbind(linux.healthy(tmp_path), loaded=True)
    linux.log(tmp_path, FATAL)
    found = only(tmp_path)
    assert found.status == "problem"
    assert "amdgpu/arcturus_gpu_info.bin" in found.title
    assert found.cause == "the file is missing"
    assert amdgpu_module.check(linux.machine(tmp_path)) == []


def test_firmware_that_it_does_without_is_a_note(tmp_path: Path) -> None:
    linux.log(linux.healthy(tmp_path), HARMLESS)
    found = only(tmp_path)
    assert (found.status, "vega20_ta.bin" in found.title) == ("note", True)


def test_another_gpus_firmware_is_not_the_cause(tmp_path: Path) -> None:
    linux.unbind(linux.healthy(tmp_path), loaded=True)
    linux.log(tmp_path, HARMLESS.replace("0000:03:00.0", "0000:0a:00.0"))
    assert only(tmp_path).status == "note"
    assert linux.problems(amdgpu_module.check(linux.machine(tmp_path))) == ["amdgpu_module"]


def test_a_file_that_is_there_but_not_in_the_start_image(tmp_path: Path) -> None:
    linux.log(linux.healthy(tmp_path), HARMLESS)
    sysfs.write(tmp_path, {"lib/firmware/amdgpu/vega20_ta.bin.zst": "x"})
    assert any("start image" in line for line in only(tmp_path).evidence)


def test_without_the_log_nothing_is_said(tmp_path: Path) -> None:
    (linux.healthy(tmp_path) / "wavefit/dmesg.txt").unlink()
    assert firmware.check(linux.machine(tmp_path)) == []
