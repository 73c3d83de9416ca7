"""Constants that are one number throughout become literals of the expressions that read them.

Constants of one element are left as they are: the importer has made literals of them where that is wise. Of scales that
differ from layer to layer it is not, since equal layers share their kernels.
"""

from __future__ import annotations

import numpy as np

from wavefit.native.graph import Graph, Node
from wavefit.native.passes._expressions import readers, uniform, with_literal

_FLOATS = ("float32", "float16")


def run(graph: Graph) -> int:
    """Puts numbers into Pointwise nodes and epilogues; an operand that is the last of a Pointwise stays.

    Returns:
        How many operands became literals.
    """
    return sum(_literals(graph, node) for node in graph.nodes if node.epilogue is not None)


def _literals(graph: Graph, node: Node) -> int:
    found, first = 0, 0 if node.op == "Pointwise" else 1
    for operand in range(len(node.inputs) - node.own + first - 1, first - 1, -1):
        number = _number(node, operand, operand - first)
        if number is None or (node.op == "Pointwise" and len(node.inputs) == 1):
            continue
        assert node.epilogue is not None
        node.epilogue = with_literal(node.epilogue, operand, number)
        place = node.own + operand - first
        graph.rewire(node, node.inputs[:place] + node.inputs[place + 1 :])
        found += 1
    return found


def _number(node: Node, operand: int, place: int) -> float | None:
    """The number that an operand is, where each of its readers takes a literal of its type."""
    array = node.constant(node.own + place)
    number = uniform(array) if array is not None and array.size > 1 else None
    if array is None or number is None or node.epilogue is None:
        return None
    steps = readers(node.epilogue, operand)
    allowed = all(_takes(step.function, step.dtype, array.dtype) for step in steps)
    return number if allowed and steps else None


def _takes(function: str, result: str, dtype: np.dtype) -> bool:
    """A literal is written in the type of the step's result, and in a comparison as the number that it is."""
    if function == "cast":
        return False
    if result == "bool":
        return True
    return (result in _FLOATS and dtype.name in _FLOATS) or result == dtype.name
