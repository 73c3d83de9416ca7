"""Softmax from the operators that it was written in: exp(x - max(x)) / sum(exp(x - max(x)))."""

from __future__ import annotations

from wavefit.native.graph import Graph, Node, Value
from wavefit.native.passes._match import Term, reduced, step


def run(graph: Graph) -> int:
    """Finds divisions of exponentials by their sum over one axis; subtracting the maximum first is no matter.

    Returns:
        How many Softmax nodes were made.
    """
    found = 0
    for node in list(graph.nodes):
        match = _exponentials(graph, node)
        if match is None:
            continue
        source, axis = match
        graph.substitute(node, Node("Softmax", node.name, [source], [], {"axis": axis, "log": False}))
        found += 1
    graph.prune()
    return found


def _exponentials(graph: Graph, node: Node) -> tuple[Value, int] | None:
    quotient = step(graph, node.output, "div") if node.op == "Pointwise" else None
    if quotient is None:
        return None
    total = reduced(graph, quotient[1], "sum")
    if total is None or total[0] is not quotient[0] or len(total[1]) != 1:
        return None
    exponent = step(graph, total[0], "exp")
    if exponent is None or isinstance(exponent[0], float) or exponent[0].shape != node.output.shape:
        return None
    axis = total[1][0]
    return _without_maximum(graph, exponent[0], axis), axis


def _without_maximum(graph: Graph, value: Value, axis: int) -> Value:
    difference: tuple[Term, ...] | None = step(graph, value, "sub")
    if difference is None or isinstance(difference[0], float):
        return value
    most = reduced(graph, difference[1], "max")
    return difference[0] if most == (difference[0], (axis,)) else value
