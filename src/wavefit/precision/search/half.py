"""The search for fp16 and bf16: as much of the graph in half as passes, and the reason for every node that is not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from wavefit.errors import InputError
from wavefit.precision.half.attribute import attribute
from wavefit.precision.half.convert import cannot, convert
from wavefit.precision.half.emulate import emulated
from wavefit.precision.half.hazards import computes, hazards
from wavefit.precision.half.ranges import merge, observe
from wavefit.precision.half.scaling import rescale
from wavefit.precision.half.value_range import Range
from wavefit.precision.int8.opset import PER_CHANNEL, opset, raised
from wavefit.precision.search.data import twice_as_large
from wavefit.precision.search.islands import smallest
from wavefit.precision.search.material import Draft, Material, counts, kept_by_guard
from wavefit.precision.search.sensitivity import measure
from wavefit.schema import Precision, Sensitivity, Unsupported

if TYPE_CHECKING:
    import onnx_ir as ir

_BF16_OPSET = 22  # of ONNX, the first whose Conv, pools and others take bfloat16
_OLDEST_OPSET = 7  # that ONNX Runtime promises kernels for: docs/Versioning.md
_FOR_ISLANDS, _FOR_REASONS = 0.6, 0.5  # of the time left


def half(material: Material, low: Literal["fp16", "bf16"]) -> Draft | Unsupported:
    """The variant with the fewest nodes kept in fp32.

    Nodes that the numbers over calibration data convict are kept, unless scaling spares them; where the guard still
    says no, the smallest further set is searched for.

    Raises:
        InputError: the graph cannot be run or typed.
    """
    graph = _raised(material.graph, low)
    ranges = _ranges(material, graph)
    dangers = [node for node in hazards(graph, ranges, low) if node.node not in material.keep]
    found = rescale(graph, ranges, dangers, low)
    by_hand = material.kept_by_hand(graph)
    barred = {node.node: node for node in (*by_hand, *cannot(found.model, low), *found.left)}
    free = [str(node.name) for node in found.model.graph if computes(node) and node.name not in barred]
    if not free:
        why = [f"{name}: {node.reason}" for name, node in barred.items()] or [
            "nothing in it computes in fp32"
        ]
        return _refused(material, low, tuple(why))
    kept, sensitivity = _islands(material, found.model, free, low)
    if len(kept) == len(free):
        return _refused(material, low)
    assignment: dict[str, Precision] = {name: low for name in free if name not in kept}
    judgement = material.judge(emulated(found.model, assignment), low)
    if not judgement.passed:
        return _refused(material, low, judgement.reasons)
    return Draft(
        graph=convert(found.model, assignment, low),
        precision=low,
        target="any",
        judgement=judgement,
        assignment=assignment,
        nodes=counts(found.model, assignment),
        kept=(*barred.values(), *kept_by_guard(found.model, kept, low, sensitivity)),
        scaled=found.scaled,
        sensitivity=sensitivity,
        notes=material.split.notes,
    )


def _raised(graph: ir.Model, low: str) -> ir.Model:
    """At an opset whose operators take bfloat16; of one that is so old that ONNX Runtime lacks kernels, at a newer."""
    if low == "bf16":
        return raised(graph, _BF16_OPSET)
    return raised(graph, PER_CHANNEL) if opset(graph) < _OLDEST_OPSET else graph


def _ranges(material: Material, graph: ir.Model) -> dict[str, Range]:
    """Over calibration data, and where sizes are symbolic over some of it twice as large: sums grow with the size."""
    ranges = observe(graph, material.split.calibration, material.say)
    larger = twice_as_large(material.model, material.split.calibration)
    if larger is None:
        return ranges
    try:
        return merge(ranges, observe(graph, larger, material.say))
    except (
        InputError
    ):  # a table of positions ends, or a reshape fixes the size: then larger inputs never come
        return ranges


def _islands(
    material: Material, graph: ir.Model, free: list[str], low: Precision
) -> tuple[frozenset[str], tuple[Sensitivity, ...]]:
    """What else must be kept, and how far each of it moves the outputs alone."""

    def lowered(nodes: frozenset[str]) -> ir.Model:
        return emulated(graph, dict.fromkeys(nodes, low))

    def passes(kept: frozenset[str]) -> bool:
        material.say(f"{low}: do the answers stand with {len(kept)} of {len(free)} nodes kept")
        return material.judge(lowered(frozenset(free) - kept), low).passed

    if passes(frozenset()):
        return frozenset(), ()
    order = attribute(graph, free, material.split.calibration, low)
    kept = smallest(free, passes, frozenset(), order, material.say, material.spare_s(_FOR_ISLANDS))
    alone = [name for name in free if name in kept]
    budget = material.affordable(_FOR_REASONS)
    return kept, measure(graph, alone, lowered, material.judge, material.say, budget)


def _refused(material: Material, low: Precision, reasons: tuple[str, ...] = ()) -> Unsupported:
    why = f": {reasons[0]}" if reasons else ""
    reason = f"no part of the model can be in {low}{why}"
    return Unsupported(route="precision", reason=reason, fix="use --precision fp32", precision=low)
