"""What is done elementwise to a node's result becomes the node's epilogue: bias, residual addition, activation.

The result is then never stored before it is finished. Of two nodes whose results are added, the later one adds.
"""

from __future__ import annotations

from wavefit.native.graph import Graph, Node, Value
from wavefit.native.passes._expressions import join
from wavefit.native.passes._match import given
from wavefit.native.passes.elementwise import MOST_OPERANDS, MOST_STEPS, stored_as_computed
from wavefit.native.pointwise import Pointwise

_FLOATS = ("float32", "float16")
_STORED = (*_FLOATS, "int8", "uint8")
_NONE = frozenset(("Pointwise", "Concat", "Reshape", "Transpose", "Slice", "Expand"))
"""Operators that compute nothing after which something could be done: views, and elementwise functions themselves."""


def run(graph: Graph) -> int:
    """Moves Pointwise nodes into the nodes that make their operands.

    Returns:
        How many were moved.
    """
    return sum(_absorb(graph, node) for node in list(graph.nodes) if node.op == "Pointwise")


def _absorb(graph: Graph, pointwise: Node) -> int:
    if (
        pointwise.epilogue is None
        or pointwise.output.dtype not in _STORED
        or not stored_as_computed(pointwise)
    ):
        return 0
    makers = [graph.producer(given(value)) for value in pointwise.inputs]
    places = {id(node): place for place, node in enumerate(graph.nodes)}
    able = [node for node in makers if node is not None and _able(graph, node, pointwise)]
    for node in sorted(able, key=lambda each: places[id(each)], reverse=True):
        if _fuse(graph, node, pointwise):
            return 1
    return 0


def _able(graph: Graph, node: Node, pointwise: Node) -> bool:
    value = node.output
    return (
        node.op not in _NONE
        and len(node.outputs) == 1
        and value.dtype in _FLOATS
        and value.shape == pointwise.output.shape
        and graph.only_user(value) is pointwise
    )


def _fuse(graph: Graph, node: Node, pointwise: Node) -> bool:
    assert pointwise.epilogue is not None
    result = Value(f"{node.output.name}/result", node.output.shape, "float32")  # before its epilogue
    first = node.epilogue or Pointwise(operands=1, steps=())
    producer = ([result, *(given(value) for value in node.inputs[node.own :])], first)
    consumer = ([given(value) for value in pointwise.inputs], pointwise.epilogue)
    inputs, epilogue = join(producer, consumer, node.output, kept=1)
    if len(inputs) > MOST_OPERANDS or len(epilogue.steps) > MOST_STEPS:
        return False
    node.epilogue = epilogue if epilogue.steps else None
    graph.rewire(node, [*node.inputs[: node.own], *inputs[1:]])
    graph.substitute(pointwise, node)
    return True
