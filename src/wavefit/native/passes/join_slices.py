"""A Concat whose neighbouring inputs are neighbouring slices of one tensor reads that tensor, or one longer slice.

YOLO v8 splits what a convolution makes and joins both halves with what was made of one of them: without the split,
the convolution writes where the halves belong, and nothing is copied.
"""

from __future__ import annotations

from wavefit.native.graph import Graph, Node, Value
from wavefit.native.passes._match import given, made_by


def run(graph: Graph) -> int:
    """Joins slices that follow each other in a Concat.

    Returns:
        How many inputs of Concats went.
    """
    gone = 0
    for node in [each for each in graph.nodes if each.op == "Concat" and each.epilogue is None]:
        inputs: list[Value] = []
        for value in map(given, node.inputs):
            joined = _joined(graph, node, inputs[-1], value) if inputs else None
            inputs = [*inputs, value] if joined is None else [*inputs[:-1], joined]
        if len(inputs) < len(node.inputs):
            gone += len(node.inputs) - len(inputs)
            node.own = len(inputs)
            graph.rewire(node, inputs)
            if len(inputs) == 1:
                graph.bypass(node)
    graph.prune()
    return gone


def _joined(graph: Graph, concat: Node, first: Value, second: Value) -> Value | None:
    """Both as one, where the second goes on where the first ends."""
    one, other = made_by(graph, first, "Slice"), made_by(graph, second, "Slice")
    axis = concat.attributes["axis"]
    if one is None or other is None or one.inputs[0] is not other.inputs[0]:
        return None
    starts, further = one.attributes["starts"], other.attributes["starts"]
    whole = given(one.inputs[0])
    for dim in range(len(whole.shape)):
        step = 1 if dim == axis else one.attributes["steps"][dim]
        if {one.attributes["steps"][dim], other.attributes["steps"][dim]} != {step}:
            return None
        if further[dim] != starts[dim] + (first.shape[axis] if dim == axis else 0):
            return None
    shape = (*first.shape[:axis], first.shape[axis] + second.shape[axis], *first.shape[axis + 1 :])
    if shape == whole.shape:
        return whole
    longer = Value(f"{second.name}/joined", shape, whole.dtype)
    graph.insert_before(concat, Node("Slice", longer.name, [whole], [longer], dict(one.attributes)))
    return longer
