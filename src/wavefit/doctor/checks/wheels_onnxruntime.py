"""ONNX Runtime's packages: several in one folder, none with a provider for the GPU, or one for another ROCm."""

from __future__ import annotations

import re
import sys

from wavefit.device.ort_builds import BUILDS
from wavefit.doctor import libraries
from wavefit.doctor.installed import installed, migraphx_package, packages
from wavefit.doctor.machine import Machine
from wavefit.schema import Finding, Fix

_NAME = "wheels_onnxruntime"
_PLUGIN = "onnxruntime-ep-webgpu"
_VERIFY = 'python -c "import onnxruntime as o; print(o.__version__, o.get_available_providers())"'
_FOR_AMD = {
    "onnxruntime-migraphx": "migraphx",
    "onnxruntime-rocm": "rocm",
    "onnxruntime-webgpu": "webgpu",
    "onnxruntime-directml": "directml",
}
_LIBRARY = {
    "onnxruntime-migraphx": "libonnxruntime_providers_migraphx.so",
    "onnxruntime-rocm": "libonnxruntime_providers_rocm.so",
}


def check(machine: Machine) -> list[Finding]:
    found = {name: version for name, version in packages(machine).items() if name in BUILDS}
    if not found:
        return []
    if len(found) > 1:
        return [_several(machine, found)]
    if not machine.amd_gpus:
        return []
    name, version = next(iter(found.items()))
    if name not in _FOR_AMD and _PLUGIN not in packages(machine):
        return [_no_provider(name, version)]
    return _library_findings(machine, name, version)


def _listed(found: dict[str, str]) -> tuple[str, ...]:
    return tuple(f"installed: {name} {version}" for name, version in sorted(found.items()))


def _several(machine: Machine, found: dict[str, str]) -> Finding:
    wanted = next((name for name in found if name in _FOR_AMD), "onnxruntime")
    extra = _FOR_AMD.get(wanted, "cpu")
    return Finding(
        check=_NAME,
        layer="framework",
        status="problem" if machine.amd_gpus else "note",
        title=f"{len(found)} builds of ONNX Runtime share one folder",
        evidence=_listed(found),
        cause="Each of these packages installs the folder onnxruntime; the last one overwrote parts of the others.",
        fixes=(
            Fix(command=f"pip uninstall -y {' '.join(sorted(found))}", why="remove them all first"),
            Fix(command=f"pip install 'wavefit[{extra}]'", why=f"then the one that is wanted: {wanted}"),
        ),
        verify="pip list | grep -i onnxruntime",
    )


def _no_provider(name: str, version: str) -> Finding:
    windows = sys.platform == "win32"
    extra = "directml" if windows else "webgpu"
    fixes = [
        Fix(
            command=f"pip install 'wavefit[{extra}]'",
            why="any GPU with Vulkan or Direct3D 12",
            safe=not windows and name == "onnxruntime",
        )
    ]
    if windows or name != "onnxruntime":
        fixes.insert(0, Fix(command=f"pip uninstall -y {name}", why="the builds overwrite each other"))
    if not windows:
        command = f"pip uninstall -y {name} && pip install 'wavefit[migraphx]'"
        fixes.append(Fix(command=command, why="instead, where ROCm supports the GPU"))
    return Finding(
        check=_NAME,
        layer="framework",
        status="note",
        title=f"{name} {version} has no provider for an AMD GPU",
        evidence=_listed({name: version}),
        cause="ONNX Runtime runs every model on the CPU until a package with a provider for the GPU is installed.",
        fixes=tuple(fixes),
        verify=_VERIFY,
    )


def _library_findings(machine: Machine, name: str, version: str) -> list[Finding]:
    library = _LIBRARY.get(name)
    if library is None:
        return [_ok(f"{name} {version} is the only ONNX Runtime here", name, version)]
    providers = installed(machine).providers
    if not providers:
        return []  # nothing was recorded of its folder
    if library not in providers:
        return [_missing_library(name, version, library)]
    missing = [soname for soname in providers[library] if libraries.find(machine, soname) is None]
    if missing:
        return [_other_rocm(machine, name, version, missing)]
    return [_ok(f"{name} {version} finds ROCm's libraries", name, version)]


def _ok(title: str, name: str, version: str) -> Finding:
    return Finding(
        check=_NAME, layer="framework", status="ok", title=title, evidence=_listed({name: version})
    )


def _missing_library(name: str, version: str, library: str) -> Finding:
    return Finding(
        check=_NAME,
        layer="framework",
        status="problem",
        title=f"{name} {version} lacks its own provider {library}",
        evidence=(*_listed({name: version}), f"not in onnxruntime/capi: {library}"),
        cause="Another package of ONNX Runtime was installed or removed over it.",
        fixes=(Fix(command=f"pip install --force-reinstall --no-deps {name}=={version}"),),
        verify=_VERIFY,
    )


def _other_rocm(machine: Machine, name: str, version: str, missing: list[str]) -> Finding:
    evidence, cause, major = [], "ROCm's libraries are not installed where the loader looks.", None
    for soname in missing:
        stem, _, number = soname.rpartition(".")
        others = libraries.versions(machine, stem)
        evidence.append(f"needed: {soname}; found: {', '.join(others) or 'none'}")
        if soname.startswith("libamdhip64"):
            major = number
            if others:
                cause = f"The package was built for ROCm {libraries.rocm_of(number)}, and another ROCm is installed."
    needed = f"ROCm {libraries.rocm_of(major)}" if major else "the ROCm that the package was built for"
    fixes = [Fix(command="xdg-open https://rocm.docs.amd.com", why=f"install {needed}")]
    if all(re.match(r"libmigraphx", soname) for soname in missing):
        package = migraphx_package(machine)
        fixes = [Fix(command=f"sudo apt install {package}", why="from AMD's repository, after ROCm")]
        cause = "MIGraphX is a package of its own that ROCm's base packages do not bring."
    return Finding(
        check=_NAME,
        layer="framework",
        status="problem",
        title=f"{name} {version} cannot load: {missing[0]} is missing",
        evidence=(*_listed({name: version}), *evidence),
        cause=cause,
        fixes=tuple(fixes),
        verify=_VERIFY,
    )
