"""In WSL: is the GPU that Windows lends there?"""

from __future__ import annotations

from functools import partial

from wavefit.device.files import children
from wavefit.device.system import is_wsl
from wavefit.doctor.machine import Machine
from wavefit.schema import Finding, Fix

_finding = partial(Finding, check="wsl", layer="environment")


def check(machine: Machine) -> list[Finding]:
    """WSL 2 has no amdgpu and no /dev/kfd: ROCm reaches the GPU through /dev/dxg and librocdxg, with Windows' driver.
    Whose GPU lies behind /dev/dxg cannot be read, so nothing here is a problem.

    Sources: README of github.com/ROCm/librocdxg; ROCProfiler-SDK docs, "Using rocprofv3 on WSL2" (/dev/dxg in place of
    /dev/kfd); Microsoft Learn, "GPU accelerated machine learning in WSL".
    """
    if not is_wsl(machine.root):
        return []
    if not machine.exists("/dev/dxg"):
        return [
            _finding(
                status="note",
                title="WSL shows no GPU: /dev/dxg is missing",
                cause="this is WSL 1, Windows' driver is too old, or GPU support is off",
                fixes=(
                    Fix(command="wsl.exe --update", why="in Windows: it ends all that runs in WSL"),
                    Fix(
                        command="wsl.exe --set-version DISTRIBUTION 2", why="in Windows, from WSL 1 to WSL 2"
                    ),
                ),
                verify="ls -l /dev/dxg",
            )
        ]
    library = _library(machine)
    if library is None:
        return [
            _finding(
                status="note",
                title="WSL shows a GPU, and ROCm's library for it is not installed",
                evidence=("/dev/dxg is there", "no librocdxg.so below /opt/rocm*/lib or /usr/lib"),
                cause="ROCm needs librocdxg to reach the GPU of Windows",
                fixes=(
                    Fix(
                        command="xdg-open https://github.com/ROCm/librocdxg",
                        why="says how it is built and installed",
                    ),
                    Fix(command="export HSA_ENABLE_DXG_DETECTION=1", why="then makes ROCm use it"),
                ),
                verify="rocminfo",
            )
        ]
    return [
        _finding(
            status="ok",
            title="WSL shows a GPU, and ROCm's library for it is installed",
            evidence=("/dev/dxg", library),
        )
    ]


def _library(machine: Machine) -> str | None:
    for folder in ("opt", "usr"):
        for rocm in children(machine.root / folder, r"rocm.*|lib"):
            lib = rocm if rocm.name == "lib" else rocm / "lib"
            for path in (
                *children(lib, r"librocdxg\.so.*"),
                *children(lib / "x86_64-linux-gnu", r"librocdxg\.so.*"),
            ):
                return "/" + str(path.relative_to(machine.root))
    return None
