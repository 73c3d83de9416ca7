"""How each kind of node that froze its batch is reopened: a rule for a node, which changes it and says how, or None.

A node is frozen where a constant in it still holds the old batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from wavefit.model.reopen_graph import PRIME, Graph, Shape, carries, infer, label


def reshape(graph: Graph, node: Any) -> str | None:
    """A constant shape that holds the old batch: 0 (keep the size) or -1 (the rest) takes its place."""
    given = graph.shapes.get(node.input[0])
    constant = graph.constant(node.input[1])
    axis = carries(given)
    if constant is None or given is None or axis is None:
        return None
    old = [int(size) for size in constant.ravel()]
    keeps = _attribute(node, "allowzero", 0) == 0
    frozen = _frozen_sizes(given, old, graph.batch, keeps)
    if frozen is None:
        return None
    places = _places(given, axis, frozen, graph.batch)
    shapes = [_reopened_sizes(given, place, old, frozen, graph.batch, keeps) for place in places]
    new = _likeliest(graph, node, shapes)
    if new is None or new == old:
        return None
    node.input[1] = graph.add_constant(f"{node.output[0]}_shape", new)
    return f"{label(node)}: shape {old} became {new}"


def _likeliest(graph: Graph, node: Any, shapes: Sequence[list[int]]) -> list[int] | None:
    """At a batch of 1 a shape may be read in several ways: the one with which the batch gets furthest."""
    if len(shapes) < 2:
        return shapes[0] if shapes else None
    kept, scores = node.input[1], []
    for shape in shapes:
        node.input[1] = graph.add_constant("trial", shape)
        known = infer(graph.model, PRIME, graph.batched)
        scores.append(sum(carries(found) is not None for found in known.values()))
        del graph.model.graph.initializer[-1]
    node.input[1] = kept
    return shapes[scores.index(max(scores))]


def _frozen_sizes(given: Shape, old: Sequence[int], batch: int, keeps: bool) -> list[int] | None:
    """The output's sizes at the old batch, with -1 and 0 resolved."""
    total = math.prod(given) // PRIME * batch
    sizes = [
        (given[axis] // PRIME * batch if given[axis] % PRIME == 0 else given[axis])
        if not size and keeps
        else size
        for axis, size in enumerate(old)
        if size or not keeps or axis < len(given)
    ]
    known = math.prod(size for size in sizes if size != -1)
    if len(sizes) != len(old) or not known or total % known:
        return None
    sizes = [total // known if size == -1 else size for size in sizes]
    return sizes if math.prod(sizes) == total else None


def _reopened_sizes(
    given: Shape, place: int, old: Sequence[int], frozen: Sequence[int], batch: int, keeps: bool
) -> list[int]:
    if old[place] == -1 or (keeps and old[place] == 0 and place < len(given) and given[place] % PRIME == 0):
        return list(old)
    if keeps and place < len(given) and given[place] == PRIME and frozen[place] == batch:
        return [0 if index == place else size for index, size in enumerate(old)]
    return [-1 if index == place else size for index, size in enumerate(frozen)]


def _places(given: Shape, axis: int, frozen: Sequence[int], batch: int) -> list[int]:
    """Output axes that the batch may fall on, likeliest first; one only where there is no doubt.

    A reshape keeps the order of elements, so that as many must lie before the batch as before it. Inside a merged
    dimension the batch may come first or last.
    """
    before = math.prod(given[:axis])
    inner = given[axis] // PRIME
    ahead = [math.prod(frozen[:index]) for index in range(len(frozen))]
    for outside in (before, before * inner):
        for index, size in enumerate(frozen):
            if ahead[index] == outside and size == batch:
                return [index]
    fitting = [
        index
        for index, size in enumerate(frozen)
        if before % ahead[index] == 0 and (ahead[index] * size) % (before * batch) == 0
    ]
    return sorted(fitting, key=lambda index: ahead[index] != before)


def expand(graph: Graph, node: Any) -> str | None:
    """A target that holds the old batch, or data that were expanded to it before."""
    target = graph.constant(node.input[1])
    given = graph.shapes.get(node.input[0])
    axis = carries(given)
    if given is None:
        return None
    if axis is None:
        return _expand_again(graph, node, given) if target is None else None
    place = axis + (0 if target is None else target.size) - len(given)
    if target is None or place < 0 or target[place] == 1:
        return None
    old = [int(size) for size in target]
    new = [1 if index == place else size for index, size in enumerate(old)]
    node.input[1] = graph.add_constant(f"{node.output[0]}_shape", new)
    return f"{label(node)}: target {old} became {new}"


def _expand_again(graph: Graph, node: Any, given: Shape) -> str | None:
    """Equal rows for the old batch, expanded to a computed shape: one row does."""
    axis = next((axis for axis, size in enumerate(given) if size == graph.batch != 1), None)
    row = _one_row(graph, node, node.input[0], axis) if axis is not None else None
    if row is None:
        return None
    node.input[0] = row
    return f"{label(node)}: its {graph.batch} equal rows became one row"


def concat(graph: Graph, node: Any) -> str | None:
    """A constant part that was expanded to the old batch (a class token): expanded to the batch at run time."""
    from onnx import helper

    shapes = [graph.shapes.get(name) for name in node.input]
    along = _attribute(node, "axis", 0)
    axis = next((carries(shape) for shape in shapes if carries(shape) is not None), None)
    if axis is None or any(shape is None for shape in shapes) or axis == along % len(shapes[0] or ()):
        return None
    changed: list[str] = []
    for index, (name, shape) in enumerate(zip(list(node.input), shapes, strict=True)):
        assert shape is not None
        if carries(shape) is not None or shape[axis] != graph.batch:
            continue
        row = _one_row(graph, node, name, axis)
        if row is None:
            return None
        target = graph.sizes(node, shape, axis) if not changed else changed[0]
        if changed and graph.shapes.get(name) != shape:
            return None
        node.input[index] = f"{node.output[0]}_part_{index}"
        graph.insert(
            node, helper.make_node("Expand", [row, target], [node.input[index]], name=node.input[index])
        )
        changed.append(target)
    return f"{label(node)}: its constant part follows the batch" if changed else None


def _one_row(graph: Graph, node: Any, name: str, axis: int) -> str | None:
    """The tensor with a size of 1 on ``axis``; None where its rows differ."""
    if graph.batch == 1:
        return name
    values = graph.constant(name)
    if values is None:
        return None
    first = values.take([0], axis=axis)
    if not (values == first).all():
        return None
    return graph.add_constant(f"{node.output[0]}_row", first, values.dtype.name)


def broadcast(graph: Graph, node: Any) -> str | None:
    """A constant operand that repeats itself over the old batch: one row of it broadcasts."""
    if graph.batch == 1:
        return None
    shapes = [graph.shapes.get(name) or () for name in node.input]
    from_end = next((axis - len(shape) for shape in shapes if (axis := carries(shape)) is not None), None)
    if from_end is None:
        return None
    for index, (name, shape) in enumerate(zip(list(node.input), shapes, strict=True)):
        if len(shape) < -from_end or shape[from_end] != graph.batch:
            continue
        row = _one_row(graph, node, name, len(shape) + from_end)
        if row is None:
            return None
        node.input[index] = row
        return f"{label(node)}: its constant operand of {graph.batch} equal rows became one row"
    return None


def resize(graph: Graph, node: Any) -> str | None:
    """Target sizes that hold the old batch are computed."""
    given = graph.shapes.get(node.input[0])
    values = graph.constant(node.input[3]) if len(node.input) > 3 and node.input[3] else None
    axis = carries(given)
    if (
        given is None
        or axis is None
        or values is None
        or len(values) != len(given)
        or int(values[axis]) != graph.batch
    ):
        return None
    node.input[3] = graph.sizes(node, [int(size) for size in values], axis)
    return f"{label(node)}: its sizes follow the batch"


def recurrent(graph: Graph, node: Any) -> str | None:
    """Initial states of zeros at the old batch: left out, which means zeros."""
    dropped = []
    for index in (5, 6):
        values = graph.constant(node.input[index]) if len(node.input) > index and node.input[index] else None
        if values is not None and not values.any():
            node.input[index] = ""
            dropped.append(index)
    return f"{label(node)}: its initial state of zeros is left out" if dropped else None


_ELEMENTWISE = (
    *("Add", "Sub", "Mul", "Div", "Pow", "Min", "Max", "Where", "And", "Or", "Xor"),
    *("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"),
)
RULES: dict[str, Callable[[Graph, Any], str | None]] = {
    "Reshape": reshape,
    "Expand": expand,
    "Concat": concat,
    "Resize": resize,
    **dict.fromkeys(("LSTM", "GRU", "RNN"), recurrent),
    **dict.fromkeys(_ELEMENTWISE, broadcast),
}


def _attribute(node: Any, name: str, default: int) -> int:
    return next((int(item.i) for item in node.attribute if item.name == name), default)
