"""Where a graph froze its batch, node by node, and how each kind of node is reopened.

The batch is followed through the graph by size: shapes are inferred with a large prime in its place, so every
dimension that the prime divides carries the batch, times the quotient. A node is frozen where a constant in it still
holds the old batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PRIME = 1_000_003  # no dimension of a real model is a multiple of it, and its products with real shapes fit 63 bits
_SMALL = 4096  # elements: constants above are weights, of which shape inference needs the shape only

Shape = tuple[int, ...]


@dataclass
class Graph:
    """An ONNX model while it is being reopened.

    Attributes:
        model: the onnx.ModelProto, changed in place.
        batch: the batch that it is frozen at.
        source: an input whose first dimension is the batch.
        shapes: of every tensor, at a batch of PRIME.
    """

    model: Any
    batch: int
    source: str
    shapes: Mapping[str, Shape]

    def constant(self, name: str) -> Any:
        """The array behind a name; None where it is computed."""
        from onnx import numpy_helper

        for tensor in self.model.graph.initializer:
            if tensor.name == name:
                return numpy_helper.to_array(tensor)
        for node in self.model.graph.node:
            if node.op_type == "Constant" and node.output[0] == name and node.attribute[0].name == "value":
                return numpy_helper.to_array(node.attribute[0].t)
        return None

    def add_constant(self, like: str, values: Any, dtype: str = "int64") -> str:
        """A new initializer of a name of its own."""
        import numpy as np
        from onnx import numpy_helper

        name = f"{like}_reopened_{len(self.model.graph.initializer)}"
        self.model.graph.initializer.append(numpy_helper.from_array(np.asarray(values, dtype=dtype), name))
        return name

    def insert(self, before: Any, *nodes: Any) -> None:
        """Puts nodes right before another one."""
        place = next(i for i, node in enumerate(self.model.graph.node) if node.output[0] == before.output[0])
        for offset, node in enumerate(nodes):
            self.model.graph.node.insert(place + offset, node)

    def sizes(self, before: Any, shape: Sequence[int], axis: int, times: int = 1) -> str:
        """A computed shape: ``shape`` with batch * ``times`` on ``axis``, made right before a node."""
        from onnx import helper

        stem = f"{before.output[0]}_batch"
        zero, one = self.add_constant(stem, [0]), self.add_constant(stem, [1])
        nodes = [
            helper.make_node("Shape", [self.source], [f"{stem}_shape"], name=f"{stem}_shape"),
            helper.make_node("Slice", [f"{stem}_shape", zero, one], [f"{stem}_size"], name=f"{stem}_size"),
        ]
        size = f"{stem}_size"
        if times != 1:
            factor = self.add_constant(stem, [times])
            nodes.append(helper.make_node("Mul", [size, factor], [f"{stem}_times"], name=f"{stem}_times"))
            size = f"{stem}_times"
        parts = [self.add_constant(stem, shape[:axis])] if axis else []
        parts.append(size)
        if shape[axis + 1 :]:
            parts.append(self.add_constant(stem, shape[axis + 1 :]))
        nodes.append(helper.make_node("Concat", parts, [f"{stem}_all"], name=f"{stem}_all", axis=0))
        self.insert(before, *nodes)
        return f"{stem}_all"


def label(node: Any) -> str:
    """How a node is called in messages: 'Reshape "/view"'."""
    return f'{node.op_type} "{node.name or node.output[0]}"'


def carries(shape: Shape | None) -> int | None:
    """The first axis that carries the batch."""
    return next((axis for axis, dim in enumerate(shape or ()) if dim and dim % PRIME == 0), None)


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
    new = _reopened_sizes(given, axis, old, frozen, graph.batch, keeps)
    if new is None or new == old:
        return None
    node.input[1] = graph.add_constant(f"{node.output[0]}_shape", new)
    return f"{label(node)}: shape {old} became {new}"


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
    given: Shape, axis: int, old: Sequence[int], frozen: Sequence[int], batch: int, keeps: bool
) -> list[int] | None:
    place = _place(given, axis, frozen, batch)
    if place is None:
        return None
    if old[place] == -1 or (keeps and old[place] == 0 and place < len(given) and given[place] % PRIME == 0):
        return list(old)
    if keeps and place < len(given) and given[place] == PRIME and frozen[place] == batch:
        return [0 if index == place else size for index, size in enumerate(old)]
    return [-1 if index == place else size for index, size in enumerate(frozen)]


def _place(given: Shape, axis: int, frozen: Sequence[int], batch: int) -> int | None:
    """The output axis that the batch falls on. A reshape keeps the order of elements, so that as many elements must
    lie before the batch as before; inside a merged dimension the batch may come first or last."""
    before = math.prod(given[:axis])
    inner = given[axis] // PRIME
    for outside in dict.fromkeys((before, before * inner)):
        ahead = 1
        for index, size in enumerate(frozen):
            if ahead == outside and size == batch:
                return index
            ahead *= size
    ahead = 1
    for index, size in enumerate(frozen):
        if before % ahead == 0 and (ahead * size) % (before * batch) == 0:
            return index
        ahead *= size
    return None


def expand(graph: Graph, node: Any) -> str | None:
    """A target that holds the old batch: kept where the input has the batch, computed where it has not."""
    constant = graph.constant(node.input[1])
    given = graph.shapes.get(node.input[0])
    if constant is None or given is None or not constant.size:
        return None
    old = [int(size) for size in constant.ravel()]
    axis = carries(given)
    if axis is not None:
        place = axis + len(old) - len(given)
        if place < 0 or old[place] == 1:
            return None
        new = [1 if index == place else size for index, size in enumerate(old)]
        node.input[1] = graph.add_constant(f"{node.output[0]}_shape", new)
        return f"{label(node)}: target {old} became {new}"
    if graph.batch == 1 or old[0] != graph.batch or (len(given) == len(old) and given[0] != 1):
        return None
    node.input[1] = graph.sizes(node, old, 0)
    return f"{label(node)}: target {old} follows the batch"


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
    shapes = [graph.shapes.get(name) for name in node.input]
    rank = max((len(shape) for shape in shapes if shape), default=0)
    for shape in shapes:
        axis = carries(shape)
        if shape is None or axis is None:
            continue
        from_end = axis - len(shape)
        for index, name in enumerate(node.input):
            values = graph.constant(name)
            if values is None or graph.batch == 1 or values.ndim < -from_end or rank < values.ndim:
                continue
            if values.shape[from_end] == graph.batch:
                row = _one_row(graph, node, name, values.ndim + from_end)
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


def infer(model: Any, batch: int, batched: Sequence[bool]) -> dict[str, Shape]:
    """Shapes of all tensors that can be inferred, at a batch; symbolic sizes beside it become other primes."""
    import onnx

    light = onnx.ModelProto()
    light.CopyFrom(_without_weights(model))
    others: dict[str, int] = {}
    for entry, has_batch in zip(light.graph.input, batched, strict=False):
        for axis, dim in enumerate(entry.type.tensor_type.shape.dim):
            if axis == 0 and has_batch:
                dim.dim_value = batch
            elif not dim.HasField("dim_value"):
                dim.dim_value = others.setdefault(
                    dim.dim_param or f"{entry.name}:{axis}", 1009 + 10 * len(others)
                )
    shapes: dict[str, Shape] = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    inferred = onnx.shape_inference.infer_shapes(light, data_prop=True).graph
    for entry in (*inferred.value_info, *inferred.input, *inferred.output):
        dims = entry.type.tensor_type.shape.dim
        if entry.type.tensor_type.HasField("shape") and all(dim.HasField("dim_value") for dim in dims):
            shapes[entry.name] = tuple(dim.dim_value for dim in dims)
    return shapes


def _without_weights(model: Any) -> Any:
    """The model with weights as inputs of their shape, and nothing inferred before."""
    import onnx
    from onnx import helper

    light = onnx.ModelProto(ir_version=model.ir_version)
    light.opset_import.extend(model.opset_import)
    light.functions.extend(model.functions)
    light.graph.name = model.graph.name
    light.graph.node.extend(model.graph.node)
    stored = {tensor.name for tensor in model.graph.initializer}
    light.graph.input.extend(entry for entry in model.graph.input if entry.name not in stored)
    for tensor in model.graph.initializer:
        if math.prod(tensor.dims) <= _SMALL and not tensor.external_data:
            light.graph.initializer.append(tensor)
        else:
            light.graph.input.append(
                helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            )
    for entry in model.graph.output:
        new = light.graph.output.add()
        new.CopyFrom(entry)
        new.type.tensor_type.ClearField("shape")
    return light
