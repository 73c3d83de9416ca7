"""What Python packages brought along, as files tell it: nothing is imported, so that a broken driver cannot hang it."""

from __future__ import annotations

import mmap
import os
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from wavefit.device import ort_builds, torch_build, versions
from wavefit.device.files import children, read_text
from wavefit.doctor.machine import Machine
from wavefit.errors import InputError
from wavefit.schema import Fix, Struct, decode

FILE = "wavefit/installed.json"
"""Where a recording has it."""

OVERRIDE = "HSA_OVERRIDE_GFX_VERSION"

_PROVIDERS = r"(lib)?onnxruntime_providers_\w+\.(so|dll)"
_SONAME = re.compile(rb"\blib(?:amdhip64|migraphx_c|MIOpen|rocblas|hipblas|hsa-runtime64)\.so\.\d+\b")
_TARGET = re.compile(r"gfx[0-9a-f]{3,4}(?![0-9a-f])")
_KERNELS = "rocblas/library"
_SHELL_FILES = (".bashrc", ".bash_profile", ".profile", ".zshrc", ".zshenv")


class Installed(Struct, frozen=True, kw_only=True):
    """What lies in the folders of Python's packages."""

    torch: str | None = None  # the text of torch/version.py
    targets: tuple[str, ...] = ()  # the gfx targets that rocBLAS's kernels beside PyTorch are for
    # ONNX Runtime's provider libraries -> ROCm's sonames in each
    providers: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    shell: tuple[str, ...] = ()  # lines of the user's shell files that set the override

    @property
    def build(self) -> torch_build.Build | None:
        return torch_build.parse(self.torch or "")


def installed(machine: Machine) -> Installed:
    """As this Python has it, or as it was recorded; empty where a recording has none."""
    if machine.live:
        return _installed_here()
    try:
        return decode(machine.read(FILE) or "{}", Installed)
    except InputError:
        return Installed()  # what cannot be read is not known


def packages(machine: Machine) -> Mapping[str, str]:
    """Installed packages by their normal name ("onnxruntime-ep-webgpu") and their versions."""
    found = machine.process.packages if machine.process is not None else {}
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in found.items()}


def system_targets(machine: Machine) -> tuple[str, ...]:
    """The gfx targets that the rocBLAS below /opt or /usr has kernels for."""
    folders = [machine.root / f"{base}/lib/{_KERNELS}" for base in ("opt/rocm", "opt/rocm/core", "usr")]
    folders += [path / "rocblas" for path in children(machine.root / "usr/lib", r"\w+-linux-gnu")]
    return targets(folders)


def targets(folders: Iterable[Path]) -> tuple[str, ...]:
    """The gfx targets in the names of rocBLAS's kernel files ("TensileLibrary_lazy_gfx1100.dat")."""
    names = [path.name for folder in folders for path in children(folder, r".*gfx[0-9a-f]{3,4}.*")]
    return tuple(sorted({found for name in names for found in _TARGET.findall(name)}))


def webgpu(machine: Machine) -> tuple[Fix, ...]:
    """How ONNX Runtime over Vulkan is installed: another build in its folder has to go first, by hand."""
    others = sorted(name for name in packages(machine) if name in ort_builds.BUILDS and name != "onnxruntime")
    install = Fix(
        command="pip install 'wavefit[webgpu]'",
        why="route ort_webgpu: any GPU with Vulkan, no ROCm",
        safe=not others,
    )
    if not others:
        return (install,)
    why = "it shares its folder with the build that is needed"
    return (Fix(command=f"pip uninstall -y {' '.join(others)}", why=why), install)


def rocm_version(machine: Machine) -> str | None:
    """The version of the ROCm that pip installed ("rocm-sdk-core"), where there is one."""
    return packages(machine).get("rocm-sdk-core")


def migraphx_package(machine: Machine) -> str:
    """MIGraphX's package in AMD's repositories for the ROCm that is here, or for the newest where none is.

    Source: AMD, "Install MIGraphX": migraphx up to ROCm 7.2, amdrocm-migraphx with 7.14 and 10.0, then with the major
    version in its name.
    """
    found = re.match(r"(\d+)\.(\d+)", versions.rocm(machine.root) or rocm_version(machine) or "")
    number = (int(found[1]), int(found[2])) if found else (10, 1)
    if number < (7, 14):
        return "migraphx"
    return "amdrocm-migraphx" if number <= (10, 0) else f"amdrocm{number[0]}-migraphx"


def _installed_here() -> Installed:
    torch, ort = torch_build.folder(), ort_builds.folder()
    kernels = []
    if torch is not None:
        kernels.append(torch / "lib" / _KERNELS)
        kernels += [path / "lib" / _KERNELS for path in children(torch.parent, r"_rocm_sdk_\w+")]
    libraries = children(ort / "capi", _PROVIDERS) if ort is not None else ()
    return Installed(
        torch=read_text(torch / "version.py") if torch is not None else None,
        targets=targets(kernels),
        providers={path.name: _sonames(path) for path in libraries},
        shell=_shell_lines(),
    )


def _sonames(library: Path) -> tuple[str, ...]:
    """ROCm's libraries that a library names. It is mapped and not read: some have 60 MB."""
    try:
        with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return tuple(sorted({found.decode() for found in _SONAME.findall(data)}))
    except (OSError, ValueError):  # an empty file cannot be mapped
        return ()


def _shell_lines() -> tuple[str, ...]:
    if sys.platform == "win32":
        return ()
    home = os.environ.get("HOME")
    texts = [(name, read_text(Path(home) / name) or "") for name in _SHELL_FILES] if home else []
    return tuple(
        f"~/{name}: {line.strip()}"
        for name, text in texts
        for line in text.splitlines()
        if re.match(rf"\s*(export\s+)?{OVERRIDE}\w*=[\w.\"']*\s*$", line)
    )
