"""The recorded machines beside the repository, field by field as their README reads them; skipped where absent."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from wavefit.device.power import hwmon
from wavefit.device.probe import probe
from wavefit.schema import Device, Link, Sensors

FIXTURES = Path(__file__).parents[2].parent / "shared/fixtures"
pytestmark = pytest.mark.skipif(not FIXTURES.is_dir(), reason="the recorded machines are not here")

MACHINES: dict[str, tuple[str, str]] = {  # DRM's card and KFD's topology
    "phoenix": ("lact/phoenix/card1", "lact/phoenix/kfd/topology"),
    "vangogh": ("lact/vangogh/card0", "lact/vangogh/kfd/topology"),
    "rx7900xtx": ("lact/rx7900xtx/card0", ""),
    "rx580": ("lact/rx580/card0", ""),
    "vega10": ("", "kfd/topology-parsing/topology"),
    "mi210": ("", "kfd/topo-mi210-xgmi-pcie"),
}


def pool(name: str, end: str) -> Callable[[Device], int | None]:
    return lambda gpu: next((getattr(each, end) for each in gpu.memory if each.name == name), None)


def power(gpu: Device) -> dict[str, tuple[str, float]]:
    """Each meter of the GPU: what it covers, and the watts that it reads."""
    read = {}
    for meter in hwmon.meters(gpu):
        meter.start()
        found = meter.stop(1)
        assert found is not None
        read[meter.name.removeprefix("amdgpu hwmon ")] = (meter.covers, round(found.watts or 0.0, 3))
    return read


FIELDS: dict[str, Callable[[Device], object]] = {
    "vram": pool("vram", "total_bytes"),
    "vram free": pool("vram", "free_bytes"),
    "gtt": pool("gtt", "total_bytes"),
    "gtt free": pool("gtt", "free_bytes"),
    "kfd": pool("kfd", "total_bytes"),
    "kfd free": pool("kfd", "free_bytes"),
    "vis_vram": pool("vis_vram", "total_bytes"),
    "vis_vram free": pool("vis_vram", "free_bytes"),
    "power": power,
}
"""Readings that are not a field of Device by themselves."""

READINGS: tuple[tuple[str, str, object], ...] = (
    ("phoenix", "vendor", "amd"),
    ("phoenix", "integrated", True),
    ("phoenix", "pci_id", "1002:15bf"),
    ("phoenix", "pci_address", "0000:64:00.0"),
    ("phoenix", "gfx", "gfx1103"),
    ("phoenix", "compute_units", 12),
    ("phoenix", "wave_sizes", (32,)),
    ("phoenix", "lds_bytes", 65536),
    ("phoenix", "caches", {"l2_bytes": 2 << 20}),
    ("phoenix", "vram", 4 << 30),
    ("phoenix", "vram free", (4 << 30) - 1272893440),
    ("phoenix", "gtt", 31433977856),
    ("phoenix", "gtt free", 31433977856 - 211398656),
    ("phoenix", "kfd", 31433977856),
    ("phoenix", "vis_vram", 4 << 30),
    ("phoenix", "vis_vram free", (4 << 30) - 1272893440),
    ("phoenix", "sensors", None),  # no fan, no power cap
    ("phoenix", "clock_hz", 2.7e9),
    ("phoenix", "partitions", ()),
    ("phoenix", "partition_mode", None),
    ("phoenix", "power", {"power1_average (PPT)": ("package", 3.103)}),
    ("phoenix", "link", None),
    ("phoenix", "driver", "amdgpu"),
    ("phoenix", "name", None),  # of the 7840U, 7640U and others
    ("vangogh", "integrated", True),
    ("vangogh", "pci_id", "1002:163f"),
    ("vangogh", "gfx", "gfx1033"),
    ("vangogh", "vendor", "amd"),
    ("vangogh", "pci_address", "0000:04:00.0"),  # location_id 1024
    ("vangogh", "wave_sizes", (32,)),
    ("vangogh", "lds_bytes", 65536),
    ("vangogh", "clock_hz", None),  # max_engine_clk_fcompute 0
    ("vangogh", "link", None),
    ("vangogh", "driver", "amdgpu"),
    ("vangogh", "sensors", Sensors(power_cap_w=15.0, power_cap_default_w=15.0, power_cap_max_w=29.0)),
    ("vangogh", "compute_units", 8),
    ("vangogh", "kfd", 8 << 30),
    ("vangogh", "vram", None),  # not recorded, so unknown
    (
        "vangogh",
        "power",
        {"power1_average (slowPPT)": ("package", 3.218), "power2_average (fastPPT)": ("package", 3.040)},
    ),
    ("rx7900xtx", "integrated", False),
    ("rx7900xtx", "pci_id", "1002:744c"),
    ("rx7900xtx", "pci_address", "0000:03:00.0"),
    ("rx7900xtx", "gfx", "gfx1100"),
    ("rx7900xtx", "vendor", "amd"),
    ("rx7900xtx", "driver", "amdgpu"),
    ("rx7900xtx", "compute_units", None),  # no KFD was recorded, and the id is that of cards with 80 to 96
    (
        "rx7900xtx",
        "sensors",
        Sensors(
            power_cap_w=290.0,
            power_cap_default_w=290.0,
            power_cap_max_w=333.0,
            fan_rpm=0.0,
            fan_max_rpm=3200.0,
        ),
    ),
    ("rx7900xtx", "name", None),  # the id is that of the XTX, XT and GRE
    ("rx7900xtx", "link", Link(speed_gts=16.0, width=16)),
    ("rx7900xtx", "power", {"power1_average (PPT)": ("package", 68.0)}),
    ("rx7900xtx", "memory", ()),
    ("rx580", "integrated", False),
    ("rx580", "pci_id", "1002:67df"),  # from uevent alone
    ("rx580", "pci_address", "0000:09:00.0"),
    ("rx580", "gfx", "gfx803"),
    ("rx580", "compute_units", None),
    ("rx580", "vram", 4 << 30),
    ("rx580", "vram free", (4 << 30) - 536870912),
    ("rx580", "gtt", 8342712320),
    ("rx580", "gtt free", 8342712320 - 92377088),
    ("rx580", "vis_vram", 256 << 20),  # no resizable BAR
    ("rx580", "vis_vram free", (256 << 20) - 150302720),
    ("rx580", "vendor", "amd"),
    ("rx580", "driver", "amdgpu"),
    ("rx580", "power", {"power1_average (PPT)": ("package", 41.045)}),
    (
        "rx580",
        "sensors",
        Sensors(
            power_cap_w=155.0,
            power_cap_default_w=155.0,
            power_cap_max_w=201.0,
            fan_rpm=595.0,
            fan_max_rpm=3200.0,
        ),
    ),
    ("rx580", "link", Link(max_speed_gts=8.0, max_width=16)),
    ("vega10", "integrated", False),
    ("vega10", "pci_id", "1002:6860"),  # 26720
    ("vega10", "pci_address", "0000:19:00.0"),  # of both: the second was copied from the first
    ("vega10", "gfx", "gfx900"),  # from the id: this kernel wrote no gfx_target_version
    ("vega10", "compute_units", 64),
    ("vega10", "wave_sizes", (64,)),
    ("vega10", "lds_bytes", 65536),
    ("vega10", "clock_hz", 1.5e9),
    ("vega10", "kfd", 17163091968),
    ("vega10", "kfd free", 17163091968 - 14102528),
    ("mi210", "integrated", False),
    ("mi210", "gfx", "gfx90a"),
    ("mi210", "compute_units", 104),
    ("mi210", "wave_sizes", (64,)),
    ("mi210", "vendor", "amd"),
    ("mi210", "pci_id", "1002:740f"),  # 29711
    ("mi210", "lds_bytes", 65536),
    ("mi210", "clock_hz", 1.7e9),
    ("mi210", "partitions", ()),
    ("mi210", "memory", ()),  # local_mem_size 0 says nothing
    ("mi210", "name", "Instinct MI210"),  # the only product of its id
)


@pytest.fixture(scope="module")
def gpus(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Device, ...]]:
    """The GPUs of a recording, laid out as sysfs has them."""
    found: dict[str, tuple[Device, ...]] = {}

    def read(name: str) -> tuple[Device, ...]:
        if name not in found:
            root, (card, topology) = tmp_path_factory.mktemp(name), MACHINES[name]
            if card:
                skip = shutil.ignore_patterns("ip_discovery")
                shutil.copytree(FIXTURES / card, root / "sys/class/drm" / Path(card).name, ignore=skip)
            if topology:
                shutil.copytree(FIXTURES / topology, root / "sys/class/kfd/kfd/topology")
            found[name] = probe(root)[1:]
        return found[name]

    return read


@pytest.mark.parametrize(
    ("machine", "field", "expected"), READINGS, ids=[f"{row[0]} {row[1]}" for row in READINGS]
)
def test_a_field_of_a_recorded_machine(
    gpus: Callable[[str], tuple[Device, ...]], machine: str, field: str, expected: object
) -> None:
    found = [FIELDS[field](gpu) if field in FIELDS else getattr(gpu, field) for gpu in gpus(machine)]
    assert found == [expected] * len(found)
    assert found


@pytest.mark.parametrize(
    ("machine", "count"),
    [("phoenix", 1), ("vangogh", 1), ("rx7900xtx", 1), ("rx580", 1), ("vega10", 2), ("mi210", 8)],
)
def test_every_gpu_is_one_device(gpus: Callable[[str], tuple[Device, ...]], machine: str, count: int) -> None:
    """The CPUs' nodes are none."""
    assert [gpu.id for gpu in gpus(machine)] == [f"gpu{number}" for number in range(count)]


def test_eight_cards_stand_in_the_order_of_the_bus(gpus: Callable[[str], tuple[Device, ...]]) -> None:
    addresses = [gpu.pci_address or "" for gpu in gpus("mi210")]
    assert addresses == sorted(set(addresses))
    assert "0000:63:00.0" in addresses  # location_id 25344


def test_a_pool_names_the_file_that_it_was_read_from(gpus: Callable[[str], tuple[Device, ...]]) -> None:
    assert gpus("rx580")[0].memory[0].source == "amdgpu mem_info_vram_total"
