"""Small ONNX models for tests, with seeded random weights. All take float32 and have a dynamic batch "N"."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17


def value(
    name: str, shape: Sequence[int | str | None] | None, dtype: int = TensorProto.FLOAT
) -> onnx.ValueInfoProto:
    """A graph input or output."""
    return helper.make_tensor_value_info(name, dtype, shape)


def weight(name: str, array: np.ndarray) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(array, order="C"), name)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    weights: Sequence[onnx.TensorProto] = (),
    opset: int = OPSET,
) -> onnx.ModelProto:
    """A model of those nodes at the default domain's ``opset``, with an IR version that old runtimes read."""
    graph = helper.make_graph(list(nodes), "test", list(inputs), list(outputs), initializer=list(weights))
    imports = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8, producer_name="wavefit-tests")


def conv_net(seed: int = 0, batch: int | str = "N", size: int = 8, classes: int = 10) -> onnx.ModelProto:
    """image [N,3,size,size] -> Conv 3x3 (8), Relu, GlobalAveragePool, Flatten, Gemm -> logits [N,classes]."""
    random = np.random.default_rng(seed)
    weights = [
        weight("conv_w", random.normal(0, 0.3, (8, 3, 3, 3)).astype(np.float32)),
        weight("conv_b", random.normal(0, 0.1, 8).astype(np.float32)),
        weight("fc_w", random.normal(0, 0.5, (classes, 8)).astype(np.float32)),
        weight("fc_b", random.normal(0, 0.1, classes).astype(np.float32)),
    ]
    nodes = [
        helper.make_node("Conv", ["image", "conv_w", "conv_b"], ["c"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], "relu"),
        helper.make_node("GlobalAveragePool", ["r"], ["p"], "pool"),
        helper.make_node("Flatten", ["p"], ["f"], "flatten"),
        helper.make_node("Gemm", ["f", "fc_w", "fc_b"], ["logits"], "fc", transB=1),
    ]
    return model(
        nodes, [value("image", [batch, 3, size, size])], [value("logits", [batch, classes])], weights
    )


def mlp(seed: int = 0, batch: int | str | None = "N", widths: Sequence[int] = (16, 32, 4)) -> onnx.ModelProto:
    """x [N,widths[0]] -> MatMul, Add, Relu for each layer (the last has no Relu) -> y [N,widths[-1]]."""
    random = np.random.default_rng(seed)
    nodes, weights, current = [], [], "x"
    for layer, (rows, columns) in enumerate(itertools.pairwise(widths)):
        last = layer == len(widths) - 2
        weights.append(weight(f"w{layer}", random.normal(0, rows**-0.5, (rows, columns)).astype(np.float32)))
        weights.append(weight(f"b{layer}", random.normal(0, 0.1, columns).astype(np.float32)))
        nodes.append(helper.make_node("MatMul", [current, f"w{layer}"], [f"m{layer}"], f"matmul{layer}"))
        nodes.append(
            helper.make_node("Add", [f"m{layer}", f"b{layer}"], ["y" if last else f"a{layer}"], f"add{layer}")
        )
        if not last:
            nodes.append(helper.make_node("Relu", [f"a{layer}"], [f"r{layer}"], f"relu{layer}"))
        current = f"r{layer}"
    return model(nodes, [value("x", [batch, widths[0]])], [value("y", [batch, widths[-1]])], weights)


def save(proto: onnx.ModelProto, path: Path) -> Path:
    """Writes it and returns the path."""
    onnx.save(proto, str(path))
    return path


def save_external(proto: onnx.ModelProto, path: Path, data: str = "weights.data") -> Path:
    """Writes it with every weight in one external file ``data`` beside it. ``proto`` is changed by that."""
    onnx.save(proto, str(path), save_as_external_data=True, location=data, size_threshold=0)
    return path
