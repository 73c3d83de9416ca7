"""Devices read from fake machines: what each rule of the real ones demands."""

from __future__ import annotations

import os
import platform
import random
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from fakes import sysfs
from fakes.sysfs import GIB

from wavefit.device.power import meters
from wavefit.device.probe import merge, probe
from wavefit.schema import Device, Link, Pool, Runtime, decode, encode


def test_this_machine_has_its_cpu_first() -> None:
    cpu = probe()[0]
    assert (cpu.id, cpu.kind) == ("cpu", "cpu")
    assert cpu.machine is not None
    assert platform.release() in cpu.machine
    if hasattr(os, "sched_getaffinity"):
        assert cpu.threads is not None
        assert 1 <= cpu.threads <= len(os.sched_getaffinity(0))
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else None
    pool = cpu.memory[0]
    assert pool.total_bytes is not None
    assert total is None or pool.total_bytes <= total
    assert pool.free_bytes is not None
    assert pool.free_bytes < pool.total_bytes


def test_affinity_limits_the_threads_of_this_machine() -> None:
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("this system has no affinity mask")
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        cpu = probe()[0]
    finally:
        os.sched_setaffinity(0, before)
    assert (cpu.threads, cpu.compute_units) == (1, 1)


def test_a_recorded_cpu(tmp_path: Path) -> None:
    (cpu,) = probe(sysfs.linux(tmp_path))
    assert cpu.name == "AMD Ryzen 7 7840U w/ Radeon 780M Graphics"
    assert (cpu.vendor, cpu.compute_units, cpu.threads) == ("amd", 8, 16)
    ram = Pool(name="ram", total_bytes=31 * GIB, free_bytes=20 * GIB, source="/proc/meminfo")
    assert cpu.memory == (ram,)
    assert cpu.machine == "Ubuntu 24.04.3 LTS, Linux 6.14.0-29-generic"


@pytest.mark.parametrize(
    "files",
    [
        {
            "proc/self/cgroup": "0::/box",
            "sys/fs/cgroup/cpu.max": "max 100000",
            "sys/fs/cgroup/box/cpu.max": "250000 100000",
            "sys/fs/cgroup/box/memory.max": 4 * GIB,
            "sys/fs/cgroup/box/memory.current": 2 * GIB,
            "sys/fs/cgroup/box/memory.stat": f"anon 1\ninactive_file {GIB}",
        },
        {
            "proc/self/cgroup": "5:cpu,cpuacct:/box\n4:memory:/box",
            "sys/fs/cgroup/cpu/box/cpu.cfs_quota_us": 250000,
            "sys/fs/cgroup/cpu/box/cpu.cfs_period_us": 100000,
            "sys/fs/cgroup/memory/box/memory.limit_in_bytes": 4 * GIB,
            "sys/fs/cgroup/memory/box/memory.usage_in_bytes": 2 * GIB,
            "sys/fs/cgroup/memory/box/memory.stat": f"total_inactive_file {GIB}",
        },
    ],
    ids=["version 2", "version 1"],
)
def test_a_container_limits_threads_and_memory(tmp_path: Path, files: dict[str, object]) -> None:
    (cpu,) = probe(sysfs.write(sysfs.linux(tmp_path), files))
    assert cpu.threads == 3  # 2.5 processors' worth of time
    assert (cpu.memory[0].total_bytes, cpu.memory[0].free_bytes) == (4 * GIB, 3 * GIB)


def test_an_apu(tmp_path: Path) -> None:
    sysfs.linux(tmp_path)
    sysfs.cpu_node(tmp_path)
    sysfs.apu(tmp_path)
    _, gpu = probe(tmp_path)
    assert (gpu.id, gpu.kind, gpu.vendor, gpu.gfx) == ("gpu0", "gpu", "amd", "gfx1103")
    assert gpu.integrated is True
    assert gpu.link is None  # it shows 16 GT/s x16, inside the chip
    assert (gpu.compute_units, gpu.wave_sizes, gpu.lds_bytes) == (12, (32,), 65536)
    assert gpu.caches == {"l2_bytes": 2 << 20}
    pools = {pool.name: (pool.total_bytes, pool.free_bytes) for pool in gpu.memory}
    assert pools == {
        "vram": (4 * GIB, 3 * GIB),
        "gtt": (31433977856, 31433977856 - 211398656),
        "kfd": (31433977856, None),
    }
    assert (gpu.pci_id, gpu.pci_address) == ("1002:15bf", "0000:64:00.0")
    assert gpu.driver == "amdgpu in-tree"
    assert gpu.sysfs == str(tmp_path / "sys/bus/pci/devices/0000:64:00.0")


def test_a_card_beside_an_apu(tmp_path: Path) -> None:
    sysfs.linux(tmp_path)
    sysfs.cpu_node(tmp_path)
    sysfs.apu(tmp_path)
    sysfs.card(tmp_path)
    first, second = probe(tmp_path)[1:]
    assert (first.id, first.gfx, first.integrated) == ("gpu0", "gfx1100", False)  # 03:00.0 before 64:00.0
    assert (second.id, second.gfx, second.integrated) == ("gpu1", "gfx1103", True)
    assert first.compute_units == 96
    # The slot's link, not that inside the card: the upstream port of its own switch.
    assert first.link == Link(speed_gts=16.0, width=8, max_speed_gts=16.0, max_width=16)
    assert first.name is None  # 1002:744c is several products


def test_names_come_from_the_machines_tables(tmp_path: Path) -> None:
    sysfs.linux(tmp_path)
    sysfs.card(tmp_path)
    sysfs.apu(tmp_path)
    tables = {
        "usr/share/libdrm/amdgpu.ids": "1.0.0\n744C,\tC8,\tAMD Radeon RX 7900 XTX\n744C,\tCC,\tAMD Radeon RX 7900 XT",
        "usr/share/misc/pci.ids": "1002  AMD/ATI\n\t15bf  Phoenix1\n\t\t17aa 50da  a laptop\n10de  NVIDIA\n\t15bf  no",
    }
    names = [device.name for device in probe(sysfs.write(tmp_path, tables))[1:]]
    assert names == ["AMD Radeon RX 7900 XTX", "Phoenix1"]


def test_ids_may_stand_only_in_uevent(tmp_path: Path) -> None:
    uevent = "DRIVER=amdgpu\nPCI_CLASS=30000\nPCI_ID=1002:67DF\nPCI_SLOT_NAME=0000:09:00.0"
    _, gpu = probe(sysfs.write(tmp_path, {"sys/class/drm/card0/device/uevent": uevent}))
    assert (gpu.pci_id, gpu.pci_address, gpu.driver) == ("1002:67df", "0000:09:00.0", "amdgpu")
    assert (gpu.gfx, gpu.integrated) == ("gfx803", False)


@pytest.mark.parametrize(
    ("vendor", "number", "counts"),
    [
        ("0x1002", "0x030000", True),  # VGA
        ("0x1002", "0x038000", True),  # other display controller
        ("0x1002", "0x120000", True),  # processing accelerator: Instinct
        ("0x10de", "0x030200", True),  # 3D controller: H200
        ("0x8086", "0x030000", True),
        ("0x8086", "0x120000", False),  # Intel's NPU
        ("0x1022", "0x118000", False),  # AMD's NPU
        ("0x1002", "0x040300", False),  # a card's HDMI sound
        ("0x1a03", "0x030000", False),  # a server's console
    ],
)
def test_what_is_a_gpu(tmp_path: Path, vendor: str, number: str, counts: bool) -> None:
    sysfs.pci(tmp_path, "0000:01:00.0", {"vendor": vendor, "device": "0x1234", "class": number})
    assert len(probe(tmp_path)) == 1 + counts


def test_a_gpu_lent_to_a_virtual_machine_keeps_its_drivers_name(tmp_path: Path) -> None:
    uevent = "DRIVER=vfio-pci\nPCI_SLOT_NAME=0000:03:00.0"
    files = {"vendor": "0x1002", "device": "0x73bf", "class": "0x030000", "uevent": uevent}
    _, gpu = probe(sysfs.pci(sysfs.linux(tmp_path), "0000:03:00.0", files).parents[4])
    assert (gpu.driver, gpu.gfx) == ("vfio-pci", "gfx1030")


def test_npu_agents_are_no_gpus(tmp_path: Path) -> None:
    sysfs.kfd_node(
        tmp_path, 2, {"simd_count": 0, "cpu_cores_count": 0, "vendor_id": 0x1022, "location_id": 0xC500}
    )
    assert len(probe(tmp_path)) == 1


def test_a_card_without_local_mem_size_is_discrete(tmp_path: Path) -> None:
    properties = sysfs.gpu_properties("0000:63:00.0", simd_count=416, simd_per_cu=4, gfx_target_version=90010)
    sysfs.kfd_node(tmp_path, 2, properties)
    _, gpu = probe(tmp_path)
    assert (gpu.gfx, gpu.integrated, gpu.compute_units) == ("gfx90a", False, 104)


def test_an_old_apus_node_holds_cpu_cores_as_well(tmp_path: Path) -> None:
    properties = sysfs.gpu_properties("0000:00:01.0", simd_count=44, simd_per_cu=4, cpu_cores_count=8)
    sysfs.kfd_node(tmp_path, 0, properties, name="unheard of")
    _, gpu = probe(tmp_path)
    assert (gpu.gfx, gpu.integrated, gpu.compute_units) == (None, True, 11)


@pytest.mark.parametrize(("device", "integrated"), [(0x74A0, True), (0x74A1, False)])
def test_mi300a_and_mi300x_share_a_target(tmp_path: Path, device: int, integrated: bool) -> None:
    properties = sysfs.gpu_properties("0000:01:00.0", simd_count=912, simd_per_cu=4, gfx_target_version=90402)
    sysfs.kfd_node(tmp_path, 1, properties | {"device_id": device})
    _, gpu = probe(tmp_path)
    assert (gpu.gfx, gpu.integrated) == ("gfx942", integrated)


@pytest.mark.parametrize("shift", [28, 0], ids=["bits 28 to 31", "the function"])
def test_partitions_are_one_card(tmp_path: Path, shift: int) -> None:
    for part in range(8):
        properties = sysfs.gpu_properties(
            "0000:05:00.0", simd_count=152, simd_per_cu=4, gfx_target_version=90402
        )
        properties["location_id"] |= part << shift
        sysfs.kfd_node(tmp_path, 1 + part, properties | {"device_id": 0x74A1}, heap=24 * GIB)
    _, gpu = probe(tmp_path)
    assert (gpu.pci_address, gpu.compute_units) == ("0000:05:00.0", 304)  # AMD's data sheet: MI300X has 304
    assert gpu.memory[0].total_bytes == 192 * GIB


def test_an_unknown_target_is_neither_integrated_nor_discrete(tmp_path: Path) -> None:
    properties = sysfs.gpu_properties("0000:05:00.0", simd_count=64, simd_per_cu=2, gfx_target_version=150101)
    sysfs.kfd_node(tmp_path, 1, properties)
    _, gpu = probe(tmp_path)
    assert (gpu.gfx, gpu.integrated) == ("gfx1511", None)


def test_gpus_stand_in_pci_order_by_number(tmp_path: Path) -> None:
    for address in ("10000:01:00.0", "0000:c1:00.0", "0000:0a:00.0", "0000:0a:00.1"):
        sysfs.pci(tmp_path, address, {"vendor": "0x1002", "device": "0x744c", "class": "0x030000"})
    addresses = [device.pci_address for device in probe(tmp_path)[1:]]
    assert addresses == ["0000:0a:00.0", "0000:0a:00.1", "0000:c1:00.0", "10000:01:00.0"]


def test_unknown_links_are_unknown(tmp_path: Path) -> None:
    files = {"vendor": "0x10de", "device": "0x2335", "class": "0x030200", "current_link_speed": "Unknown"}
    sysfs.pci(tmp_path, "0000:01:00.0", {**files, "current_link_width": 0})
    assert probe(tmp_path)[1].link is None


def test_nvidias_driver_without_its_library(tmp_path: Path) -> None:
    files = {
        "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release",
        "proc/driver/nvidia/gpus/0000:65:00.0/information": "Model: \t\t NVIDIA H200\nIRQ:   \t\t 186",
    }
    sysfs.pci(tmp_path, "0000:65:00.0", {"vendor": "0x10de", "device": "0x2335", "class": "0x030200"})
    _, gpu = probe(sysfs.write(tmp_path, files))
    assert (gpu.vendor, gpu.name, gpu.driver) == ("nvidia", "NVIDIA H200", "nvidia 580.65.06")


@pytest.mark.parametrize("there", [True, False])
def test_wsl_is_said(tmp_path: Path, there: bool) -> None:
    sysfs.linux(tmp_path)
    sysfs.write(tmp_path, {"proc/sys/kernel/osrelease": "6.6.87.2-microsoft-standard-WSL2"})
    if there:
        sysfs.write(tmp_path, {"dev/dxg": ""})
    machine = probe(tmp_path)[0].machine
    assert machine is not None
    assert machine.endswith("WSL with /dev/dxg" if there else "WSL without /dev/dxg")


def test_an_empty_tree_is_a_cpu_of_which_nothing_is_known(tmp_path: Path) -> None:
    assert probe(tmp_path) == (Device(id="cpu", kind="cpu"),)


def test_devices_survive_json(tmp_path: Path) -> None:
    sysfs.apu(sysfs.linux(tmp_path))
    for device in probe(tmp_path):
        assert decode(encode(device), Device) == device


def test_merging_keeps_the_first_word_and_each_runtime_once() -> None:
    hip, cuda = Runtime(name="hip", index=0), Runtime(name="cuda", index=1)
    small, large = Pool(name="vram", total_bytes=1, source="a"), Pool(name="vram", total_bytes=2, source="b")
    first = Device(
        id="", kind="gpu", integrated=False, runtimes=(hip,), memory=(small,), caches={"l2_bytes": 1}
    )
    second = Device(id="", kind="gpu", integrated=True, gfx="gfx1100", runtimes=(hip, cuda), memory=(large,))
    both = merge(first, second)
    assert (both.integrated, both.gfx, both.runtimes, both.memory) == (
        False,
        "gfx1100",
        (hip, cuda),
        (small,),
    )
    assert both.caches == {"l2_bytes": 1}


GARBAGE = [
    b"",
    b"\0" * 20,
    b"N/A\n",
    b"\xff\xfe\xfa",
    b"-1\n",
    b"9" * 5000,
    b"0x",
    b"1e999",
    b"simd_count\n 5 5",
    b"max\n",
]


@pytest.mark.parametrize("seed", range(40))
def test_missing_and_garbled_files_never_raise(tmp_path: Path, seed: int) -> None:
    sysfs.linux(tmp_path, cores=2, threads=4)
    sysfs.cpu_node(tmp_path)
    sysfs.apu(tmp_path)
    sysfs.card(tmp_path)
    sysfs.write(tmp_path, {"proc/self/cgroup": "0::/box", "sys/fs/cgroup/box/cpu.max": "200000 100000"})
    chance = random.Random(seed)
    for path in sorted(tmp_path.rglob("*")):
        draw = chance.random()
        if path.is_file() and not path.is_symlink() and draw < 0.5:
            path.write_bytes(chance.choice(GARBAGE)) if draw < 0.25 else path.unlink()
        elif path.is_dir() and draw < 0.03:
            path.unlink() if path.is_symlink() else shutil.rmtree(path)
    devices = probe(tmp_path)
    assert devices[0].id == "cpu"
    for device in devices:
        assert all(pool.total_bytes is None or pool.total_bytes > 0 for pool in device.memory)
        assert device.compute_units is None or device.compute_units > 0
        assert decode(encode(device), Device) == device
        meters(device)  # nor do they


def test_folders_pipes_and_loops_in_place_of_files(tmp_path: Path) -> None:
    folder = sysfs.apu(sysfs.linux(tmp_path))
    (folder / "vendor").unlink()
    (folder / "vendor").mkdir()
    (folder / "class").unlink()
    (folder / "class").symlink_to("class")
    (tmp_path / "proc/cpuinfo").unlink()
    os.mkfifo(tmp_path / "proc/cpuinfo")
    cpu, gpu = probe(tmp_path)
    assert cpu.name is None
    assert gpu.gfx == "gfx1103"  # KFD still knows it


def test_a_machine_without_proc_is_no_failure() -> None:
    """As in some sandboxes: an empty file system lies over /proc, in a namespace of its own."""
    code = "from wavefit.device.probe import probe; print(probe()[0].memory)"
    inside = f"mount -t tmpfs none /proc && exec {shlex.quote(sys.executable)} -c {shlex.quote(code)}"
    able = shutil.which("unshare") and subprocess.run(
        ["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/proc"], capture_output=True, check=False
    )
    if not able or able.returncode != 0:
        pytest.skip("namespaces cannot be made here")
    done = subprocess.run(["unshare", "-rm", "sh", "-c", inside], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "()\n", "")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_what_may_not_be_read_is_unknown(tmp_path: Path) -> None:
    sysfs.apu(sysfs.linux(tmp_path))
    closed = [tmp_path / name for name in ("proc", "etc", "sys/module", "sys/class/kfd")]
    for folder in closed:
        folder.chmod(0)
    try:
        cpu, gpu = probe(tmp_path)
    finally:
        for folder in closed:
            folder.chmod(0o755)
    assert cpu == Device(id="cpu", kind="cpu")
    assert (gpu.pci_id, gpu.compute_units, gpu.driver) == ("1002:15bf", None, "amdgpu")
