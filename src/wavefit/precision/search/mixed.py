"""int8 and half in one graph: what stays out of int8 is computed in half, where it may be."""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs

from wavefit.precision.half.convert import convert
from wavefit.precision.half.emulate import emulated
from wavefit.precision.int8.inside import absorbed, inside_kernels
from wavefit.precision.search.material import Draft, Material, counts
from wavefit.schema import KeptNode, Precision


def with_half(material: Material, integer: Draft, half: Draft) -> Draft | None:
    """The int8 variant with its other nodes in half, as far as the search for half lowered them; None: it fails.

    A stretch that was scaled for half stays in fp32 here.
    """
    scaled = {node for each in half.scaled for node in each.nodes}
    inside = inside_kernels(integer.graph, integer.assignment)
    free = [name for name in half.assignment if name not in integer.assignment and name not in scaled]
    lower: dict[str, Precision] = {name: half.precision for name in free if name in _names(integer) - inside}
    if not lower:
        return None
    judgement = material.judge(emulated(integer.graph, lower), "int8")
    if not judgement.passed:
        return None
    assignment = {**integer.assignment, **lower}
    gone = inside | absorbed(material.graph, integer.graph)
    kept = [*(_moved(node, lower) for node in integer.kept), *_own(half, integer)]
    return replace(
        integer,
        graph=convert(integer.graph, lower, "fp16" if half.precision == "fp16" else "bf16"),
        judgement=judgement,
        assignment=assignment,
        nodes=counts(material.graph, {**assignment, **dict.fromkeys(gone, "int8")}),
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
