from __future__ import annotations

import platform
from pathlib import Path

import pytest
from fakes import sysfs

from wavefit.device.nvidia import cuda_indices, short_address
from wavefit.device.versions import amdgpu_driver, versions
from wavefit.device.windows import describe


def test_this_machine() -> None:
    assert versions()["kernel"] in (platform.release(), platform.version())


def test_nothing_is_known_of_an_empty_tree(tmp_path: Path) -> None:
    assert versions(tmp_path) == {}


def test_driver_from_rocm(tmp_path: Path) -> None:
    sysfs.linux(tmp_path)
    files = {"sys/module/amdgpu/version": "6.12.12", "opt/rocm/.info/version": "7.1.0-42\nmore"}
    sysfs.write(tmp_path, files)
    assert versions(tmp_path) == {"kernel": "6.14.0-29-generic", "amdgpu": "6.12.12", "rocm": "7.1.0-42"}
    assert amdgpu_driver(tmp_path) == "amdgpu 6.12.12"


def test_newest_of_several_rocm(tmp_path: Path) -> None:
    sysfs.write(tmp_path, {f"opt/rocm-{v}/.info/version": v for v in ("6.4.1", "7.0.2", "6.10.0")})
    assert versions(tmp_path)["rocm"] == "7.0.2"


@pytest.mark.parametrize("text", ["", "garbage", "\0"])
def test_a_garbled_rocm_version_is_none(tmp_path: Path, text: str) -> None:
    sysfs.write(tmp_path, {"opt/rocm/.info/version": text})
    assert "rocm" not in versions(tmp_path)


@pytest.mark.parametrize(
    ("names", "visible", "indices"),
    [
        (["H200"], None, [0]),
        (["H200", "H200"], None, [0, 1]),
        (["H200", "H200"], "1,0", [1, 0]),
        (["H200", "H200"], "1", [None, 0]),
        (["H200", "H200"], "", [None, None]),
        (["H200", "H200"], "GPU-8932f937", [None, None]),  # by UUID: cannot be told from here
        (["H200", "T400"], None, [None, None]),  # CUDA's order is by speed
        ([], None, []),
    ],
)
def test_cuda_indices(names: list[str], visible: str | None, indices: list[int | None]) -> None:
    assert cuda_indices(names, visible) == indices


def test_nvmls_addresses_are_sysfs_addresses() -> None:
    assert short_address("00000000:65:00.0") == "0000:65:00.0"
    assert short_address("00010000:C1:00.0") == "10000:c1:00.0"
    assert short_address("nonsense") is None


def test_an_adapter_in_the_windows_registry() -> None:
    values: dict[str, object] = {
        "DriverDesc": "AMD Radeon RX 7900 XTX",
        "ProviderName": "Advanced Micro Devices, Inc.",
        "DriverVersion": "32.0.21025.1024",
        "MatchingDeviceId": r"PCI\VEN_1002&DEV_744C&REV_C8",
        "HardwareInformation.qwMemorySize": 25753026560,
    }
    device = describe(values)
    assert device is not None
    assert (device.vendor, device.pci_id, device.name) == ("amd", "1002:744c", "AMD Radeon RX 7900 XTX")
    assert device.memory[0].total_bytes == 25753026560
    assert device.driver == "32.0.21025.1024"
    assert (
        describe({"MatchingDeviceId": r"ROOT\BasicDisplay", "DriverDesc": "Microsoft Basic Display Adapter"})
        is None
    )
    assert describe({}) is None
