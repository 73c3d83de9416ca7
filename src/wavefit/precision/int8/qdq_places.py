"""Where a graph needs QuantizeLinear/DequantizeLinear pairs for a set of nodes to run in int8."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from wavefit.precision import graph
from wavefit.precision.int8.qdq_operators import FLOAT_OUTPUT, activations, passes, readers, tail

if TYPE_CHECKING:
    import onnx_ir as ir


@dataclass
class Places:
    """Values that get a pair.

    Args:
        held: value name to the value whose scale it has: itself, or what passing nodes carried here.
        whole: of those, the ones made by an int8 kernel: whoever reads them reads the pair.
        carriers: names of the passing nodes between two pairs.
    """

    held: dict[str, str] = field(default_factory=dict)
    whole: set[str] = field(default_factory=set)
    carriers: set[str] = field(default_factory=set)


def places(model: ir.Model, nodes: Set[str]) -> Places:
    """The pairs that those nodes need: one a value, and none between nodes that stay float.

    A Gemm or MatMul gives floats where no int8 node reads it. Relu, Clip and a MatMul's bias run inside the kernel
    before them. Reshape, MaxPool and the like carry integers through where an int8 node lies behind them.
    """
    wanted = _wanted(model, nodes)
    found = Places()
    for value in model.graph.inputs:
        _hold_float(found, value, nodes)
    ends = {}
    for node in model.graph:
        if node.name in nodes:
            ends[id(tail(node))] = node
        head = ends.get(id(node))
        if head is not None:
            output = node.outputs[0]
            if head.op_type not in FLOAT_OUTPUT or output in wanted:
                found.held[str(output.name)] = str(output.name)
                found.whole.add(str(output.name))
            continue
        if node.name in nodes:
            continue
        if passes(node) and _carries(node, found, wanted):
            found.carriers.add(str(node.name))
            for output in node.outputs:
                found.held[str(output.name)] = found.held[str(node.inputs[0].name)]  # type: ignore[union-attr]
                found.whole.add(str(output.name))
            continue
        for output in node.outputs:
            _hold_float(found, output, nodes)
    return found


def reads_integers(node: ir.Node, slot: int, nodes: Set[str], carriers: Set[str]) -> bool:
    """Whether that input of a node is an activation of an int8 kernel."""
    if node.name in nodes:
        return slot in activations(node)
    return node.name in carriers and slot == 0


def _wanted(model: ir.Model, nodes: Set[str]) -> set[ir.Value]:
    """Values that an int8 node reads, through passing nodes or at once."""
    wanted: set[ir.Value] = set()
    for node in reversed(list(model.graph)):
        slots: tuple[int, ...] = ()
        if node.name in nodes:
            slots = activations(node)
        elif passes(node) and any(output in wanted for output in node.outputs):
            slots = (0,)
        wanted.update(value for slot in slots if (value := node.inputs[slot]) is not None)
    return wanted


def _carries(node: ir.Node, found: Places, wanted: set[ir.Value]) -> bool:
    given = node.inputs[0]
    return given is not None and given.name in found.held and any(each in wanted for each in node.outputs)


def _hold_float(found: Places, value: ir.Value, nodes: Set[str]) -> None:
    if graph.is_float(value) and any(
        reads_integers(node, slot, nodes, set()) for node, slot in readers(value)
    ):
        found.held[str(value.name)] = str(value.name)
