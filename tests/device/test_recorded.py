"""The recorded machines beside the repository, field by field as their README reads them; skipped where absent."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from wavefit.device.power import hwmon
from wavefit.device.probe import probe
from wavefit.schema import Device, Link, Pool

FIXTURES = Path(__file__).parents[2].parent / "shared/fixtures"
pytestmark = pytest.mark.skipif(not FIXTURES.is_dir(), reason="the recorded machines are not here")


def machine(root: Path, card: Path | None = None, kfd: Path | None = None) -> tuple[Device, ...]:
    """The GPUs of a recording laid out as sysfs has them: DRM's card and KFD's topology."""
    if card is not None:
        shutil.copytree(
            card, root / "sys/class/drm" / card.name, ignore=shutil.ignore_patterns("ip_discovery")
        )
    if kfd is not None:
        shutil.copytree(kfd, root / "sys/class/kfd/kfd/topology")
    return probe(root)[1:]


def pools(device: Device) -> dict[str, int | None]:
    return {pool.name: pool.total_bytes for pool in device.memory}


def test_phoenix(tmp_path: Path) -> None:
    folder = FIXTURES / "lact/phoenix"
    (gpu,) = machine(tmp_path, folder / "card1", folder / "kfd/topology")
    assert (gpu.vendor, gpu.integrated, gpu.link) == ("amd", True, None)
    assert (gpu.pci_id, gpu.pci_address) == ("1002:15bf", "0000:64:00.0")
    assert (gpu.gfx, gpu.compute_units, gpu.wave_sizes, gpu.lds_bytes) == ("gfx1103", 12, (32,), 65536)
    assert pools(gpu) == {"vram": 4 << 30, "gtt": 31433977856, "kfd": 31433977856}
    vram, gtt, _ = gpu.memory
    assert (vram.free_bytes, gtt.free_bytes) == ((4 << 30) - 1272893440, 31433977856 - 211398656)
    assert gpu.caches == {"l2_bytes": 2 << 20}
    assert (gpu.driver, gpu.name) == ("amdgpu", None)
    (meter,) = hwmon.meters(gpu)
    assert (meter.name, meter.covers) == ("amdgpu hwmon power1_average (PPT)", "package")
    meter.start()
    power = meter.stop(10)
    assert power is not None
    assert power.watts == pytest.approx(3.103)


def test_vangogh(tmp_path: Path) -> None:
    folder = FIXTURES / "lact/vangogh"
    (gpu,) = machine(tmp_path, folder / "card0", folder / "kfd/topology")
    assert (gpu.integrated, gpu.pci_id, gpu.gfx, gpu.compute_units) == (True, "1002:163f", "gfx1033", 8)
    assert pools(gpu) == {"kfd": 8589934592}
    slow, fast = hwmon.meters(gpu)
    assert slow.name == "amdgpu hwmon power1_average (slowPPT)"
    assert fast.name == "amdgpu hwmon power2_average (fastPPT)"
    assert slow.covers == fast.covers == "package"
    for meter, watts in ((slow, 3.218), (fast, 3.040)):
        meter.start()
        power = meter.stop(1)
        assert power is not None
        assert power.watts == pytest.approx(watts)


def test_rx7900xtx(tmp_path: Path) -> None:
    (gpu,) = machine(tmp_path, FIXTURES / "lact/rx7900xtx/card0")
    assert (gpu.pci_id, gpu.pci_address, gpu.name) == ("1002:744c", "0000:03:00.0", None)
    assert (gpu.integrated, gpu.gfx) == (False, "gfx1100")
    assert gpu.link == Link(speed_gts=16.0, width=16)
    assert gpu.memory == ()  # not recorded, so unknown
    (meter,) = hwmon.meters(gpu)
    assert meter.name == "amdgpu hwmon power1_average (PPT)"
    meter.start()
    power = meter.stop(0)
    assert power is not None
    assert (power.watts, power.joules_per_inference) == (pytest.approx(68.0), None)


def test_rx580(tmp_path: Path) -> None:
    (gpu,) = machine(tmp_path, FIXTURES / "lact/rx580/card0")
    assert (gpu.pci_id, gpu.pci_address) == ("1002:67df", "0000:09:00.0")  # from uevent alone
    assert (gpu.integrated, gpu.gfx, gpu.compute_units) == (False, "gfx803", None)
    assert pools(gpu) == {"vram": 4 << 30, "gtt": 8342712320}
    assert gpu.link == Link(max_speed_gts=8.0, max_width=16)


def test_vega10_of_an_old_kernel(tmp_path: Path) -> None:
    gpus = machine(tmp_path, kfd=FIXTURES / "kfd/topology-parsing/topology")
    assert [gpu.id for gpu in gpus] == [
        "gpu0",
        "gpu1",
    ]  # the second was copied from the first, address and all
    for gpu in gpus:
        assert (gpu.gfx, gpu.pci_id, gpu.pci_address) == ("gfx900", "1002:6860", "0000:19:00.0")
        assert (gpu.integrated, gpu.compute_units, gpu.wave_sizes) == (False, 64, (64,))
        assert pools(gpu) == {"kfd": 17163091968}
        assert gpu.memory[0].free_bytes == 17163091968 - 14102528


def test_eight_mi210(tmp_path: Path) -> None:
    gpus = machine(tmp_path, kfd=FIXTURES / "kfd/topo-mi210-xgmi-pcie")
    assert [gpu.id for gpu in gpus] == [f"gpu{number}" for number in range(8)]
    assert {gpu.gfx for gpu in gpus} == {"gfx90a"}
    assert {gpu.compute_units for gpu in gpus} == {104}
    assert {gpu.integrated for gpu in gpus} == {False}
    assert {gpu.memory for gpu in gpus} == {()}  # local_mem_size 0 says nothing
    assert {gpu.wave_sizes for gpu in gpus} == {(64,)}
    addresses = [gpu.pci_address or "" for gpu in gpus]
    assert addresses == sorted(addresses)
    assert "0000:63:00.0" in addresses  # location_id 25344


def test_pool_sources_name_the_file(tmp_path: Path) -> None:
    (gpu,) = machine(tmp_path, FIXTURES / "lact/rx580/card0")
    vram = Pool(
        name="vram",
        total_bytes=4 << 30,
        free_bytes=(4 << 30) - 536870912,
        source="amdgpu mem_info_vram_total",
    )
    assert gpu.memory[0] == vram
