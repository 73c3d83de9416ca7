"""What belongs to int8 kernels without being one: a Relu behind a convolution, a pool or reshape between pairs."""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

from wavefit.precision.int8.qdq_operators import tail

if TYPE_CHECKING:
    import onnx_ir as ir


def inside_kernels(model: ir.Model, nodes: Container[str]) -> set[str]:
    """Nodes that run inside the int8 kernels of ``nodes``, or carry their integers on, by name."""
    found = set()
    for node in model.graph:
        if str(node.name) in nodes:
            end = tail(node)
            while node is not end:
                (node, _), *_ = node.outputs[0].uses()
                found.add(str(node.name))
        elif _made_by(node, "DequantizeLinear") and _only_read_by(node, "QuantizeLinear"):
            found.add(str(node.name))
    return found


def absorbed(model: ir.Model, lowered: ir.Model) -> set[str]:
    """Nodes of a model that its int8 graph no longer has: a Relu that a range cuts off, a folded normalisation."""
    there = {str(node.name) for node in lowered.graph}
    return {name for node in model.graph if (name := str(node.name)) not in there}


def _made_by(node: ir.Node, operator: str) -> bool:
    first = node.inputs[0] if node.inputs else None
    maker = first.producer() if first is not None else None
    return maker is not None and maker.op_type == operator


def _only_read_by(node: ir.Node, operator: str) -> bool:
    users = [user for value in node.outputs for user, _ in value.uses()]
    return bool(users) and all(user.op_type == operator for user in users)
