"""The stack as it is, from the application down to the hardware, so that a newcomer sees where it breaks."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from typing import Literal

from wavefit.device import versions
from wavefit.device.files import children
from wavefit.device.ort_builds import BUILDS
from wavefit.device.system import kernel
from wavefit.doctor import libraries
from wavefit.doctor.installed import installed, packages, rocm_version
from wavefit.doctor.machine import Machine
from wavefit.doctor.nodes import nodes
from wavefit.schema import Device, Finding, Layer, Part, Struct

State = Literal["ok", "missing", "broken", "unused", "unknown"]

LAYERS: tuple[Layer, ...] = ("application", "framework", "runtime", "driver", "hardware")
"""From top to bottom."""

_FROM_THE_BOTTOM: tuple[Layer, ...] = (
    "hardware",
    "driver",
    "environment",
    "runtime",
    "framework",
    "application",
)


class Examination(Struct, frozen=True, kw_only=True):
    """What the doctor ends with; ``doctor --json`` prints it."""

    wavefit: str
    machine: str | None  # operating system and kernel
    python: str | None
    usable: bool  # no GPU that is here has a problem
    sentence: str
    stack: tuple[Part, ...]
    findings: tuple[Finding, ...]


def examination(machine: Machine, findings: Iterable[Finding], version: str) -> Examination:
    """The findings, those of the lowest layer first, with the stack around them.

    Args:
        version: wavefit's.
    """
    known = tuple(sorted(findings, key=lambda each: _FROM_THE_BOTTOM.index(each.layer)))
    return Examination(
        wavefit=version,
        machine=machine.devices[0].machine,
        python=machine.process.python if machine.process is not None else None,
        usable=not any(finding.status == "problem" for finding in known),
        sentence=_sentence(machine, known),
        stack=stack(machine, version),
        findings=known,
    )


def _sentence(machine: Machine, findings: tuple[Finding, ...]) -> str:
    problems = [finding for finding in findings if finding.status == "problem"]
    gpus = [device for device in machine.devices if device.kind == "gpu"]
    if problems:
        if len(problems) == 1:
            return f"One problem stands in the way: {problems[0].title}."
        return f"{len(problems)} problems stand in the way. Begin with the lowest: {problems[0].title}."
    if not gpus and machine.exists("/dev/dxg"):
        return f"WSL shows a GPU that Linux cannot name; without it, {_without_gpu(machine)}."
    if not gpus:
        return f"No GPU is visible here, which is no error: {_without_gpu(machine)}."
    if not machine.amd_gpus:
        return f"No AMD GPU is visible here, which is no error: {_without_gpu(machine)}."
    return "Nothing was found that keeps the AMD GPU from being used."


def _without_gpu(machine: Machine) -> str:
    """What the CPU can do, and what would let it do the rest."""
    found = packages(machine)
    models = any(name in found for name in BUILDS)
    kernels = "pyopencl" in found and ("pocl-binary-distribution" in found or bool(_opencl_drivers(machine)))
    ways = [
        "models run on the CPU with ONNX Runtime"
        if models
        else "pip install 'wavefit[cpu]' lets models run on the CPU",
        "OpenCL kernels run on the CPU"
        if kernels
        else "pip install 'pyopencl[pocl]' lets OpenCL kernels run on it",
    ]
    return ", and ".join(ways)


def stack(machine: Machine, version: str) -> tuple[Part, ...]:
    """Every layer's parts, from top to bottom."""
    return (
        *_application(machine, version),
        *_framework(machine),
        *_runtime(machine),
        *_driver(machine),
        *_hardware(machine),
    )


def _application(machine: Machine, version: str) -> list[Part]:
    python = machine.process.python if machine.process is not None else None
    return [
        Part(layer="application", name="wavefit", version=version, state="ok"),
        Part(layer="application", name="Python", version=python, state="ok" if python else "unknown"),
    ]


def _framework(machine: Machine) -> list[Part]:
    found = packages(machine)
    builds = [name for name in BUILDS if name in found]
    parts = [_torch(machine)]
    for name in builds:
        state: State = "ok" if len(builds) == 1 else "broken"
        detail = "" if len(builds) == 1 else "shares its folder with another build"
        parts.append(Part(layer="framework", name=name, version=found[name], state=state, detail=detail))
    if not builds:
        parts.append(Part(layer="framework", name="ONNX Runtime", state=_absent(machine)))
    for name in ("onnxruntime-ep-webgpu", "pyopencl"):
        if name in found:
            parts.append(Part(layer="framework", name=name, version=found[name], state="ok"))
    return parts


def _absent(machine: Machine) -> State:
    return "unknown" if machine.process is None else "missing"


def _torch(machine: Machine) -> Part:
    build = installed(machine).build
    if build is None:
        return Part(layer="framework", name="PyTorch", state=_absent(machine))
    fits = not machine.amd_gpus or build.kind == "ROCm"
    return Part(
        layer="framework",
        name="PyTorch",
        version=build.version,
        state="ok" if fits else "unused",
        detail=f"{build.kind} build" + ("" if fits else ", which cannot use the AMD GPU"),
    )


def _runtime(machine: Machine) -> list[Part]:
    return [_hip(machine), _opencl(machine), _vulkan(machine)]


def _hip(machine: Machine) -> Part:
    version = versions.rocm(machine.root)
    hip = libraries.versions(machine, "libamdhip64.so")
    build, wheel = installed(machine).build, rocm_version(machine)
    if hip or version:
        detail = hip[0] if hip else "no libamdhip64.so"
        return Part(
            layer="runtime",
            name="HIP (ROCm)",
            version=version,
            state="ok" if hip else "broken",
            detail=detail,
        )
    if build is not None and build.hip:
        return Part(
            layer="runtime", name="HIP (ROCm)", version=build.hip, state="ok", detail="in PyTorch's wheel"
        )
    if wheel:
        return Part(layer="runtime", name="HIP (ROCm)", version=wheel, state="ok", detail="installed by pip")
    return Part(layer="runtime", name="HIP (ROCm)", state=_needed(machine))


def _needed(machine: Machine) -> State:
    if not libraries.recorded(machine):
        return "unknown"
    return "missing" if machine.amd_gpus else "unused"


def _opencl(machine: Machine) -> Part:
    found = _opencl_drivers(machine)
    if "pocl-binary-distribution" in packages(machine):
        found.append("PoCL from pip")
    state: State = "ok" if found else _needed(machine)
    return Part(layer="runtime", name="OpenCL", state=state, detail=", ".join(found))


def _opencl_drivers(machine: Machine) -> list[str]:
    """Source of the folder: Khronos, OpenCL ICD loader, "Registering ICDs"."""
    return [path.stem for path in children(machine.root / "etc/OpenCL/vendors", r".+\.icd")]


def _vulkan(machine: Machine) -> Part:
    """Source of the folders: Khronos, Vulkan loader, "Driver Discovery on Linux"."""
    names = [
        path.stem
        for folder in ("usr/share/vulkan/icd.d", "etc/vulkan/icd.d")
        for path in children(machine.root / folder, r".+\.json")
    ]
    found = list(dict.fromkeys(name.partition(".")[0].removesuffix("_icd") for name in names))
    state: State = "ok" if "radeon" in found or (found and not machine.amd_gpus) else _needed(machine)
    return Part(layer="runtime", name="Vulkan", state=state, detail=", ".join(found))


def _driver(machine: Machine) -> list[Part]:
    release = kernel(machine.root)
    parts = [
        Part(layer="driver", name=_system(machine), version=release, state="ok" if release else "unknown")
    ]
    loaded = versions.amdgpu_driver(machine.root)
    if not machine.amd_gpus:
        return [*parts, Part(layer="driver", name="amdgpu", state="unused")]
    if loaded is None:
        return [*parts, Part(layer="driver", name="amdgpu", state=_if_linux(machine))]
    version = loaded.partition(" ")[2]
    own = "the kernel's own" if version == "in-tree" else "from ROCm's packages"
    parts.append(Part(layer="driver", name="amdgpu", version=version, state="ok", detail=own))
    return [*parts, _kfd(machine)]


def _system(machine: Machine) -> str:
    return platform.system() if machine.live else "Linux"


def _if_linux(machine: Machine) -> State:
    if not machine.live and not machine.exists("/sys/module"):
        return "unknown"
    return "missing" if _system(machine) == "Linux" else "unused"


def _kfd(machine: Machine) -> Part:
    node = nodes(machine, ["/dev/kfd"]).get("/dev/kfd")
    if node is None:
        return Part(layer="driver", name="/dev/kfd", state="unknown")
    if node.errno == 0:
        return Part(layer="driver", name="/dev/kfd", state="ok", detail="opens")
    return Part(
        layer="driver", name="/dev/kfd", state="broken", detail=f"does not open: {_error(node.errno)}"
    )


def _error(number: int) -> str:
    import errno
    import os

    if number < 0:
        return "it hangs"
    return f"{errno.errorcode.get(number, number)}, {os.strerror(number)}"


def _hardware(machine: Machine) -> list[Part]:
    return [_device(machine, device) for device in machine.devices]


def _device(machine: Machine, device: Device) -> Part:
    name = device.name or f"{(device.vendor or '').upper()} {device.kind.upper()}".strip()
    if device.kind == "cpu":
        memory = next((pool.total_bytes for pool in device.memory if pool.name == "ram"), None)
        threads = f"{device.threads} threads" if device.threads else ""
        return Part(layer="hardware", name=name, state="ok", detail=_joined(threads, _gib(memory)))
    where = {True: "integrated", False: "discrete", None: ""}[device.integrated]
    memory = next((pool.total_bytes for pool in device.memory if pool.name == "vram"), None)
    held = _held(machine, device)
    state: State = "unknown" if held is None else "ok" if held else "broken"
    detail = _joined(device.id, where, _gib(memory), "no driver holds it" if held is False else "")
    return Part(layer="hardware", name=name, version=device.gfx or device.pci_id, state=state, detail=detail)


def _held(machine: Machine, device: Device) -> bool | None:
    """Whether a driver holds a GPU; None where a recording has not its PCI device, which would tell."""
    if device.driver:
        return True
    return False if machine.live or device.sysfs is not None else None


def _gib(value: int | None) -> str:
    return "" if value is None else f"{value / 2**30:.1f} GiB"


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)
