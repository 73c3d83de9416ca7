"""What patterns are found with: a value, and how it was made."""

from __future__ import annotations

from collections.abc import Sequence

from wavefit.native.graph import Graph, Node, Value

Term = Value | float
"""An argument of a step: a tensor, or a constant."""


def step(graph: Graph, value: Term | None, function: str) -> tuple[Term, ...] | None:
    """The arguments of the one elementwise function that makes a value; None where something else makes it.

    Constants of one element are numbers here, whether they stand in the expression or beside it.
    """
    node = None if value is None or isinstance(value, float) else graph.producer(value)
    if node is None or node.op != "Pointwise" or node.epilogue is None or len(node.epilogue.steps) != 1:
        return None
    only = node.epilogue.steps[0]
    if only.function != function:
        return None
    return tuple(a if isinstance(a, float) else _term(given(node.inputs[a])) for a in only.arguments)


def _term(value: Value) -> Term:
    one = value.constant is not None and value.size == 1 and value.dtype in ("float32", "float16")
    return float(value.constant.reshape(-1)[0]) if one and value.constant is not None else value


def given(value: Value | None) -> Value:
    """An input that must be there."""
    assert value is not None
    return value


def made_by(graph: Graph, value: Term | None, op: str) -> Node | None:
    """The node that makes a value, where it is of that operator and has no epilogue."""
    node = None if value is None or isinstance(value, float) else graph.producer(value)
    return node if node is not None and node.op == op and node.epilogue is None else None


def reduced(graph: Graph, value: Term | None, kind: str) -> tuple[Value, tuple[int, ...]] | None:
    """What a Reduce of that kind, which keeps its axes, was made of, and the axes."""
    node = made_by(graph, value, "Reduce")
    if node is None or node.attributes["kind"] != kind:
        return None
    source, axes = given(node.inputs[0]), tuple(node.attributes["axes"])
    kept = tuple(1 if axis in axes else size for axis, size in enumerate(source.shape))
    return (source, axes) if node.output.shape == kept else None


def with_number(arguments: Sequence[Term] | None) -> tuple[Value, float] | None:
    """The tensor and the constant of a step of two arguments, one of each, in any order."""
    if arguments is None or len(arguments) != 2:
        return None
    for tensor, number in (arguments, arguments[::-1]):
        if isinstance(number, float) and not isinstance(tensor, float):
            return tensor, number
    return None


def beside(arguments: Sequence[Term] | None, one: Value) -> Term | None:
    """The argument that stands beside ``one`` in a step of two arguments."""
    if arguments is None or len(arguments) != 2 or one not in arguments:
        return None
    return arguments[1] if arguments[0] is one else arguments[0]
