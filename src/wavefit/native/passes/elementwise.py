"""Chains and small graphs of elementwise functions become one Pointwise each.

A Pointwise is computed where its value is read when one other Pointwise of the same shape reads it, at however many
places: x * sigmoid(x) reads x twice and is one expression of one operand.
"""

from __future__ import annotations

from wavefit.native.graph import Graph, Node
from wavefit.native.passes._expressions import join, tidy
from wavefit.native.passes._match import given

MOST_OPERANDS = 8  # buffers that one expression reads: each is an argument and an address to compute
MOST_STEPS = 64


def run(graph: Graph) -> int:
    """Merges Pointwise nodes, last readers first, so that what several of them read is merged after they are one.

    Returns:
        How many nodes were merged into another.
    """
    merged = 0
    for node in reversed(list(graph.nodes)):
        if node.op == "Pointwise":
            merged += merge(graph, node)
    for node in graph.nodes:
        _tidy(graph, node)
    return merged


def merge(graph: Graph, node: Node) -> int:
    """A Pointwise into the only one that reads it."""
    user = graph.only_user(node.output)
    if user is None or user.op != "Pointwise" or node.epilogue is None or user.epilogue is None:
        return 0
    if user.output.shape != node.output.shape or not stored_as_computed(node):
        return 0
    producer = ([given(value) for value in node.inputs], node.epilogue)
    consumer = ([given(value) for value in user.inputs], user.epilogue)
    inputs, pointwise = join(producer, consumer, node.output)
    if len(inputs) > MOST_OPERANDS or len(pointwise.steps) > MOST_STEPS:
        return 0
    user.epilogue = pointwise
    user.source = tuple(dict.fromkeys((*node.source, *user.source)))
    graph.rewire(user, inputs)
    graph.remove(node)
    return 1


def stored_as_computed(node: Node) -> bool:
    """Whether storing the result of an expression does not convert it (a float to a half aside)."""
    assert node.epilogue is not None
    steps = node.epilogue.steps
    dtype = steps[-1].dtype if steps else given(node.inputs[0]).dtype
    return dtype == node.output.dtype or {dtype, node.output.dtype} == {"float16", "float32"}


def _tidy(graph: Graph, node: Node) -> None:
    if node.op == "Pointwise" and node.epilogue is not None:
        inputs, node.epilogue = tidy([given(value) for value in node.inputs], node.epilogue)
        graph.rewire(node, inputs)
