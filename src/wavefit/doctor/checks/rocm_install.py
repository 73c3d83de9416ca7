"""ROCm as it is installed: there at all, one version of it, its libraries of that version, its tools on PATH.

Distributions install theirs below /usr/lib.
"""

from __future__ import annotations

import re

from wavefit.device import versions
from wavefit.device.files import children
from wavefit.doctor import libraries
from wavefit.doctor.installed import installed, packages, rocm_version
from wavefit.doctor.machine import Machine
from wavefit.schema import Finding, Fix

_NAME = "rocm_install"
_NEEDS_SYSTEM = ("onnxruntime-migraphx", "onnxruntime-rocm")
_INSTALL = "xdg-open https://rocm.docs.amd.com/projects/install-on-linux/en/latest/"


def check(machine: Machine) -> list[Finding]:
    if not machine.amd_gpus or not libraries.recorded(machine):
        return []
    version = versions.rocm(machine.root)
    hip = libraries.versions(machine, "libamdhip64.so")
    if version is None and not hip:
        return [_absent(machine)]
    if not hip:
        return [*_several(machine), _without_hip(machine, str(version))]
    found = [*_several(machine), *_misfit(version, hip), *_not_searched(machine, hip), *_not_on_path(machine)]
    return found or [_finding("ok", _title(version), evidence=_evidence(version, hip))]


def _title(version: str | None) -> str:
    return f"ROCm {version} is installed" if version else "A distribution's ROCm is installed"


def _evidence(version: str | None, hip: tuple[str, ...]) -> tuple[str, ...]:
    return (f"/opt/rocm/.info/version: {version or 'missing'}", *hip)


def _absent(machine: Machine) -> Finding:
    needing = [name for name in _NEEDS_SYSTEM if name in packages(machine)]
    build, wheel = installed(machine).build, rocm_version(machine)
    if (build is not None and build.hip) or wheel:
        brought = (
            f"PyTorch {build.version} brings ROCm {build.hip}"
            if build and build.hip
            else f"pip has ROCm {wheel}"
        )
        if not needing:
            return _finding("ok", f"{brought}; no other is needed", evidence=("no /opt/rocm",))
    return Finding(
        check=_NAME,
        layer="runtime",
        status="problem" if needing else "note",
        title="ROCm is not installed",
        evidence=("no /opt/rocm and no libamdhip64.so", *(f"installed: {name}" for name in needing)),
        cause=f"{needing[0]} needs ROCm's libraries, which its package does not bring."
        if needing
        else "MIGraphX and HIP need it; PyTorch's ROCm wheels bring their own, WebGPU and OpenCL need none.",
        fixes=(Fix(command=_INSTALL, why="AMD's instructions for each distribution"),),
        verify="cat /opt/rocm/.info/version",
    )


def _without_hip(machine: Machine, version: str) -> Finding:
    needing = [name for name in _NEEDS_SYSTEM if name in packages(machine)]
    return _finding(
        "problem" if needing else "note",
        f"ROCm {version} is installed without HIP, its runtime",
        evidence=(f"/opt/rocm/.info/version: {version}", "no libamdhip64.so", *needing),
        cause="The packages of the runtime were left out or removed.",
        fixes=(Fix(command=_INSTALL, why="AMD's instructions install it whole"),),
    )


def _several(machine: Machine) -> list[Finding]:
    folders = [path.name for path in children(machine.root / "opt", r"rocm-\d[\w.-]*")]
    folders += [f"rocm/{path.name}" for path in children(machine.root / "opt/rocm", r"core-\d[\w.-]*")]
    used = versions.rocm(machine.root)
    if len(folders) < 2:
        return []
    return [
        _finding(
            "note",
            f"{len(folders)} versions of ROCm are installed; /opt/rocm is {used or 'none of them'}",
            evidence=tuple(f"/opt/{name}" for name in folders),
            cause="A program takes the one that /opt/rocm, PATH and the loader's settings point to.",
            fixes=(
                Fix(command="sudo update-alternatives --config rocm", why="chooses what /opt/rocm points to"),
            ),
        )
    ]


def _misfit(version: str | None, hip: tuple[str, ...]) -> list[Finding]:
    """The version file against the library beside it."""
    match = re.match(r"(\d+)\.", version or "")
    own = [path for path in hip if path.startswith("/opt/rocm")]
    numbers = {path.rpartition(".")[2] for path in own}
    fitting = libraries.hip_of(match[1]) if match is not None else ()
    if not fitting or not own or numbers.intersection(fitting):
        return _second_library(version, hip)
    found = ", ".join(libraries.rocm_of(number) for number in sorted(numbers))
    return [
        _finding(
            "problem",
            f"ROCm's version file says {version}, its HIP library is of ROCm {found}",
            evidence=_evidence(version, hip),
            cause="An upgrade stopped half way, or two versions were installed into one folder.",
            fixes=(
                Fix(command=_INSTALL, why="remove ROCm with its own instructions, then install one version"),
            ),
        )
    ]


def _second_library(version: str | None, hip: tuple[str, ...]) -> list[Finding]:
    majors = {path.rpartition(".")[2] for path in hip}
    if len(majors) < 2:
        return []
    return [
        _finding(
            "note",
            f"HIP libraries of version {' and '.join(sorted(majors))} are installed side by side",
            evidence=_evidence(version, hip),
            cause="A program that mixes them crashes or sees no GPU.",
            fixes=(
                Fix(
                    command="apt list --installed | grep -E 'amdhip|rocm'", why="keep the one that is needed"
                ),
            ),
        )
    ]


def _not_searched(machine: Machine, hip: tuple[str, ...]) -> list[Finding]:
    """AMD's installer tells the loader of /opt/rocm/lib; where it did not, few programs find it."""
    if not hip or any(libraries.find(machine, path.rpartition("/")[2]) for path in hip):
        return []
    needing = [name for name in _NEEDS_SYSTEM if name in packages(machine)]
    folder = hip[0].rpartition("/")[0]
    return [
        _finding(
            "problem" if needing else "note",
            f"the loader does not look in {folder}",
            evidence=(hip[0], "looked in: " + ", ".join(libraries.searched(machine))),
            cause="No file of /etc/ld.so.conf.d names ROCm's libraries, and LD_LIBRARY_PATH does not either.",
            fixes=(
                Fix(
                    command=f"echo {folder} | sudo tee /etc/ld.so.conf.d/rocm.conf && sudo ldconfig",
                    why="tells the loader",
                ),
            ),
        )
    ]


def _not_on_path(machine: Machine) -> list[Finding]:
    environ = machine.process.environ if machine.process is not None else None
    if environ is None or not machine.exists("/opt/rocm/bin/rocminfo"):
        return []
    folders = [part for part in environ.get("PATH", "").split(":") if part.startswith("/")]
    if any(machine.exists(f"{folder}/rocminfo") for folder in folders):
        return []
    return [
        _finding(
            "note",
            "ROCm's tools are not on PATH",
            evidence=("/opt/rocm/bin/rocminfo exists", "PATH names no folder that holds rocminfo"),
            cause="AMD's packages install below /opt/rocm and leave PATH alone.",
            fixes=(Fix(command="export PATH=$PATH:/opt/rocm/bin", why="in ~/.profile to keep it"),),
        )
    ]


def _finding(
    status: str, title: str, evidence: tuple[str, ...] = (), cause: str = "", fixes: tuple[Fix, ...] = ()
) -> Finding:
    return Finding(
        check=_NAME,
        layer="runtime",
        status=status,  # type: ignore[arg-type]
        title=title,
        evidence=evidence,
        cause=cause,
        fixes=fixes,
        verify="rocminfo | head -20" if fixes else "",
    )
