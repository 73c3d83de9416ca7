"""Recordings: what the checks read of a machine, in a .tar.gz, without personal details; and how one is opened.

A recording holds files at the paths that they have on the machine, links as they are, and below ``wavefit/`` what no
file says: ``nodes.json`` (opening the device nodes), ``process.json``, ``installed.json``, ``dmesg.txt``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import msgspec

from wavefit.device.files import children
from wavefit.device.pci import ADDRESS, ids
from wavefit.doctor import examine, kernel, names
from wavefit.doctor import installed as software
from wavefit.doctor.libraries import rocm
from wavefit.doctor.machine import Machine
from wavefit.doctor.nodes import RECORDING, nodes, render_nodes
from wavefit.doctor.recording import Recording, write
from wavefit.doctor.scrub import scrubber

_FILES = (
    "proc/cpuinfo",
    "proc/meminfo",
    "proc/cmdline",
    "proc/modules",
    "proc/self/cgroup",
    "proc/1/cgroup",
    "proc/self/uid_map",
    "proc/self/gid_map",
    "proc/sys/kernel/osrelease",
    "proc/driver/nvidia/version",
    "etc/os-release",
    "opt/rocm/.info/version",
    "opt/rocm/core/.info/version",
    "sys/module/nvidia/version",
    "sys/class/kfd/kfd/topology/system_properties",
    "wavefit/rocm-smi.json",
)
_FOLDERS = (  # the small files below that match, in the folders below that match
    ("sys/class/kfd/kfd/topology/nodes", r"name|properties|gpu_id|used_memory", r".+"),
    ("sys/module/amdgpu", r"\w+", r"parameters"),
    ("etc/modprobe.d", r".+\.conf", r"-"),
    ("run/modprobe.d", r".+\.conf", r"-"),
    ("usr/lib/modprobe.d", r".+\.conf", r"-"),
    ("lib/modprobe.d", r".+\.conf", r"-"),
    ("etc/ld.so.conf.d", r".+\.conf", r"-"),
    ("etc/OpenCL/vendors", r".+\.icd", r"-"),
    ("usr/share/vulkan/icd.d", r".+\.json", r"-"),
    ("etc/vulkan/icd.d", r".+\.json", r"-"),
)
_LISTED = (  # folders of which only the names within are recorded
    ("sys/module", r"amdgpu|kfd|vfio_pci|radeon|nouveau|nvidia"),
    ("sys/class/kfd", r"kfd"),
    ("sys/class/iommu", r".+"),
    ("usr/lib/wsl/lib", r"lib\w+\.so.*"),
    ("opt/rocm/bin", r"rocminfo|hipcc|amd-smi|rocm-smi|migraphx-driver"),
    ("usr/bin", r"rocminfo|hipcc|amd-smi|rocm-smi"),
    ("lib/modules/{release}/updates/dkms", r"amdgpu\.ko.*"),
    ("lib/modules/{release}/updates", r"amdgpu\.ko.*"),
    ("lib/modules/{release}/extra", r"amdgpu\.ko.*"),
    ("lib/modules", r"{release}"),
)
# Of a GPU's PCI folder and of the bridges above it. No serial_number, no unique_id.
_PCI = (
    r"vendor|device|class|revision|subsystem_vendor|subsystem_device|uevent|enable|power_state|numa_node|"
    r"(current|max)_link_(speed|width)|mem_info_\w+|product_name|boot_vga|resource|vbios_version|d3cold_allowed|"
    r"current_compute_partition|current_memory_partition|(name|in\d_label|freq\d_label|power\d_\w+|temp\d_label|fan1_(input|max))"
)
_PCI_FOLDERS = r"drm|hwmon|hwmon\d+|card\d+|renderD\d+|power|fw_version"
_LIBRARY = r"lib(amdhip64|migraphx_c|MIOpen|rocblas|hipblas|hsa-runtime64|OpenCL|amdocl64|vulkan)\.so(\.\d+)*"


class _Watched(Machine):
    """A machine that notes which paths the checks ask for."""

    def watch(self, seen: set[str], known: set[str]) -> None:
        object.__setattr__(self, "_seen", seen)
        object.__setattr__(self, "_known", known)

    def read(self, path: str) -> str | None:
        self._seen.add(path)  # type: ignore[attr-defined]
        return super().read(path)

    def exists(self, path: str) -> bool:
        self._known.add(path)  # type: ignore[attr-defined]
        return super().exists(path)


def collect(machine: Machine, file: Path) -> int:
    """Writes a recording of a machine.

    Returns:
        How many files it holds.
    """
    recording = Recording(machine, scrubber(machine))
    for name in _FILES:
        recording.add(name)
    for name, pattern, folders in _FOLDERS:
        recording.tree(name, pattern, folders)
    release = kernel.release(machine) or "-"
    for name, pattern in _LISTED:
        recording.listing(name.format(release=release), pattern.replace("{release}", re.escape(release)))
    recording.tree("var/lib/dkms/amdgpu", r"dkms\.conf")
    _add_gpus(recording)
    _add_libraries(recording)
    _add_cgroups(recording)
    _add_what_checks_read(recording)
    _add_facts(recording)
    write(recording, file)
    return len(recording.files)


def _add_gpus(recording: Recording) -> None:
    """The display devices on the PCI bus, the bridges above each, and DRM's links to them."""
    root = recording.machine.root
    for base, pattern in (("sys/bus/pci/devices", ADDRESS), ("sys/class/drm", r"(card|renderD)\d+")):
        for path in children(root / base, pattern):
            name = f"{base}/{path.name}"
            folder = path if base.endswith("devices") else path / "device"
            if _is_display(folder):
                recording.tree(name if folder is path else f"{name}/device", _PCI, _PCI_FOLDERS)
                recording.mark(f"{name}/driver")
                recording.add(f"{name}/iommu_group/type")
                _add_bridges(recording, folder)


def _is_display(folder: Path) -> bool:
    known = ids(folder)
    try:
        kind = (folder / "class").read_text().strip()
    except OSError:
        kind = ""
    return known is not None and (
        kind[:4] in ("0x03", "0x12") or known[0] == 0x1002 or folder.name == "device"
    )


def _add_bridges(recording: Recording, folder: Path) -> None:
    root = recording.machine.root.resolve()
    try:
        above = folder.resolve().parent
    except (OSError, RuntimeError):
        return
    while re.fullmatch(ADDRESS, above.name) and above.is_relative_to(root):
        recording.tree(str(above.relative_to(root)), _PCI, r"-")
        above = above.parent


def _add_libraries(recording: Recording) -> None:
    """That ROCm's libraries and rocBLAS's kernels are there: their names, not what is in them."""
    root = recording.machine.root
    multiarch = [f"usr/lib/{path.name}" for path in children(root / "usr/lib", r"\w+-linux-gnu")]
    for folder in (*rocm(recording.machine), *multiarch, "usr/lib", "usr/lib64", "usr/local/lib"):
        name = folder.lstrip("/")
        recording.listing(name, _LIBRARY)
        for below in ("rocblas/library", "rocblas"):
            recording.listing(f"{name}/{below}", r".*gfx[0-9a-f]{3,4}.*")
    for path in children(root / "opt", r"rocm.*"):
        recording.mark(f"opt/{path.name}")
        recording.add(f"opt/{path.name}/.info/version")
        for core in children(path, r"core-\d[\w.-]*"):
            recording.mark(f"opt/{path.name}/{core.name}")
            recording.add(f"opt/{path.name}/{core.name}/.info/version")


def _add_cgroups(recording: Recording) -> None:
    """The limits of this process's control group and of those above it."""
    text = recording.machine.read("/proc/self/cgroup") or "0::/"
    for line in text.splitlines():
        group = Path(line.rpartition(":")[2].lstrip("/"))
        for part in (group, *group.parents):
            if ".." not in part.parts:
                for name in ("cpu.max", "memory.max", "memory.current", "memory.stat"):
                    recording.add(f"sys/fs/cgroup/{part}/{name}")


def _add_what_checks_read(recording: Recording) -> None:
    """Whatever a check asks for by path is recorded, so that a new check needs no line here."""
    seen: set[str] = set()
    known: set[str] = set()
    watched = _Watched(recording.machine.root, recording.machine.process)
    watched.watch(seen, known)
    examine(watched, [name for name in names() if name != "selftests"])
    for path in sorted(seen):
        recording.add(path.lstrip("/"))
    for path in sorted(known):
        recording.mark(path.lstrip("/"))


def _add_facts(recording: Recording) -> None:
    machine, scrub = recording.machine, recording.scrub
    paths = dict.fromkeys(("/dev/kfd", *_render_nodes(machine)))
    found = [msgspec.to_builtins(node) for node in nodes(machine, paths).values()]
    recording.files[RECORDING.lstrip("/")] = msgspec.json.encode({"nodes": found})
    if machine.process is not None:
        facts = asdict(machine.process) | {"environ": scrub.environ(machine.process.environ)}
        facts["packages"] = scrub.packages(machine.process.packages)
        recording.files["wavefit/process.json"] = msgspec.json.encode(facts)
    here = software.installed(machine)
    here = msgspec.structs.replace(here, shell=tuple(map(scrub.text, here.shell)))
    recording.files[software.FILE] = msgspec.json.encode(here)
    log = kernel.log(machine)
    if log is not None:
        recording.files["wavefit/dmesg.txt"] = scrub.text("\n".join(log.lines(_LOG))).encode()


_LOG = (
    r"amdgpu|amdkfd|\bkfd\b|\[drm|AMD-Vi|iommu|atomics|secure ?boot|lockdown|unsigned|module verification|"
    r"unavailable key|vfio|nouveau|firmware load"
)


def _render_nodes(machine: Machine) -> Iterator[str]:
    for gpu in machine.amd_gpus:
        yield from render_nodes(machine, gpu)
    for folder in ("sys/class/drm", "dev/dri"):
        yield from (f"/dev/dri/{path.name}" for path in children(machine.root / folder, r"renderD\d+"))
