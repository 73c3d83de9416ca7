"""Weights of a graph scaled and centred on data, so that answers depend on what is asked.

Random weights make a deep net answer the same whatever it is shown: what all inputs have in common grows from layer to
layer, until the rest is lost beside it. Here every layer's channels are brought to a mean of 0 over a few inputs, as
batch normalisation does in training (Mishkin and Matas, "All you need is a good init", 2015, do it by weights alone).
"""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper

_LINEAR = ("Conv", "Gemm", "MatMul")
_SPREAD = 2.0  # of the scores that a softmax at the end takes


def balance(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> onnx.ModelProto:
    """Batch normalisations get the statistics of ``feeds``, biased layers a mean of 0 and a deviation of 1.

    Args:
        model: changed in place; its weights are initializers.
        feeds: a few different items.
    """
    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    values = dict(feeds)
    last = [node for node in model.graph.node if node.op_type in _LINEAR][-1]
    for node in model.graph.node:
        if node.op_type == "BatchNormalization":
            mean, deviation = _statistics(values[node.input[0]])
            _put(stored, node.input[3], mean)
            _put(stored, node.input[4], np.full_like(mean, deviation**2))
        made = _run(model, node, values, stored)
        if node.op_type in _LINEAR and len(node.input) > 2 and node.input[1] in stored:
            mean, deviation = _statistics(made[node.output[0]])
            factor = (_SPREAD if node is last else 1.0) / deviation
            _put(stored, node.input[1], _get(stored, node.input[1]) * factor)
            _put(stored, node.input[2], (_get(stored, node.input[2]) - mean) * factor)
            made = _run(model, node, values, stored)
        values.update(made)
    return model


def _statistics(array: np.ndarray) -> tuple[np.ndarray, float]:
    """Each channel's mean, and the deviation of all: a single one may be dead."""
    axes = (0, *range(2, array.ndim))
    exact = array.astype(np.float64)
    return exact.mean(axes), float(np.sqrt(exact.var(axes).mean()))


def _get(stored: dict[str, onnx.TensorProto], name: str) -> np.ndarray:
    return numpy_helper.to_array(stored[name])


def _put(stored: dict[str, onnx.TensorProto], name: str, array: np.ndarray) -> None:
    stored[name].CopyFrom(numpy_helper.from_array(array.astype(np.float32), name))


def _run(
    model: onnx.ModelProto,
    node: onnx.NodeProto,
    values: dict[str, np.ndarray],
    stored: dict[str, onnx.TensorProto],
) -> dict[str, np.ndarray]:
    """What one node makes."""
    given = {name: values[name] for name in node.input if name in values}
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in given.items()
    ]
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
    weights = [stored[name] for name in dict.fromkeys(node.input) if name in stored]
    graph = helper.make_graph([node], "one", inputs, outputs, weights)
    single = helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    session = ort.InferenceSession(single.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [output.name for output in outputs]
    return dict(zip(names, session.run(names, given), strict=True))
