"""Operators that move nothing are taken out, merged with each other, or done to constants now.

Two Reshapes are one, two Transposes one or none; a Transpose that only moves axes of size 1 is a Reshape; a view that
changes nothing goes, as does an Expand before an elementwise function, which repeats its operands itself.
"""

from __future__ import annotations

import numpy as np

from wavefit.native.graph import Graph, Node, Value
from wavefit.native.passes._match import given

_FOLDED = ("Reshape", "Transpose", "Slice")


def run(graph: Graph) -> int:
    """Simplifies Reshape, Transpose, Slice, Expand, Concat of one, and Pointwise nodes that compute nothing.

    Returns:
        How many nodes were changed or taken out.
    """
    changed = 0
    for node in list(graph.nodes):
        if node.op == "Transpose":
            changed += _transpose(graph, node)
        if node.op == "Reshape":
            changed += _reshape(graph, node)
        if node.op in _FOLDED and node.constant(0) is not None:
            changed += _fold(graph, node)
        elif _changes_nothing(node):
            changed += graph.bypass(node)
        if node.epilogue is not None:
            changed += _repeat(graph, node)
    graph.prune()
    return changed


def _transpose(graph: Graph, node: Node) -> int:
    before = graph.producer(given(node.inputs[0]))
    merged = before is not None and before.op == "Transpose"
    if before is not None and merged:
        perm = tuple(before.attributes["perm"][axis] for axis in node.attributes["perm"])
        node.attributes = {"perm": perm}
        graph.rewire(node, before.inputs)
    shape = given(node.inputs[0]).shape
    order = [axis for axis in node.attributes["perm"] if shape[axis] != 1]
    if node.output.shape != shape and order == sorted(order):
        node.op, node.attributes = "Reshape", {}
        return 1
    return int(merged)


def _reshape(graph: Graph, node: Node) -> int:
    before = graph.producer(given(node.inputs[0]))
    if before is not None and before.op == "Transpose":
        return _with_leading_axes(graph, node, before)
    if before is None or before.op != "Reshape":
        return 0
    graph.rewire(node, before.inputs)
    return 1


def _with_leading_axes(graph: Graph, node: Node, transpose: Node) -> int:
    """Leading axes that are joined for a Transpose and split after it stay as they are: joining them may be a copy."""
    join = graph.producer(given(transpose.inputs[0]))
    perm = transpose.attributes["perm"]
    if join is None or join.op != "Reshape" or not perm or perm[0] != 0:
        return 0
    source, tail = given(join.inputs[0]), join.output.shape[1:]
    outer = node.output.shape[: len(node.output.shape) - len(tail)]
    lead = len(source.shape) - len(tail)
    if lead < 1 or len(outer) < 2 or source.shape[lead:] != tail or not _same(source.shape[:lead], outer):
        return 0
    if node.output.shape[len(outer) :] != transpose.output.shape[1:]:
        return 0
    if source.shape[:lead] != outer:
        apart = Value(f"{node.output.name}/apart", (*outer, *tail), source.dtype)
        graph.insert_before(node, Node("Reshape", apart.name, [source], [apart]))
        source = apart
    node.op = "Transpose"
    node.attributes = {"perm": (*range(len(outer)), *(axis - 1 + len(outer) for axis in perm[1:]))}
    graph.rewire(node, [source])
    _transpose(graph, node)
    return 1


def _same(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Whether shapes differ in axes of size 1 only."""
    return [n for n in one if n != 1] == [n for n in other if n != 1]


def _changes_nothing(node: Node) -> bool:
    if not node.inputs or node.inputs[0] is None:
        return False
    source, result = node.inputs[0], node.output
    if source.shape != result.shape or source.dtype != result.dtype:
        return False
    if node.op in ("Reshape", "Expand"):
        return True
    if node.op == "Transpose":
        moved = [axis for axis in node.attributes["perm"] if source.shape[axis] != 1]
        return moved == sorted(moved)
    if node.op == "Slice":
        return all(step == 1 for step in node.attributes["steps"])
    if node.op == "Pointwise":
        assert node.epilogue is not None
        return not node.epilogue.steps
    return node.op == "Concat" and len(node.inputs) == 1


def _fold(graph: Graph, node: Node) -> int:
    array, output = node.constant(0), node.output
    if array is None or output in graph.outputs:
        return 0
    folded = Value(output.name, output.shape, output.dtype, _moved(node, array))
    graph.replace(output, folded)
    graph.remove(node)
    return 1


def _moved(node: Node, array: np.ndarray) -> np.ndarray:
    if node.op == "Transpose":
        return array.transpose(node.attributes["perm"])
    if node.op == "Reshape":
        return array.reshape(node.output.shape)
    picked = [
        start + step * np.arange(size)
        for start, step, size in zip(
            node.attributes["starts"], node.attributes["steps"], node.output.shape, strict=True
        )
    ]
    return array[np.ix_(*picked)] if picked else array


def _repeat(graph: Graph, node: Node) -> int:
    """Operands of elementwise functions are repeated as they are read."""
    inputs = list(node.inputs)
    for number in range(node.own, len(inputs)):
        maker = graph.producer(given(inputs[number]))
        if maker is not None and maker.op == "Expand":
            inputs[number] = maker.inputs[0]
    if inputs == node.inputs:
        return 0
    graph.rewire(node, inputs)
    return 1
