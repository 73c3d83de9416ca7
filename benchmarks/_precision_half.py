"""A typed fp16 file as fp32 with every half value rounded: ONNX Runtime's CPU would run it in fp32 without rounding.

Written apart from wavefit's own emulation, so that one does not judge the other. Every value that the file types as
half is rounded to half where it is made; what happens inside one operator stays fp32, as on hardware with fp32 sums.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnx_ir
from onnx import TensorProto, helper, numpy_helper

from wavefit.precision import graph
from wavefit.precision.half import emulate

_HALF, _FLOAT = TensorProto.FLOAT16, TensorProto.FLOAT
_WIDE = "__wide"


def lowered(path: Path) -> onnx.ModelProto:
    """The model with fp32 in place of half, and a Cast to half and back behind every value that was half."""
    model = _typed(path)
    _lower(model.graph)
    return model


def _typed(path: Path) -> onnx.ModelProto:
    """With the type of every value, which takes sorted nodes: ONNX Runtime's converter leaves them unsorted."""
    model = onnx_ir.load(path)
    model.graph.sort()
    return onnx.shape_inference.infer_shapes(onnx_ir.to_proto(model), data_prop=True)


def strict(path: Path) -> onnx.ModelProto:
    """The same, and NaN where a sum inside an operator (a LayerNormalization's of squares) would overflow half.

    By wavefit's own check, for what is not among a graph's values no other emulation shows: see precision/overflow.py.
    """
    with tempfile.TemporaryDirectory() as folder:
        onnx.save(lowered(path), Path(folder) / "lowered.onnx")
        wide = graph.load(Path(folder) / "lowered.onnx")
        halves = [name for name, node in graph.nodes(wide).items() if _is_wide(node.outputs[0].name)]
        return onnx_ir.to_proto(emulate.emulated(wide, dict.fromkeys(halves, "fp16")))


def _is_wide(name: str | None) -> bool:
    return name is not None and name.endswith(_WIDE)


def _lower(graph: onnx.GraphProto) -> None:
    known = (*graph.value_info, *graph.output, *graph.input)
    halves = {value.name for value in known if value.type.tensor_type.elem_type == _HALF}
    stored = {tensor.name for tensor in graph.initializer}
    for index, tensor in enumerate(graph.initializer):
        if tensor.data_type == _HALF:
            graph.initializer[index].CopyFrom(_widened(tensor))
    rounding = [_rounded(name) for name in halves & {value.name for value in graph.input} - stored]
    nodes = [node for pair in rounding for node in pair]
    renamed = {pair[0].input[0]: pair[1].output[0] for pair in rounding}
    for node in graph.node:
        _lower_attributes(node)
        for index, name in enumerate(node.input):
            node.input[index] = renamed.get(name, name)
        nodes.append(node)
        for index, name in enumerate(node.output):
            if name in halves:
                node.output[index] = f"{name}{_WIDE}"
                to_half = helper.make_node("Cast", [f"{name}{_WIDE}"], [f"{name}__half"], to=_HALF)
                nodes += [to_half, helper.make_node("Cast", [f"{name}__half"], [name], to=_FLOAT)]
    graph.ClearField("node")
    graph.node.extend(nodes)
    graph.ClearField("value_info")
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type == _HALF:
            value.type.tensor_type.elem_type = _FLOAT


def _rounded(name: str) -> tuple[onnx.NodeProto, onnx.NodeProto]:
    to_half = helper.make_node("Cast", [name], [f"{name}__half"], to=_HALF)
    return to_half, helper.make_node("Cast", [f"{name}__half"], [f"{name}__rounded"], to=_FLOAT)


def _lower_attributes(node: onnx.NodeProto) -> None:
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            _lower(attribute.g)
        elif attribute.type == onnx.AttributeProto.TENSOR and attribute.t.data_type == _HALF:
            attribute.t.CopyFrom(_widened(attribute.t))
        elif node.op_type == "Cast" and attribute.name == "to" and attribute.i == _HALF:
            attribute.i = _FLOAT


def _widened(tensor: onnx.TensorProto) -> onnx.TensorProto:
    return numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float32), tensor.name)


def share(path: Path) -> float:
    """Of the nodes that make a float, Casts left out: the part that makes a half."""
    graph = _typed(path).graph
    types = {
        value.name: value.type.tensor_type.elem_type
        for value in (*graph.value_info, *graph.output, *graph.input)
    }
    made = [
        {types.get(name) for name in node.output}
        for node in graph.node
        if node.op_type not in ("Cast", "Constant", "QuantizeLinear", "DequantizeLinear")
    ]
    floats = [each for each in made if each & {_HALF, _FLOAT}]
    return sum(_HALF in each for each in floats) / max(1, len(floats))
