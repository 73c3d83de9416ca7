"""Small sysfs trees: a fake machine is a page of code. Values are those that the real machines show."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

GIB = 1 << 30


def write(folder: Path, files: Mapping[str, object]) -> Path:
    """Writes small files below a folder, each with a newline at its end, as sysfs has them."""
    for name, value in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n")
    return folder


def linux(root: Path, cores: int = 8, threads: int = 16) -> Path:
    """A Linux machine with one AMD CPU and 32 GiB."""
    blocks = [
        f"processor\t: {number}\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD Ryzen 7 7840U w/ Radeon 780M Graphics\n"
        f"physical id\t: 0\ncore id\t\t: {number % cores}\n"
        for number in range(threads)
    ]
    files = {
        "proc/cpuinfo": "\n".join(blocks),
        "proc/meminfo": "MemTotal:       32505856 kB\nMemFree:          100000 kB\nMemAvailable:   20971520 kB",
        "proc/sys/kernel/osrelease": "6.14.0-29-generic",
        "etc/os-release": 'NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 24.04.3 LTS"',
        "sys/module/amdgpu/initstate": "live",
    }
    return write(root, files)


def pci(root: Path, address: str, files: Mapping[str, object], behind: tuple[str, ...] = ()) -> Path:
    """A PCI device in the bus, below the bridges it is ``behind``; returns its folder."""
    real = root.joinpath("sys/devices/pci0000:00", *behind, address)
    write(real, {"uevent": "DRIVER=amdgpu\nPCI_SLOT_NAME=" + address, **files})
    listed = root / "sys/bus/pci/devices" / address
    listed.parent.mkdir(parents=True, exist_ok=True)
    listed.symlink_to(Path("../../../devices/pci0000:00").joinpath(*behind, address))
    return listed


def kfd_node(
    root: Path, number: int, properties: Mapping[str, int], heap: int | None = None, name: str = ""
) -> Path:
    """A node of the compute driver's topology; returns its folder."""
    node = root / f"sys/class/kfd/kfd/topology/nodes/{number}"
    files: dict[str, object] = {
        "name": name,
        "properties": "\n".join(f"{k} {v}" for k, v in properties.items()),
    }
    if heap is not None:
        files["mem_banks/0/properties"] = f"heap_type 1\nsize_in_bytes {heap}\nflags 0"
    return write(node, files)


def cpu_node(root: Path, number: int = 0) -> Path:
    return kfd_node(
        root, number, {"cpu_cores_count": 16, "simd_count": 0, "gfx_target_version": 0, "location_id": 0}
    )


def apu(root: Path, address: str = "0000:64:00.0", node: int = 1) -> Path:
    """A Ryzen 7840U's Radeon 780M: 4 GiB carved out, the GTT larger than many a card's memory."""
    files = {
        "vendor": "0x1002",
        "device": "0x15bf",
        "class": "0x030000",
        "revision": "0xdd",
        "current_link_speed": "16.0 GT/s PCIe",
        "current_link_width": 16,
        "mem_info_vram_total": 4 * GIB,
        "mem_info_vram_used": GIB,
        "mem_info_gtt_total": 31433977856,
        "mem_info_gtt_used": 211398656,
        "hwmon/hwmon6/name": "amdgpu",
        "hwmon/hwmon6/in1_label": "vddnb",
        "hwmon/hwmon6/power1_label": "PPT",
        "hwmon/hwmon6/power1_average": 3103000,
        "hwmon/hwmon6/power1_input": 3142000,
    }
    properties = gpu_properties(
        address, simd_count=24, simd_per_cu=2, gfx_target_version=110003, device_id=0x15BF
    )
    folder = kfd_node(root, node, properties | {"wave_front_size": 32}, 31433977856, "ip discovery")
    write(folder, {"caches/26/properties": "level 2\nsize 2048\ntype 9"})
    return pci(root, address, files)


def card(root: Path, address: str = "0000:03:00.0", node: int = 2) -> Path:
    """A Radeon RX 7900 XTX behind its own PCIe switch, in a slot that gives it 8 lanes of PCIe 4."""
    bridges = ("0000:00:01.1", "0000:01:00.0", "0000:02:00.0")
    slot = {"vendor": "0x1002", "class": "0x060400", "current_link_speed": "16.0 GT/s PCIe"}
    link = {"current_link_width": 8, "max_link_speed": "16.0 GT/s PCIe", "max_link_width": 16}
    pci(root, bridges[0], {"vendor": "0x1022", "device": "0x14db", "class": "0x060400"})
    pci(root, bridges[1], {**slot, **link, "device": "0x1478"}, bridges[:1])
    pci(root, bridges[2], {**slot, "current_link_width": 16, "device": "0x1479"}, bridges[:2])
    files = {
        "vendor": "0x1002",
        "device": "0x744c",
        "class": "0x030000",
        "revision": "0xc8",
        "current_link_speed": "32.0 GT/s PCIe",
        "current_link_width": 16,
        "mem_info_vram_total": 24 * GIB,
        "mem_info_vram_used": GIB,
        "mem_info_gtt_total": 16 * GIB,
        "hwmon/hwmon8/name": "amdgpu",
        "hwmon/hwmon8/freq2_label": "mclk",
        "hwmon/hwmon8/power1_label": "PPT",
        "hwmon/hwmon8/power1_average": 68000000,
    }
    properties = gpu_properties(
        address, simd_count=192, simd_per_cu=2, gfx_target_version=110000, device_id=0x744C
    )
    kfd_node(root, node, properties | {"wave_front_size": 32}, 24 * GIB)
    return pci(root, address, files, bridges)


def gpu_properties(address: str, **properties: int) -> dict[str, int]:
    """Properties of a KFD node at a PCI address."""
    domain, bus, rest = address.split(":")
    slot, _, function = rest.partition(".")
    location = int(bus, 16) << 8 | int(slot, 16) << 3 | int(function)
    fixed = {"cpu_cores_count": 0, "vendor_id": 0x1002, "lds_size_in_kb": 64, "local_mem_size": 0}
    return {**fixed, "location_id": location, "domain": int(domain, 16), **properties}
