"""Where the nodes ran, against where they were asked to run."""

from __future__ import annotations

from collections import Counter

from wavefit.schema import Device, Placement

CPU_NAMES = ("CPUExecutionProvider", "cpu")
"""What runtimes call the CPU."""


def reasons(placement: Placement | None, device: Device, require_gpu: bool) -> tuple[str, ...]:
    """Why a plan for a GPU does not count, in words; empty where it does.

    A plan for a GPU of which no node ran there is never the GPU's. With ``require_gpu`` no node may have run on the
    CPU, and a runtime that cannot tell is no proof. A plan for the CPU is measured all the same, as what the GPU is
    worth is told by it; :func:`wavefit.choice.violations` sees that it is not picked.
    """
    if device.kind != "gpu":
        return ()
    if placement is None:
        return ("the runtime cannot tell which nodes ran on the GPU",) if require_gpu else ()
    on_cpu = sum(placement.on(name) for name in CPU_NAMES)
    total = sum(share.nodes for share in placement.providers)
    if on_cpu == total:
        return (f"none of the {total} nodes ran on {device.id} ({placement.source})",)
    if require_gpu and on_cpu:
        return (
            f"{on_cpu} of {total} nodes ran on the CPU{_share(placement)}: {_operators(placement, on_cpu)}",
        )
    return ()


def _share(placement: Placement) -> str:
    """The CPU's part of the time of all nodes, where all are timed."""
    times = [share.time_s for share in placement.providers]
    known = [time for time in times if time is not None]
    if len(known) < len(times) or sum(known) <= 0:
        return ""
    on_cpu = sum(share.time_s or 0.0 for share in placement.providers if share.provider in CPU_NAMES)
    return f" ({on_cpu / sum(known):.0%} of the time)"


def _operators(placement: Placement, on_cpu: int) -> str:
    counts = Counter(node.op for node in placement.cpu_nodes)
    named = [f"{op} ({count})" if count > 1 else op for op, count in counts.most_common()]
    left = on_cpu - sum(counts.values())
    return ", ".join([*named, *([f"{left} more"] if left > 0 else [])]) or "unnamed"
