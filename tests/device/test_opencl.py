"""OpenCL by pyopencl: a real platform (PoCL, where installed), and what AMD's and NVIDIA's drivers answer."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from wavefit.device import opencl, runtimes
from wavefit.schema import Device

cl = pytest.importorskip("pyopencl")


def test_a_cpu_platform_is_a_runtime_of_the_cpu(tmp_path: Path) -> None:
    wanted = [platform.name.strip() for platform in _platforms() if platform.get_devices(cl.device_type.CPU)]
    if not wanted:
        pytest.skip("no OpenCL platform for CPUs")
    seen = runtimes.ask(runtimes.OPENCL, tmp_path)
    assert seen.note is None
    devices = runtimes.merge_seen([Device(id="cpu", kind="cpu", compute_units=8)], [seen])
    listed = [(runtime.name, runtime.platform) for runtime in devices[0].runtimes]
    assert listed == [("opencl", name) for name in wanted]
    assert devices[0].compute_units == 8
    assert devices[0].runtimes[0].version is not None


def test_a_device_without_pci_says_so_through_any_loader() -> None:
    for platform in _platforms():
        for device in platform.get_devices(cl.device_type.CPU):
            assert opencl._khr_address(device) is None


def test_amds_topology_is_in_signed_bytes() -> None:
    topology = cl.DeviceTopologyAmd(-61, 0, 0)  # pyopencl hands on a cl_char: 0xc3
    device = _device("cl_khr_fp64 cl_amd_device_attribute_query", {cl.device_info.TOPOLOGY_AMD: topology})
    assert opencl._address(cl, device) == "c3:00.0"


def test_nvidias_slot_holds_device_and_function() -> None:
    answers = {
        cl.device_info.PCI_BUS_ID_NV: 0x65,
        cl.device_info.PCI_SLOT_ID_NV: 0x08,
        cl.device_info.PCI_DOMAIN_ID_NV: 1,
    }
    device = _device("cl_nv_device_attribute_query", answers)
    assert opencl._address(cl, device) == "0001:65:01.0"
    assert opencl._address(cl, _device("cl_khr_fp64", answers)) is None


def test_versions() -> None:
    assert opencl._short_version("OpenCL 2.0 AMD-APP (3649.0)") == "2.0"
    assert opencl._short_version("garbage") is None


def _platforms() -> list[Any]:
    try:
        return list(cl.get_platforms())
    except cl.Error:
        return []


def _device(extensions: str, answers: dict[int, Any]) -> Any:
    return SimpleNamespace(extensions=extensions, get_info=answers.__getitem__)
