"""Did DKMS build ROCm's amdgpu for the running kernel?"""

from __future__ import annotations

from wavefit.device.files import children
from wavefit.doctor import driver, kernel
from wavefit.doctor.machine import Machine
from wavefit.schema import Finding, Fix


def check(machine: Machine) -> list[Finding]:
    """DKMS builds a module anew for each kernel, and needs that kernel's headers. Source: dkms(8)."""
    if not kernel.gpus(machine) or not machine.exists(driver.DKMS):
        return []
    release = kernel.release(machine)
    if not driver.dkms_missing(machine):
        where = driver.dkms_module(machine)
        return [_finding("ok", f"DKMS built amdgpu for kernel {release}", (where,))] if where else []
    cause = driver.cause(machine)
    alone = cause is not None and cause.kind == "dkms"
    evidence = (
        f"{driver.DKMS} is there",
        f"/lib/modules/{release} has no amdgpu module of DKMS's",
        *_log(machine),
    )
    if alone:
        return [
            _finding(
                "problem",
                f"the amdgpu driver is not built for kernel {release}",
                evidence,
                "no driver holds the GPU",
            )
        ]
    return [
        _finding(
            "note",
            f"ROCm's amdgpu is not built for kernel {release}",
            evidence,
            "the kernel's own amdgpu is used instead",
        )
    ]


def _finding(status: str, title: str, evidence: tuple[str, ...], so: str = "") -> Finding:
    if status == "ok":
        return Finding(check="dkms", layer="driver", status="ok", title=title, evidence=evidence)
    return Finding(
        check="dkms",
        layer="driver",
        status=status,  # type: ignore[arg-type]
        title=title,
        evidence=evidence,
        cause=f"the kernel is newer than the last build, its headers are missing, or the build failed; {so}",
        fixes=(
            Fix(
                command="sudo apt install linux-headers-$(uname -r)",
                why="on Fedora and RHEL: kernel-devel-$(uname -r)",
            ),
            Fix(
                command="sudo dkms autoinstall",
                why="builds what is missing, and puts it into the start image",
            ),
            Fix(command="cat /var/lib/dkms/amdgpu/*/build/make.log", why="where the build fails", safe=True),
        ),
        verify="dkms status amdgpu",
    )


def _log(machine: Machine) -> tuple[str, ...]:
    """The first error of the build, where its log was kept."""
    for version in children(machine.root / driver.DKMS.lstrip("/"), r"\d.*"):
        where = f"{driver.DKMS}/{version.name}/build/make.log"
        for line in (machine.read(where) or "").splitlines():
            if "error:" in line.lower() or line.startswith("make: ***"):
                return (f"{where}: {line.strip()}",)
    return ()
