"""On an integrated GPU: which memory may compute use?"""

from __future__ import annotations

from wavefit.doctor import kernel
from wavefit.doctor.machine import Machine
from wavefit.schema import Device, Finding, Fix

# "drm/amdkfd: Let VRAM allocations go to GTT domain on small APUs", commit eb853413d02c in Linux 6.10, taken over into
# 6.9's stable series as be22f3b6afa1.
_GTT_FROM = (6, 10, 0)
_GTT_FROM_STABLE = (6, 9, 9)


def check(machine: Machine) -> list[Finding]:
    findings = [_pools(machine, gpu) for gpu in kernel.gpus(machine) if gpu.integrated]
    return [finding for finding in findings if finding is not None]


def _pools(machine: Machine, gpu: Device) -> Finding | None:
    """What the compute driver offers is asked first; the kernel's version is taken where it does not say."""
    sizes = {pool.name: pool.total_bytes for pool in gpu.memory}
    vram, gtt, offered = sizes.get("vram"), sizes.get("gtt"), sizes.get("kfd")
    if vram is None or gtt is None:
        return None
    evidence = [
        f"{kernel.folder(gpu)}/mem_info_{name}_total: {_gib(sizes[name])}" for name in ("vram", "gtt")
    ]
    running = kernel.version(kernel.release(machine))
    if offered is not None:
        evidence.append(f"KFD offers {_gib(offered)}")
        carve_out_alone = offered <= vram < gtt
    elif running is not None:
        evidence.append(f"Linux {kernel.release(machine)}")
        carve_out_alone = running < _GTT_FROM_STABLE and vram < gtt
    else:
        return None
    if not carve_out_alone:
        usable = offered if offered is not None else max(vram, gtt)
        return Finding(
            check="memory_pools",
            layer="driver",
            status="ok",
            title=f"{kernel.called(gpu)} may use {_gib(usable)} of the system's memory for compute",
            evidence=tuple(evidence),
        )
    return _note(machine, gpu, vram, gtt, evidence)


def _note(machine: Machine, gpu: Device, vram: int, gtt: int, evidence: list[str]) -> Finding:
    return Finding(
        check="memory_pools",
        layer="driver",
        status="note",
        title=f"{kernel.called(gpu)} may use only its carve-out of {_gib(vram)} for compute",
        evidence=tuple(evidence),
        cause=f"kernels before 6.10 and 6.9.9 offer HIP the carve-out alone, not the {_gib(gtt)} of GTT",
        fixes=(
            Fix(
                command="sudo apt install linux-generic-hwe-24.04 && sudo reboot",
                why="any kernel from 6.10 on",
            ),
            Fix(
                command="sudo systemctl reboot --firmware-setup",
                why="or give the GPU more there: UMA frame buffer size, under advanced or AMD CBS settings",
            ),
        ),
        verify="grep size_in_bytes /sys/class/kfd/kfd/topology/nodes/*/mem_banks/0/properties",
    )


def _gib(size: int | None) -> str:
    return "unknown" if size is None else f"{size / (1 << 30):.1f} GiB"
