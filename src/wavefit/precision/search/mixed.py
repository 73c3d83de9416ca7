"""int8 and half in one graph: what stays out of int8 is computed in half, where it may be."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec import structs

from wavefit.precision.half.convert import convert
from wavefit.precision.half.emulate import emulated
from wavefit.precision.int8.qdq_operators import tail
from wavefit.precision.search.material import Draft, Material, counts
from wavefit.schema import KeptNode, Precision

if TYPE_CHECKING:
    import onnx_ir as ir


def with_half(material: Material, integer: Draft, half: Draft) -> Draft | None:
    """The int8 variant with its other nodes in half, as far as the search for half lowered them; None: it fails.

    A stretch that was scaled for half stays in fp32 here.
    """
    scaled = {node for each in half.scaled for node in each.nodes}
    inside = inside_kernels(integer)
    free = [name for name in half.assignment if name not in integer.assignment and name not in scaled]
    lower: dict[str, Precision] = {name: half.precision for name in free if name in _names(integer) - inside}
    if not lower:
        return None
    judgement = material.judge(emulated(integer.graph, lower), "int8")
    if not judgement.passed:
        return None
    assignment = {**integer.assignment, **lower}
    kept = [*(_moved(node, lower) for node in integer.kept), *_own(half, integer)]
    return replace(
        integer,
        graph=convert(integer.graph, lower, "fp16" if half.precision == "fp16" else "bf16"),
        judgement=judgement,
        assignment=assignment,
        nodes=counts(material.graph, assignment),
        kept=tuple(kept),
        recipe={**integer.recipe, "other nodes": half.precision},
    )


def _names(draft: Draft) -> set[str]:
    return {str(node.name) for node in draft.graph.graph}


def _moved(node: KeptNode, lower: dict[str, Precision]) -> KeptNode:
    return structs.replace(node, precision=lower[node.node]) if node.node in lower else node


def _own(half: Draft, integer: Draft) -> list[KeptNode]:
    """What half keeps in fp32 and int8 does not lower."""
    known = {node.node for node in integer.kept} | set(integer.assignment)
    return [node for node in half.kept if node.node not in known]


def inside_kernels(integer: Draft) -> set[str]:
    """Nodes that run inside an int8 kernel, or carry its integers on: a cast beside one would take it apart."""
    found = set()
    for node in integer.graph.graph:
        if str(node.name) in integer.assignment:
            end = tail(node)
            while node is not end:
                (node, _), *_ = node.outputs[0].uses()
                found.add(str(node.name))
        elif _made_by(node, "DequantizeLinear") and _only_read_by(node, "QuantizeLinear"):
            found.add(str(node.name))
    return found


def _made_by(node: ir.Node, operator: str) -> bool:
    first = node.inputs[0] if node.inputs else None
    maker = first.producer() if first is not None else None
    return maker is not None and maker.op_type == operator


def _only_read_by(node: ir.Node, operator: str) -> bool:
    users = [user for value in node.outputs for user, _ in value.uses()]
    return bool(users) and all(user.op_type == operator for user in users)
