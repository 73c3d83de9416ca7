"""A Concat whose first inputs are those of an earlier one reads that one: each part is then made in its place once.

PyTorch's DenseNet joins all features anew in each layer: Concat(f0, f1), Concat(f0, f1, f2), and so on. Layout puts an
input of a Concat straight into its output, but it can lie in one output only; nested, all share the largest.
"""

from __future__ import annotations

from wavefit.native.graph import Graph, Node, Value

_Earlier = tuple[Node, list[Value | None]]
"""A Concat, and the inputs that it had."""


def run(graph: Graph) -> int:
    """Shortens Concats.

    Returns:
        How many read another.
    """
    nested = 0
    before: list[_Earlier] = []
    for node in graph.nodes:
        if node.op != "Concat" or node.epilogue is not None:
            continue
        first = max((each for each in before if _begins(each, node)), key=_length, default=None)
        before.append((node, list(node.inputs)))
        if first is not None:
            earlier, inputs = first
            node.inputs = [earlier.output, *node.inputs[len(inputs) :]]
            node.own = len(node.inputs)
            nested += 1
    if nested:
        graph.changed()
    return nested


def _begins(earlier: _Earlier, node: Node) -> bool:
    """Whether the inputs that an earlier Concat had are the first of this one's, along the same axis."""
    other, inputs = earlier
    count = len(inputs)
    same = other.attributes["axis"] == node.attributes["axis"] and 1 < count < len(node.inputs)
    return same and all(a is b for a, b in zip(inputs, node.inputs, strict=False))


def _length(earlier: _Earlier) -> int:
    return len(earlier[1])
