"""Roofline: a node takes max(FLOPs / peak, bytes / bandwidth) + launch.

S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual performance model for multicore
architectures", Communications of the ACM 52(4), 2009.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from wavefit.plan.liveness import ALIASES, ELEMENTWISE
from wavefit.plan.peaks import ELEMENT_BYTES, MATRIX_OPS, arithmetic, bandwidth, launch
from wavefit.plan.trace import Step, Trace, narrowed
from wavefit.schema import Device, Figure, Precision, Struct

Bound = Literal["compute", "memory", "launch", "nothing"]

# ONNX Runtime's LRN raises one element after the other to a power, on one thread (core/providers/cpu/nn/lrn.cc): 15 to
# 35 ns each in three nets on an EPYC at 3 GHz. The clock is what the peak leaves: cores x clock x FLOPs a cycle.
_SCALAR = frozenset(("LRN",))
_POWER_CYCLES = 50
_CYCLE_FLOPS = 32
_NO_KERNEL = frozenset((*ALIASES, "Constant", "Shape", "Size"))  # no work on the device


class NodeRoof(Struct, frozen=True, kw_only=True):
    """One node's time. A part is None where its peak, or the node's own cost, is unknown."""

    name: str
    op: str
    compute_s: float | None
    memory_s: float | None
    launch_s: float | None
    total_s: float | None  # None where compute or memory is
    bound: Bound | None


class Roof(Struct, frozen=True, kw_only=True):
    """A model's time at one batch: sums over the nodes, which run one after the other."""

    precision: Precision
    nodes: tuple[NodeRoof, ...]
    compute_s: float | None
    memory_s: float | None
    launch_s: float | None
    total_s: float | None
    peak: Figure | None  # of matrix products
    bandwidth: Figure | None
    launch: Figure | None
    unknown: tuple[str, ...] = ()  # operators that have no cost, left out of the sums

    @property
    def bound_by(self) -> dict[str, float]:
        """Share of the time by what the nodes are bound by; {} where the total is unknown."""
        if not self.total_s:
            return {}
        shares: dict[str, float] = {}
        for node in self.nodes:
            if node.bound is not None and node.total_s:
                shares[node.bound] = shares.get(node.bound, 0.0) + node.total_s / self.total_s
        return shares


def roofline(trace: Trace, device: Device, precision: Precision, fused: bool = False) -> Roof:
    """Every node's time and their sum.

    Args:
        fused: an element-wise node right behind the node that makes its input runs inside that node's kernel, as
            ONNX Runtime, MIGraphX and torch.compile have it: it moves only its other inputs and is not launched.
    """
    narrow = narrowed(trace, ELEMENT_BYTES[precision])
    inside = _fused(narrow) if fused else frozenset()
    nodes = tuple(
        _node(step, narrow, device, precision, index in inside) for index, step in enumerate(narrow.steps)
    )
    left_out = sorted({node.op for node in nodes if node.total_s is None})
    known = arithmetic(device, precision) is not None and bandwidth(device) is not None
    return Roof(
        precision=precision,
        nodes=nodes,
        compute_s=_sum([node.compute_s for node in nodes]),
        memory_s=_sum([node.memory_s for node in nodes]),
        launch_s=_sum([node.launch_s for node in nodes]),
        total_s=_sum([node.total_s for node in nodes]),
        peak=arithmetic(device, precision),
        bandwidth=bandwidth(device),
        launch=launch(device),
        unknown=tuple(left_out) if known else (),
    )


def _node(step: Step, trace: Trace, device: Device, precision: Precision, inside: bool) -> NodeRoof:
    peak = arithmetic(device, precision, matrix=step.op in MATRIX_OPS)
    memory, start = bandwidth(device), launch(device)
    none = step.op in _NO_KERNEL
    moved = _other_bytes(step, trace) if inside else step.cost.bytes
    compute_s = None if peak is None or step.cost.flops is None else step.cost.flops / peak.value
    if compute_s is not None and peak is not None and step.op in _SCALAR and device.kind == "cpu":
        elements = sum(math.prod(trace.shapes.get(name, ())) for name in step.outputs)
        compute_s = elements * _POWER_CYCLES * _CYCLE_FLOPS * (device.compute_units or 1) / peak.value
    memory_s = None if memory is None or moved is None else moved / memory.value
    launch_s = None if start is None else 0.0 if none or inside else start.value
    total = None
    if compute_s is not None and memory_s is not None:
        total = max(compute_s, memory_s) + (launch_s or 0.0)
    return NodeRoof(
        name=step.cost.name,
        op=step.op,
        compute_s=compute_s,
        memory_s=memory_s,
        launch_s=launch_s,
        total_s=total,
        bound=None if total is None else _bound(compute_s or 0.0, memory_s or 0.0, launch_s or 0.0),
    )


def _bound(compute_s: float, memory_s: float, launch_s: float) -> Bound:
    most = max(compute_s, memory_s, launch_s)
    if most == 0:
        return "nothing"
    return "compute" if most == compute_s else "memory" if most == memory_s else "launch"


def _fused(trace: Trace) -> frozenset[int]:
    """Element-wise steps that are the only reader of what a matrix product, or a step fused to one, made."""
    readers: dict[str, int] = {}
    for step in trace.steps:
        for name in step.inputs:
            readers[name] = readers.get(name, 0) + 1
    ends: set[str] = set()
    found = set()
    for index, step in enumerate(trace.steps):
        joined = step.op in ELEMENTWISE and any(
            name in ends and readers[name] == 1 and name not in trace.outputs for name in step.inputs
        )
        if joined:
            found.add(index)
        if joined or step.op in MATRIX_OPS:
            ends.update(step.outputs)
    return frozenset(found)


def _other_bytes(step: Step, trace: Trace) -> int | None:
    """What a fused step still reads: its inputs but the one that it is fused to, the largest."""
    sizes = [trace.bytes.get(name) for name in step.inputs]
    known = sorted(size for size in sizes if size is not None)
    return sum(known[:-1]) if len(known) == len(sizes) else None


def _sum(parts: Sequence[float | None]) -> float | None:
    """Of the known ones; None where none is."""
    known = [part for part in parts if part is not None]
    return sum(known) if known else None


class Tile(Struct, frozen=True, kw_only=True):
    """The largest square tile of a matrix product, in elements a side, whose operands fit a memory."""

    memory: str  # "L2", "LDS"
    bytes: int
    side: int


def tiles(device: Device, precision: Precision) -> tuple[Tile, ...]:
    """Tiles for L2 and LDS. In L2 lie A, B and C of side x side each; in LDS two strips of side x depth, twice.

    Sides are rounded down to a multiple of 16 (the matrix instructions of CDNA and RDNA 3 work on 16 x 16), depth is
    16 elements, and strips are held twice so that one is loaded while the other is used. Accumulators lie in registers.
    """
    width = ELEMENT_BYTES[precision]
    found = []
    l2 = device.caches.get("l2_bytes")
    if l2:
        found.append(Tile(memory="L2", bytes=l2, side=_down(math.isqrt(l2 // (3 * width)))))
    if device.lds_bytes:
        depth = 16
        found.append(
            Tile(
                memory="LDS", bytes=device.lds_bytes, side=_down(device.lds_bytes // (2 * 2 * depth * width))
            )
        )
    return tuple(found)


def _down(side: int) -> int:
    return side // 16 * 16
