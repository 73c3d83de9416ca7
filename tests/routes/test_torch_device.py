"""Which of PyTorch's GPUs a Device is."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from wavefit.errors import RouteError
from wavefit.schema import Device, Runtime

torch = pytest.importorskip("torch")

from wavefit.routes import _torch_device  # noqa: E402

pytestmark = pytest.mark.torch


def seen(bus: int, domain: int = 0) -> SimpleNamespace:
    return SimpleNamespace(pci_domain_id=domain, pci_bus_id=bus, pci_device_id=0)


def gpu(address: str | None, index: int | None = None) -> Device:
    return Device(
        id="gpu0", kind="gpu", vendor="amd", pci_address=address, runtimes=(Runtime(name="hip", index=index),)
    )


def test_the_pci_address_decides_over_the_index():
    assert _torch_device.match(gpu("0000:c1:00.0", index=0), [seen(0x03), seen(0xC1)]) == 1
    assert _torch_device.match(gpu("0001:03:00.0"), [seen(0x03), seen(0x03, domain=1)]) == 1


def test_a_gpu_that_is_hidden_from_pytorch_is_refused():
    with pytest.raises(RouteError, match=r"does not see gpu0 at 0000:c1:00\.0") as caught:
        _torch_device.match(gpu("0000:c1:00.0", index=0), [seen(0x03)])
    assert "HIP_VISIBLE_DEVICES" in caught.value.fix


def test_without_addresses_the_runtimes_index_decides():
    old = [SimpleNamespace(), SimpleNamespace()]
    assert _torch_device.match(gpu("0000:c1:00.0", index=1), old) == 1
    assert _torch_device.match(gpu(None), old[:1]) == 0
    with pytest.raises(RouteError, match="2 GPUs, and none can be told"):
        _torch_device.match(gpu(None), old)


WHEEL = [
    "gfx900",
    "gfx906",
    "gfx908",
    "gfx90a",
    "gfx942",
    "gfx1030",
    "gfx1100",
    "gfx1101",
    "gfx1200",
    "gfx1201",
]


@pytest.mark.parametrize("arch", ["gfx90a:sramecc+:xnack-", "gfx1100", ""])
def test_a_target_in_the_wheel_has_kernels(arch):
    _torch_device.check_kernels(arch, WHEEL)


def test_a_target_that_the_wheel_lacks_is_refused_with_the_way_round():
    with pytest.raises(RouteError, match="no kernels for gfx1103, only for gfx1030") as caught:
        _torch_device.check_kernels("gfx1103", WHEEL)
    assert "HSA_OVERRIDE_GFX_VERSION=11.0.0" in caught.value.fix
    with pytest.raises(RouteError) as caught:
        _torch_device.check_kernels("gfx90c:xnack-", WHEEL)
    assert "HSA_OVERRIDE" not in caught.value.fix


def test_nvidias_targets_are_pytorchs_own_business():
    _torch_device.check_kernels("", ["sm_80", "sm_90"])


@pytest.mark.skipif(torch.cuda.is_available(), reason="is about a machine without a GPU")
def test_without_a_gpu_finding_one_is_a_route_error():
    with pytest.raises(RouteError, match="PyTorch finds no GPU"):
        _torch_device.find(gpu("0000:c1:00.0"))
