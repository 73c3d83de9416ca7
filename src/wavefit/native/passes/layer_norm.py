"""LayerNormalization from the operators that exporters write it in before opset 17.

mean = ReduceMean(x); d = x - mean; v = ReduceMean(d * d); y = d / sqrt(v + epsilon) * scale + bias
"""

from __future__ import annotations

import numpy as np

from wavefit.native.graph import Graph, Node, Value
from wavefit.native.passes._match import Term, beside, reduced, step, with_number


def run(graph: Graph) -> int:
    """Finds normalisations over the last axes, with or without scale and bias.

    Returns:
        How many LayerNormalization nodes were made.
    """
    found = sum(_normalisation(graph, node) for node in list(graph.nodes))
    graph.prune()
    return found


def _normalisation(graph: Graph, node: Node) -> int:
    match = _normalised(graph, node) if node.op == "Pointwise" else None
    if match is None:
        return 0
    source, axis, epsilon = match
    shape, last = source.shape[axis:], node
    last, scale = _factor(graph, last, "mul", shape)
    last, bias = _factor(graph, last, "add", shape)
    if scale is None:
        ones = np.ones(shape, source.dtype)
        scale = Value(f"{node.output.name}/ones", shape, source.dtype, ones)
    attributes = {"axis": axis, "epsilon": epsilon}
    graph.substitute(last, Node("LayerNormalization", node.name, [source, scale, bias], [], attributes))
    return 1


def _normalised(graph: Graph, node: Node) -> tuple[Value, int, float] | None:
    """x, the first normalised axis, and epsilon, where a node makes d / sqrt(mean(d * d) + epsilon)."""
    found = _over_root(graph, node.output)
    if found is None or isinstance(found[0], float):
        return None
    difference, variance = found[0], with_number(step(graph, found[1], "add"))
    squares = None if variance is None else reduced(graph, variance[0], "mean")
    if variance is None or squares is None or not _squared(graph, squares[0], difference):
        return None
    parts = step(graph, difference, "sub")
    mean = None if parts is None else reduced(graph, parts[1], "mean")
    if parts is None or mean is None or mean[0] is not parts[0]:
        return None
    axes, rank = mean[1], len(mean[0].shape)
    trailing = axes == squares[1] == tuple(range(axes[0], rank))
    return (mean[0], axes[0], variance[1]) if trailing and mean[0].shape == difference.shape else None


def _over_root(graph: Graph, value: Value) -> tuple[Term, Term] | None:
    """d and r where the value is d / sqrt(r), or d times its reciprocal."""
    quotient = step(graph, value, "div")
    if quotient is not None:
        root = step(graph, quotient[1], "sqrt")
        return None if root is None else (quotient[0], root[0])
    for one, other in _both_ways(step(graph, value, "mul")):
        inverse = step(graph, other, "reciprocal")
        if inverse is None:
            over = step(graph, other, "div")
            inverse = over[1:] if over is not None and over[0] == 1.0 else None
        root = None if inverse is None else step(graph, inverse[0], "sqrt")
        if root is not None:
            return one, root[0]
    return None


def _both_ways(arguments: tuple[Term, ...] | None) -> list[tuple[Term, ...]]:
    return [] if arguments is None else [arguments, arguments[::-1]]


def _squared(graph: Graph, value: Value, root: Value) -> bool:
    power, product = step(graph, value, "pow"), step(graph, value, "mul")
    return power == (root, 2.0) or product == (root, root)


def _factor(graph: Graph, node: Node, function: str, shape: tuple[int, ...]) -> tuple[Node, Value | None]:
    """The node after this one that multiplies by, or adds, a constant of that shape, and the constant.

    This node itself and None where there is no such.
    """
    user = graph.only_user(node.output)
    arguments = None if user is None or user.op != "Pointwise" else step(graph, user.output, function)
    other = beside(arguments, node.output)
    if user is None or other is None or other is node.output or user.output.shape != node.output.shape:
        return node, None
    if isinstance(other, float):
        array = np.full(shape, other, node.output.dtype)
        return user, Value(f"{user.output.name}/{function}", shape, node.output.dtype, array)
    if other.constant is None:
        return node, None
    if other.shape == shape:
        return user, other
    lead = len(other.shape) - len(shape)
    if lead > 0 and other.shape[:lead] != (1,) * lead:
        return node, None
    array = np.broadcast_to(other.constant.reshape(other.shape[max(lead, 0) :]), shape)
    return user, Value(f"{user.output.name}/{function}", shape, other.dtype, np.ascontiguousarray(array))
