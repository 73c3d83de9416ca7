"""rocm-smi's JSON. The recorded outputs lie beside the repository; what they hold is told here in small as well."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from wavefit.device import rocm_smi
from wavefit.device.probe import probe
from wavefit.doctor.unpack import open_machine
from wavefit.errors import InputError
from wavefit.schema import Device, Link, Pool, Sensors

FIXTURES = Path(__file__).parents[2].parent / "shared/fixtures/rocm-smi"

OLD = {
    "card0": {
        "GPU ID": "0x73df",
        "Unique ID": "N/A",
        "Max Graphics Package Power (W)": "211.0",
        "pcie clock level": "1 (16.0GT/s x16)",
        "PCI Bus": "0000:07:00.0",
        "VRAM Total Memory (B)": "12868124672",
        "VRAM Total Used Memory (B)": "1564491776",
        "VIS_VRAM Total Memory (B)": "268435456",
        "VIS_VRAM Total Used Memory (B)": "N/A",
        "GTT Total Memory (B)": "0",
        "Fan RPM": "682",
        "Card series": "Navi 22 [Radeon RX 6700/6700 XT / 6800M]",
    },
    "system": {"Driver version": "6.3.6"},
}
NEW = {
    "card0": {
        "Device ID": "0x73DF",
        "GFX Version": "gfx1031",
        "PCI Bus": "0000:07:00.0",
        "Card Series": "N/A",
        "Max Graphics Package Power (W)": "0.0",
        "pcie clock level": "N/A",
    }
}


def read(root: Path, output: object) -> Device:
    path = root / rocm_smi.FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(output))
    (gpu,) = probe(root)[1:]
    return gpu


def test_the_keys_of_an_old_version(tmp_path: Path) -> None:
    gpu = read(tmp_path, OLD)
    assert (gpu.pci_id, gpu.pci_address, gpu.gfx) == ("1002:73df", "0000:07:00.0", "gfx1031")
    assert gpu.integrated is False
    assert gpu.name == "Navi 22 [Radeon RX 6700/6700 XT / 6800M]"
    assert gpu.memory == (
        Pool(name="vram", total_bytes=12868124672, free_bytes=12868124672 - 1564491776, source="rocm-smi"),
        Pool(name="vis_vram", total_bytes=268435456, source="rocm-smi"),
    )
    assert gpu.link == Link(speed_gts=16.0, width=16)
    assert gpu.sensors == Sensors(power_cap_w=211.0, fan_rpm=682.0)
    assert gpu.driver == "amdgpu 6.3.6"


def test_the_keys_of_a_new_version_and_what_it_does_not_know(tmp_path: Path) -> None:
    gpu = read(tmp_path, NEW)
    assert (gpu.pci_id, gpu.gfx) == ("1002:73df", "gfx1031")
    assert (gpu.name, gpu.link, gpu.sensors, gpu.memory, gpu.driver) == (None, None, None, (), None)


@pytest.mark.parametrize(
    "text", ["", "no json", "[]", "{}", '{"system": {"Driver version": "6.3.6"}}', '{"card0": 1}']
)
def test_another_file_is_one_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "output.json"
    path.write_text(text)
    with pytest.raises(InputError, match="tells of no GPU"), open_machine(path):
        pass


@pytest.mark.skipif(not FIXTURES.is_dir(), reason="the recorded machines are not here")
@pytest.mark.parametrize(
    ("file", "count", "pci_id", "gfx", "address", "vram", "visible", "cap"),
    [
        ("mi100_rocm602", 4, "1002:738c", "gfx908", "0000:83:00.0", 34342961152, 34342961152, 290.0),
        ("rx6700xt_rocm571", 1, "1002:73df", "gfx1031", "0000:07:00.0", 12868124672, 268435456, 211.0),
        ("vega-10-XT", 1, "1002:6861", "gfx900", "0000:04:00.0", 17163091968, 268435456, 170.0),
    ],
)
def test_the_recorded_outputs(
    file: str, count: int, pci_id: str, gfx: str, address: str, vram: int, visible: int, cap: float
) -> None:
    with open_machine(FIXTURES / f"{file}.json") as machine:
        gpus = machine.devices[1:]
    assert len(gpus) == count
    gpu, sizes = gpus[0], {pool.name: pool.total_bytes for pool in gpus[0].memory}
    assert (gpu.pci_id, gpu.gfx, gpu.pci_address, gpu.integrated) == (pci_id, gfx, address, False)
    assert (sizes["vram"], sizes["vis_vram"]) == (vram, visible)
    assert gpu.sensors is not None
    assert gpu.sensors.power_cap_w == cap
