"""Do folders that compilers are given have blanks in their names?"""

from __future__ import annotations

from wavefit.doctor import kernel
from wavefit.doctor.machine import Machine
from wavefit.schema import Finding, Fix

_FOLDERS = ("ROCM_PATH", "HIP_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "TMPDIR", "XDG_CACHE_HOME", "HOME")


def check(machine: Machine) -> list[Finding]:
    """HIP's compiler and libraries take a path apart at its blanks. Sources: ROCm issues 4478 and 4329 (HIP programs
    below such a folder), TheRock issue 7075 (a user's folder).
    """
    if not kernel.gpus(machine) or machine.process is None:
        return []
    environ = machine.process.environ
    found = [f"{name}={environ[name]}" for name in _FOLDERS if " " in environ.get(name, "")]
    if not found:
        return [
            Finding(
                check="paths",
                layer="environment",
                status="ok",
                title="no folder in use has a blank in its name",
            )
        ]
    return [
        Finding(
            check="paths",
            layer="environment",
            status="note",
            title="a folder with a blank in its name may make HIP's compiler fail",
            evidence=tuple(found),
            cause="HIP's compiler and libraries cut a path at its blanks",
            fixes=(
                Fix(
                    command="python3 -m venv /opt/wavefit-venv",
                    why="an environment below a folder without blanks",
                ),
                Fix(
                    command="export XDG_CACHE_HOME=/var/tmp/cache TMPDIR=/var/tmp",
                    why="for caches and temporary files",
                ),
            ),
            verify="env | grep -E 'ROCM_PATH|VIRTUAL_ENV|TMPDIR|XDG_CACHE_HOME|HOME'",
        )
    ]
