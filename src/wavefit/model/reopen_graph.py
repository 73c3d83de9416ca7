"""A graph while it is being reopened, and where the batch is in it.

The batch is followed through the graph by size: shapes are inferred with a large prime in its place, so every
dimension that the prime divides carries the batch, times the quotient.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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
        batched: for each input, whether its first dimension is the batch.
        shapes: of every tensor, at a batch of PRIME.
    """

    model: Any
    batch: int
    batched: Sequence[bool]
    shapes: Mapping[str, Shape]

    @property
    def source(self) -> str:
        """An input whose first dimension is the batch."""
        entries = zip(self.model.graph.input, self.batched, strict=True)
        return next(str(entry.name) for entry, flag in entries if flag)

    def constant(self, name: str) -> Any:
        """The array of a stored tensor; None where the name is computed."""
        from onnx import numpy_helper

        found = next((tensor for tensor in self.model.graph.initializer if tensor.name == name), None)
        return None if found is None else numpy_helper.to_array(found)

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
    try:
        inferred = onnx.shape_inference.infer_shapes(light, data_prop=True).graph
    except (onnx.shape_inference.InferenceError, ValueError):  # nothing is known then, and no rule will fit
        return shapes
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
