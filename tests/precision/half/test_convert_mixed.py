"""Half beside int8: graphs with QuantizeLinear/DequantizeLinear pairs whose other nodes become half."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from fakes import models
from onnx import helper
from precision.quantised import int8

from wavefit.model.samples import Samples
from wavefit.precision import graph
from wavefit.precision.half.convert import convert
from wavefit.precision.half.emulate import emulated
from wavefit.precision.int8 import opset
from wavefit.schema import Precision

QUANTISED = ("conv0", "conv1")
HALF = ("gelu", "pool", "flatten", "fc", "softmax")


def net() -> onnx.ModelProto:
    """image [N,3,8,8] -> Conv, Relu, Conv, Erf, GlobalAveragePool, Flatten, Gemm, Softmax -> y [N,5]."""
    pick = np.random.default_rng(0)
    shapes = {"w0": (8, 3, 3, 3), "b0": (8,), "w1": (8, 8, 3, 3), "b1": (8,), "w2": (5, 8), "b2": (5,)}
    weights = [models.weight(n, pick.normal(0, 0.3, s).astype(np.float32)) for n, s in shapes.items()]
    nodes = [
        helper.make_node("Conv", ["image", "w0", "b0"], ["c0"], "conv0", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c0"], ["r0"], "relu"),
        helper.make_node("Conv", ["r0", "w1", "b1"], ["c1"], "conv1", pads=[1, 1, 1, 1]),
        helper.make_node("Erf", ["c1"], ["g"], "gelu"),
        helper.make_node("GlobalAveragePool", ["g"], ["p"], "pool"),
        helper.make_node("Flatten", ["p"], ["f"], "flatten"),
        helper.make_node("Gemm", ["f", "w2", "b2"], ["l"], "fc", transB=1),
        helper.make_node("Softmax", ["l"], ["y"], "softmax"),
    ]
    return models.model(
        nodes, [models.value("image", ["N", 3, 8, 8])], [models.value("y", ["N", 5])], weights
    )


@pytest.fixture
def data() -> dict[str, np.ndarray]:
    return {"image": np.random.default_rng(1).normal(0, 1, (16, 3, 8, 8)).astype(np.float32)}


@pytest.fixture
def quantised(tmp_path: Path, data: dict[str, np.ndarray]) -> ir.Model:
    model = graph.load(models.save(net(), tmp_path / "m.onnx"))
    return int8(model, Samples(data, None, "test"), QUANTISED)


def fused(path: Path, tmp_path: Path) -> list[str]:
    """Operators of the graph as ONNX Runtime runs it."""
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "fused.onnx")
    options.log_severity_level = 4
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return [node.op_type for node in onnx.load(tmp_path / "fused.onnx").graph.node]


@pytest.mark.parametrize("version", [17, 21, 23])
def test_half_joins_int8_and_leaves_it_fused(
    version: int, quantised: ir.Model, data: dict[str, np.ndarray], tmp_path: Path
) -> None:
    model = opset.raised(quantised, version)
    before = graph.Runner(model)(data)["y"]
    graph.save(model, tmp_path / "int8.onnx")
    assert fused(tmp_path / "int8.onnx", tmp_path).count("QLinearConv") == 2
    converted = convert(model, dict.fromkeys(HALF, "fp16"))
    graph.save(converted, tmp_path / "mixed.onnx")
    assert fused(tmp_path / "mixed.onnx", tmp_path).count("QLinearConv") == 2
    assert (
        sum(node.op_type == "Cast" for node in converted.graph) == 2
    )  # after the last integers, and at the end
    np.testing.assert_allclose(graph.Runner(converted)(data)["y"], before, atol=1e-3)


@pytest.mark.parametrize("version", [17, 21, 23])
def test_half_asked_for_everywhere_rounds_no_scale(
    version: int, quantised: ir.Model, data: dict[str, np.ndarray], tmp_path: Path
) -> None:
    """A bias's scale is the product of two others, and soon where half has but a few bits."""
    model = opset.raised(quantised, version)
    scales = {
        str(node.inputs[1].name): graph.constant(node.inputs[1])
        for node in model.graph
        if node.op_type in ("QuantizeLinear", "DequantizeLinear")
    }
    assignment: dict[str, Precision] = dict.fromkeys(graph.nodes(model), "fp16")
    converted = convert(model, assignment)
    graph.save(converted, tmp_path / "half.onnx")
    for node in converted.graph:
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            np.testing.assert_array_equal(graph.constant(node.inputs[1]), scales[str(node.inputs[1].name)])
    before = graph.Runner(model)(data)["y"]
    for made in (converted, emulated(model, assignment)):
        np.testing.assert_allclose(graph.Runner(made)(data)["y"], before, atol=5e-3)
