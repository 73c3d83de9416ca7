"""The catalogue's reader: names, ids, a GPU that is not here, what it adds to one that is, and what it refuses."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from fakes import sysfs

from wavefit.device import catalogue
from wavefit.device.kfd import gpus
from wavefit.device.probe import probe
from wavefit.errors import InputError
from wavefit.schema import Device, Figure

FIXTURES = Path(__file__).parents[2].parent / "shared/fixtures"
recorded = pytest.mark.skipif(not FIXTURES.is_dir(), reason="the recorded machines are not here")


def product_named(name: str) -> str | None:
    found = catalogue.product(name)
    return found.name if found else None


# ---- Names and ids --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("AMD Radeon RX 7900 XT", "Radeon RX 7900 XT"),  # not the XTX
        ("AMD Radeon(TM) 780M Graphics", "Radeon 780M"),  # as Windows writes it
        ("AMD Radeon Pro W7900", "Radeon PRO W7900"),  # as libdrm writes it
        ("AMD Custom GPU 0405", "Steam Deck"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM5 80GB"),  # as NVML writes it
        ("1002:74a1", "Instinct MI300X"),
        ("1002:744C", None),  # shared by the 7900 XTX, XT, GRE and 7900M
        ("1002:73bf", None),
        ("1002:ffff", None),
        ("Navi 31 [Radeon RX 7900 XT/7900 XTX/7900 GRE/7900M]", None),  # as pci.ids names all of them
        ("AMD Radeon Graphics", None),
        ("", None),
    ],
)
def test_a_product_by_full_name_or_id(name: str, expected: str | None) -> None:
    assert product_named(name) == expected


def test_an_unknown_target_is_none() -> None:
    assert catalogue.target("gfx803") is None
    assert catalogue.support("gfx803") == ()
    found = catalogue.target("GFX1103")
    assert found is not None
    assert found.gfx == "gfx1103"


# ---- A GPU that is not here -----------------------------------------------------------------------------------------


def test_an_accelerator_and_an_apu_of_one_target() -> None:
    """AMD: MI300A has CPUs and GPU on one memory, MI300X is a card."""
    assert [catalogue.device_of(name).integrated for name in ("mi300a", "mi300x")] == [True, False]


@pytest.mark.parametrize(
    ("name", "expected", "gfx", "units"),
    [
        ("7900 xtx", "Radeon RX 7900 XTX", "gfx1100", 96),
        ("RX7900XT", "Radeon RX 7900 XT", "gfx1100", 84),
        ("mi300x", "Instinct MI300X", "gfx942", 304),
        ("mi300a", "Instinct MI300A", "gfx942", 228),
        ("vii", "Radeon VII", "gfx906", 60),
        ("5700g", "Radeon Vega 8 (Ryzen 7 5700G)", "gfx90c", 8),
        ("Ryzen AI Max+ 395", "Radeon 8060S", "gfx1151", 40),
        ("steam deck", "Steam Deck", "gfx1033", 8),
        ("gfx1103", "gfx1103 (taken as Radeon 780M)", "gfx1103", 12),
        (" GFX1201 ", "gfx1201 (taken as Radeon RX 9070 XT)", "gfx1201", 64),
        ("h200", "H200 SXM", None, 132),
    ],
)
def test_a_device_by_name(name: str, expected: str, gfx: str | None, units: int) -> None:
    device = catalogue.device_of(name)
    assert (device.kind, device.name, device.gfx, device.compute_units) == ("gpu", expected, gfx, units)
    assert "fp32" in device.peaks


def test_a_card_that_is_not_here_has_memory_link_and_caches() -> None:
    device = catalogue.device_of("RX 6800 XT")
    assert [(pool.name, pool.total_bytes, pool.free_bytes) for pool in device.memory] == [
        ("vram", 16 << 30, None)
    ]
    assert device.link is not None
    assert (device.link.max_speed_gts, device.link.max_width, device.link.speed_gts) == (16.0, 16, None)
    assert device.caches == {"l2_bytes": 4 << 20, "l3_bytes": 128 << 20}
    assert (device.integrated, device.wave_sizes, device.lds_bytes, device.vgprs) == (
        False,
        (32, 64),
        65536,
        1024,
    )
    assert device.peaks["bandwidth"].value == 512e9


def test_an_apu_that_is_not_here_has_no_memory_of_its_own() -> None:
    device = catalogue.device_of("680M")
    assert (device.integrated, device.memory, device.link) == (True, (), None)
    assert device.peaks["bandwidth"].value == 102.4e9


def test_a_card_of_two_gpus_is_one_of_them() -> None:
    device = catalogue.device_of("MI250X")
    assert (device.compute_units, device.memory[0].total_bytes) == (110, 64 << 30)
    assert device.peaks["fp16_matrix"].value == pytest.approx(191.5e12)
    assert device.peaks["bandwidth"].value == pytest.approx(1.638e12, rel=0.01)


def test_a_target_without_a_product_has_what_the_target_tells() -> None:
    device = catalogue.device_of("gfx1250")
    assert (device.lds_bytes, device.vgprs, device.wave_sizes) == (327680, 1024, (32,))
    assert (device.name, device.compute_units, device.peaks) == (None, None, {})


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("7900", ("several", "RX 7900 XTX", "RX 7900 XT", "RX 7900 GRE", "W7900")),
        ("mi50", ("several", "MI50 16GB", "MI50 32GB")),
        ("gfx803", ("no target gfx803", "gfx900", "gfx1250")),
        ("radeon", ("no GPU called 'radeon'", "gfx1100")),
        ("", ("no GPU called ''",)),
        ("H1000", ("no GPU called 'H1000'", "perhaps", "H100")),
        ("\x1b[31m", ("no GPU called",)),
    ],
)
def test_a_name_that_is_not_one_gpu(name: str, words: tuple[str, ...]) -> None:
    with pytest.raises(InputError) as caught:
        catalogue.device_of(name)
    assert all(word in str(caught.value) for word in words)
    assert "\n" not in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_every_product_and_target_is_found_by_its_own_name() -> None:
    for product in catalogue.products():
        assert catalogue.device_of(product.name).name == product.name
    for target in catalogue.targets():
        assert catalogue.device_of(target.gfx).gfx == target.gfx


# ---- A GPU that is here ---------------------------------------------------------------------------------------------


def card(units: int, **fields: object) -> Device:
    known = {"id": "gpu0", "kind": "gpu", "vendor": "amd", "gfx": "gfx1100", "pci_id": "1002:744c"}
    return Device(**known | {"compute_units": units} | fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("units", "gigabytes_per_s", "tflops"),
    [(96, 960, 61.4), (84, 800, 51.5), (80, 576, 46.0), (72, 576, 38.5)],
)
def test_a_shared_id_is_told_apart_by_its_units_and_not_named(
    units: int, gigabytes_per_s: int, tflops: float
) -> None:
    device = catalogue.fill(card(units))
    assert device.name is None
    assert device.peaks["bandwidth"].value == gigabytes_per_s * 1e9
    assert device.peaks["fp32"].value == pytest.approx(tflops * 1e12, rel=0.02)
    assert f"{units} CUs" in device.peaks["fp32"].source
    assert device.vgprs == 1536


def test_units_that_no_product_has_give_peaks_only_with_a_clock() -> None:
    assert catalogue.fill(card(40)).peaks == {}
    peaks = catalogue.fill(card(40, clock_hz=2e9)).peaks
    assert peaks["fp32"].value == 40 * 256 * 2e9
    assert "bandwidth" not in peaks
    assert catalogue.fill(card(40, pci_id=None)).peaks == {}


def test_what_the_machine_said_stays() -> None:
    measured = Figure(value=1e12, unit="FLOP/s", source="measured")
    given = card(96, wave_sizes=(32,), lds_bytes=1024, vgprs=7, caches={"l2_bytes": 1}, peaks={"fp32": measured},
                 name="AMD Radeon RX 7900 XTX")  # fmt: skip
    device = catalogue.fill(given)
    assert (device.wave_sizes, device.lds_bytes, device.vgprs) == ((32,), 1024, 7)
    assert device.caches == {"l2_bytes": 1, "l3_bytes": 96 << 20}
    assert device.peaks["fp32"] == measured
    assert device.peaks["bandwidth"].value == 960e9
    assert catalogue.fill(device) == device


def test_a_name_that_the_units_contradict_is_not_believed() -> None:
    device = catalogue.fill(card(84, name="AMD Radeon RX 7900 XTX"))
    assert device.peaks["bandwidth"].value == 800e9


def test_windows_tells_a_name_and_no_units() -> None:
    """The registry has name, id and memory alone."""
    name = "AMD Radeon RX 9070 XT"
    device = catalogue.fill(
        Device(id="gpu0", kind="gpu", vendor="amd", name=name, pci_id="1002:7550", gfx="gfx1201")
    )
    assert (device.compute_units, device.vgprs) == (64, 1536)
    assert device.peaks["fp16_matrix"].value == pytest.approx(195e12, rel=0.01)


def test_nvml_tells_a_name_alone() -> None:
    device = catalogue.fill(Device(id="gpu0", kind="gpu", vendor="nvidia", name="NVIDIA H200"))
    assert device.peaks["bandwidth"].value == 4.8e12
    assert (device.gfx, device.wave_sizes, device.compute_units) == (None, (), 132)


def test_a_cpu_and_an_unknown_gpu_stay_as_they_are() -> None:
    for device in (
        Device(id="cpu", kind="cpu", compute_units=8),
        Device(id="gpu0", kind="gpu", gfx="gfx803", pci_id="1002:67df", compute_units=36),
        Device(id="gpu0", kind="gpu", vendor="intel", name="Intel Arc A770"),
    ):
        assert catalogue.fill(device) == device


def test_the_probe_fills_what_it_finds(tmp_path: Path) -> None:
    root = sysfs.linux(tmp_path)
    sysfs.card(root)
    sysfs.apu(root)
    _, discrete, integrated = probe(root)
    assert discrete.peaks["bandwidth"].value == 960e9
    assert (integrated.vgprs, integrated.peaks["bandwidth"].value) == (1024, 120e9)


# ---- The recorded machines ------------------------------------------------------------------------------------------


def kfd_machine(root: Path, topology: Path) -> list[Device]:
    shutil.copytree(topology, root / "sys/class/kfd/kfd/topology")
    return list(probe(root)[1:])


@recorded
def test_recorded_phoenix(tmp_path: Path) -> None:
    (gpu,) = kfd_machine(tmp_path, FIXTURES / "lact/phoenix/kfd/topology")
    assert (gpu.name, gpu.clock_hz, gpu.vgprs, gpu.lds_bytes) == (None, 2.7e9, 1024, 65536)
    assert gpu.peaks["fp32"].value == pytest.approx(8.29e12, rel=0.01)
    assert gpu.peaks["fp16_matrix"].value == pytest.approx(16.6e12, rel=0.01)
    assert gpu.peaks["bandwidth"].value == 120e9


@recorded
def test_recorded_steam_deck(tmp_path: Path) -> None:
    (gpu,) = kfd_machine(tmp_path, FIXTURES / "lact/vangogh/kfd/topology")
    assert gpu.peaks["fp32"].value == pytest.approx(1.6e12, rel=0.03)
    assert gpu.peaks["bandwidth"].value == 88e9


@recorded
def test_recorded_mi210(tmp_path: Path) -> None:
    for gpu in kfd_machine(tmp_path, FIXTURES / "kfd/topo-mi210-xgmi-pcie"):
        assert (gpu.vgprs, gpu.lds_bytes, gpu.clock_hz) == (512, 65536, 1.7e9)
        assert gpu.peaks["fp16_matrix"].value == pytest.approx(181e12, rel=0.01)
        assert gpu.peaks["bandwidth"].value == pytest.approx(1.638e12, rel=0.01)


@recorded
def test_recorded_vega10_by_the_clock_of_its_driver(tmp_path: Path) -> None:
    """An MI25, which the catalogue lacks: 64 CUs at 1.5 GHz are the 12.29 TFLOPS that AMD publishes."""
    for gpu in kfd_machine(tmp_path, FIXTURES / "kfd/topology-parsing/topology"):
        assert gpu.peaks["fp32"].value == pytest.approx(12.29e12, rel=0.01)
        assert "bandwidth" not in gpu.peaks


@recorded
def test_recorded_7900xtx_is_not_named_from_its_id(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "lact/rx7900xtx/card0", tmp_path / "sys/class/drm/card0")
    _, gpu = probe(tmp_path)
    assert (gpu.name, gpu.compute_units, gpu.peaks) == (None, None, {})
    assert (gpu.wave_sizes, gpu.vgprs, gpu.lds_bytes) == ((32, 64), 1536, 65536)


@recorded
@pytest.mark.parametrize(
    "topology",
    ["lact/phoenix/kfd/topology", "lact/vangogh/kfd/topology", "kfd/topo-mi210-xgmi-pcie",
     "kfd/topology-parsing/topology"],
)  # fmt: skip
def test_the_driver_and_the_catalogue_say_the_same(tmp_path: Path, topology: str) -> None:
    shutil.copytree(FIXTURES / topology, tmp_path / "sys/class/kfd/kfd/topology")
    checked = 0
    devices = {device.gfx for device in gpus(tmp_path)}
    (gfx,) = devices
    facts = catalogue.target(gfx or "")
    assert facts is not None
    for file in sorted((FIXTURES / topology).glob("nodes/*/properties")):
        said = dict(line.split(maxsplit=1) for line in file.read_text().splitlines() if " " in line)
        if int(said.get("simd_count", 0)) == 0:
            continue
        assert int(said["max_waves_per_simd"]) == facts.max_waves_per_simd
        assert int(said["simd_per_cu"]) == facts.simds_per_cu
        assert int(said["wave_front_size"]) == facts.wave_sizes[0]
        assert int(said["lds_size_in_kb"]) << 10 == facts.lds_bytes
        checked += 1
    assert checked


# ---- A catalogue that is wrong --------------------------------------------------------------------------------------

GOOD = """
shared_pci_ids = []
support = []
product = []
[sources]
here = "a document"
page = "a site, {}"
[family.f]
architecture = "F"
wave_sizes = [64]
lds_kib = 64
vgprs = { 64 = 256 }
vgpr_granule = { 64 = 4 }
simds_per_cu = 4
packed_fp16 = true
bf16 = false
flops = { fp32 = 128 }
flops_source = { fp32 = "page:7" }
source = ["here"]
[target.gfx900]
family = "f"
source = ["here"]
"""
PRODUCT = """
[[product]]
name = "P"
vendor = "amd"
gfx = "gfx900"
compute_units = 4
boost_mhz = 1000
source = ["here"]
"""


def test_a_small_catalogue_reads() -> None:
    read = catalogue.parse(GOOD)
    target = read.targets["gfx900"]
    assert (target.vgprs, target.flops, target.flops_source) == (
        {64: 256},
        {"fp32": 128},
        {"fp32": "a site, 7"},
    )
    assert target.source == ("a document",)
    assert target.max_waves_per_simd is None


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("bf16 = false", "bf16 = false\nwaves = 4", "waves"),
        ("bf16 = false", "bf16 = 3", "bool"),
        ("{ fp32 = 128 }", "{ fp31 = 128 }", "fp31"),
        ("{ fp32 = 128 }", "{ fp32 = 128, fp16 = 256 }", "differ in their keys"),
        ("page:7", "elsewhere", "no source elsewhere"),
        ('family = "f"\nsource = ["here"]', 'family = "f"\nsource = ["nowhere"]', "no source nowhere"),
        ('family = "f"\nsource = ["here"]', 'family = "f"', "source"),
        ('family = "f"', 'family = "g"', "no family g"),
        ("wave_sizes = [64]", "wave_sizes = [64", "line"),
    ],
)
def test_a_wrong_catalogue_is_refused(old: str, new: str, words: str) -> None:
    assert old in GOOD
    with pytest.raises(ValueError, match=words):
        catalogue.parse(GOOD.replace(old, new))


def test_a_target_without_a_source_is_refused() -> None:
    with pytest.raises(ValueError, match="gfx900: no source"):
        catalogue.parse(GOOD.replace('source = ["here"]', "source = []"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (PRODUCT + PRODUCT, "stand twice: P"),
        (PRODUCT.replace('source = ["here"]', "source = []"), "P: no source"),
        (PRODUCT.replace("gfx900", "gfx901"), "no target gfx901"),
        (PRODUCT + 'colour = "red"', "colour"),
        (PRODUCT.replace('"amd"', '"intel"'), "intel"),
    ],
)
def test_a_wrong_product_is_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        catalogue.parse(GOOD.replace("product = []\n", "") + text)
