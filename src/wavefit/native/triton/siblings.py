"""A pass of this engine's own: products of one input with several weights, as of queries, keys and values, made one.

The results are slices of the joined one, which are views: nothing is copied. One launch fills a GPU better than three
small ones, and reads the input once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wavefit.native.graph import Graph, Node, Value
from wavefit.native.passes._match import given


def run(graph: Graph) -> int:
    """Joins MatMul nodes that read the same.

    Returns:
        How many joined nodes were made.
    """
    groups: dict[tuple[object, ...], list[Node]] = {}
    for node in graph.nodes:
        if _able(graph, node):
            groups.setdefault(_alike(node), []).append(node)
    joined = [nodes for nodes in groups.values() if len(nodes) > 1]
    for nodes in joined:
        _join(graph, nodes)
    return len(joined)


def _able(graph: Graph, node: Node) -> bool:
    """Whether it is a product with constant weights, and all that its epilogue reads are constants of a column each."""
    if node.op != "MatMul" or node.own != 2 or node.attributes or node.output in graph.outputs:
        return False
    weights, operands = node.constant(1), node.inputs[2:]
    return (
        weights is not None
        and weights.ndim == 2
        and node.inputs[0] is not None
        and len(given(node.inputs[0]).shape) >= 2
        and all(
            each is not None and each.constant is not None and each.shape == (weights.shape[1],)
            for each in operands
        )
    )


def _alike(node: Node) -> tuple[object, ...]:
    types = tuple(given(value).dtype for value in node.inputs)
    return (id(node.inputs[0]), node.epilogue, types, node.output.dtype)


def _join(graph: Graph, nodes: Sequence[Node]) -> None:
    first = nodes[0]
    shape = (*first.output.shape[:-1], sum(node.output.shape[-1] for node in nodes))
    whole = Value(f"{first.output.name}/joined", shape, first.output.dtype)
    inputs: list[Value | None] = [first.inputs[0]]
    for number in range(1, len(first.inputs)):
        arrays = [np.asarray(given(node.inputs[number]).constant) for node in nodes]
        array = np.concatenate(arrays, axis=-1)
        own = given(first.inputs[number])
        inputs.append(Value(f"{own.name}/joined", array.shape, own.dtype, array))
    sources = tuple(dict.fromkeys(name for node in nodes for name in node.source))
    product = Node("MatMul", first.name, inputs, [whole], {}, first.epilogue, own=2, source=sources)
    graph.insert_before(first, product)
    start = 0
    for node in nodes:
        rank = len(shape)
        attributes = {"starts": (0,) * (rank - 1) + (start,), "steps": (1,) * rank}
        part = Node("Slice", f"{node.name}:part", [whole], [node.output], attributes, source=node.source)
        graph.insert_before(first, part)
        start += node.output.shape[-1]
    for node in nodes:
        graph.remove(node)
