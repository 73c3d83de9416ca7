"""GPUs that ROCm here has no kernels for, and no other target's that they could run: which route is left.

Source of the oldest generation: AMD, ROCm 4.0 release notes: gfx8 (Fiji, Polaris) is no longer supported; LLVM,
docs/AMDGPUUsage.rst, for what is older.
"""

from __future__ import annotations

import sys

from wavefit.device import catalogue
from wavefit.doctor.installed import packages, webgpu
from wavefit.doctor.machine import Machine
from wavefit.doctor.targets import kernels, lender, major, spare
from wavefit.schema import Device, Finding, Fix

_NAME = "unsupported_gfx"
_OLDEST = 9
# Source: ROCm docs 10.0.0, transition guide to TheRock, "Architecture-specific packages".
_OTHER_PACKAGES = (
    Fix(
        command="xdg-open https://rocm.docs.amd.com/projects/install-on-linux/en/latest/",
        why="since ROCm 10 a target may have packages of its own: install those of this GPU",
    ),
)
_WEBGPU = ("onnxruntime-ep-webgpu", "onnxruntime-webgpu", "onnxruntime-directml")


def check(machine: Machine) -> list[Finding]:
    known = kernels(machine)
    return [_finding(gpu, machine, known) for gpu in machine.amd_gpus if _without(gpu, known)]


def _without(gpu: Device, known: tuple[str, ...]) -> bool:
    gfx = gpu.gfx
    if gfx is None:
        return False
    if known:
        return gfx not in known and lender(gfx, known) is None
    return 0 < major(gfx) < _OLDEST or (catalogue.target(gfx) is not None and not _listed(gfx))


def _listed(gfx: str) -> list[catalogue.Support]:
    """What ROCm's own lists say of a target, old and refusing ones left out."""
    return [
        each
        for each in catalogue.support(gfx)
        if each.runtime == "ROCm" and each.status in ("official", "unofficial")
    ]


def _finding(gpu: Device, machine: Machine, known: tuple[str, ...]) -> Finding:
    ready = [name for name in _WEBGPU if name in packages(machine)]
    evidence = [f"{gpu.id}: {gpu.name or 'name unknown'}, {gpu.gfx}, {gpu.pci_id}"]
    evidence.append(
        f"rocBLAS here has kernels for {', '.join(known)}" if known else "no rocBLAS was found here"
    )
    evidence += [_said(each, gpu.gfx or "") for each in _listed(gpu.gfx or "")]
    evidence += [f"installed: {name}" for name in ready]
    official = [each for each in _listed(gpu.gfx or "") if each.status == "official"]
    where = "here has" if official else "has"
    left = f"ROCm {official[0].versions} has them" if official else "WebGPU and OpenCL are left"
    install = _OTHER_PACKAGES if official else ()
    return Finding(
        check=_NAME,
        layer="hardware",
        status="note" if ready or spare(gpu, machine, known) else "problem",
        title=f"ROCm {where} no kernels for {gpu.id} ({gpu.gfx}); {left}",
        evidence=tuple(evidence),
        cause="ROCm's libraries are compiled for each target, and this one is not among them.",
        fixes=(*install, *(() if ready else _fixes(machine))),
        verify="wavefit optimize MODEL --route ort_webgpu",
    )


def _said(each: catalogue.Support, gfx: str) -> str:
    """A list's word on a target; its note only where that is about this target."""
    note = f" ({each.note})" if gfx in each.note else ""
    return f"ROCm {each.versions}: {each.status}{note}"


def _fixes(machine: Machine) -> tuple[Fix, ...]:
    if machine.live and sys.platform == "win32":
        return (Fix(command="pip install 'wavefit[directml]'", why="route ort_directml"),)
    return (
        *webgpu(machine),
        Fix(command="sudo apt install mesa-vulkan-drivers mesa-opencl-icd", why="Vulkan and OpenCL of Mesa"),
    )
