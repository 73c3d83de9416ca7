"""What ONNX Runtime's CPU provider makes of the pairs: int8 kernels, with the answers that the pairs say."""

from __future__ import annotations

import collections

import numpy as np
import onnx
import onnxruntime
import pytest
from fakes import models
from precision.int8_graphs import FLOAT, GRAPHS, attention

from wavefit.device.probe import probe
from wavefit.model.samples import Samples
from wavefit.precision import graph
from wavefit.precision.int8.calibrate import parameters
from wavefit.precision.int8.histogram import collect
from wavefit.precision.int8.qdq import activation_values, quantisable, quantize
from wavefit.precision.int8.targets import Target, target

_FLOAT_PRODUCTS = {"Conv", "FusedConv", "Gemm", "FusedGemm", "MatMul", "FusedMatMul"}


def _here() -> Target:
    """The target of this machine's CPU: 7 bits where 8 would saturate."""
    found = target(probe()[0], "ort_cpu")
    assert isinstance(found, Target)
    return found


def _quantized(proto, tmp_path, seed=3, kept=None):
    model = graph.load(models.save(proto, tmp_path / "model.onnx"))
    name = model.graph.inputs[0].name
    shape = [size if isinstance(size, int) else 6 for size in model.graph.inputs[0].shape]
    inputs = {name: np.random.default_rng(seed).normal(0, 0.5, shape).astype(np.float32)}
    nodes = frozenset(quantisable(model, _here())) - {kept}
    found = collect(model, Samples(inputs, None, "test"), activation_values(model, nodes), lambda _: None)
    return model, quantize(model, nodes, parameters(found, "minmax", _here()), _here()), inputs


def _assert_alike(ran: np.ndarray, emulated: np.ndarray) -> None:
    """Up to a step where a float lies between two integers, which few do."""
    reach = np.abs(emulated).max()
    assert np.abs(ran - emulated).max() < reach / 127
    assert np.mean(np.abs(ran - emulated) > 1e-4 * reach) < 0.01


def _optimised(quantized, tmp_path):
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    options.log_severity_level = 4
    graph.save(quantized, tmp_path / "int8.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "int8.onnx"), options, ["CPUExecutionProvider"])
    nodes = onnx.load(options.optimized_model_filepath).graph.node
    return session, collections.Counter(node.op_type for node in nodes)


@pytest.mark.parametrize("name", GRAPHS)
def test_every_int8_node_gets_an_int8_kernel_with_the_same_answers(name: str, tmp_path) -> None:
    proto, kernels = GRAPHS[name][0](), GRAPHS[name][1]
    model, quantized, inputs = _quantized(proto, tmp_path)
    session, found = _optimised(quantized, tmp_path)
    assert {kernel: found[kernel] for kernel in kernels} == kernels
    assert not _FLOAT_PRODUCTS & set(found)
    before = graph.Runner(model)(inputs)["y"]
    emulated = graph.Runner(quantized)(inputs)["y"]
    ran = session.run(None, inputs)[0]
    reach = np.abs(before).max()
    assert np.abs(emulated - before).max() < 0.06 * reach
    steps = 3 if "QLinearSoftmax" in kernels else 1  # its exponential is a table
    assert np.abs(ran - emulated).max() <= steps * 1.01 * reach / 127


@pytest.mark.parametrize("name", FLOAT)
def test_what_has_no_kernel_stays_float(name: str, tmp_path) -> None:
    model, quantized, inputs = _quantized(FLOAT[name](), tmp_path)
    assert quantisable(model, _here()) == ("first", "last")
    session, found = _optimised(quantized, tmp_path)
    assert found["QLinearConv"] == 2
    _assert_alike(session.run(None, inputs)[0], graph.Runner(quantized)(inputs)["y"])


@pytest.mark.parametrize("name", ["depthwise", "grouped and dilated", "gemm of three"])
def test_a_node_kept_float_between_int8_nodes_stays_float(name: str, tmp_path) -> None:
    """ONNX Runtime would quantize its weights by itself, with one scale for all."""
    proto, kept = (_three(), "second") if name == "gemm of three" else (GRAPHS[name][0](), "node")
    _, quantized, inputs = _quantized(proto, tmp_path, kept=kept)
    session, found = _optimised(quantized, tmp_path)
    assert found["QLinearConv"] + found["QGemm"] == 2
    assert sum(found[each] for each in _FLOAT_PRODUCTS) == 1
    optimised = onnx.load(tmp_path / "optimised.onnx").graph
    (held,) = [node for node in optimised.node if node.op_type in _FLOAT_PRODUCTS]
    types = {tensor.name: tensor.data_type for tensor in optimised.initializer}
    assert types[held.input[1]] == onnx.TensorProto.FLOAT
    _assert_alike(session.run(None, inputs)[0], graph.Runner(quantized)(inputs)["y"])


def _three() -> onnx.ModelProto:
    draw = np.random.default_rng(0).normal
    nodes = [
        onnx.helper.make_node("Gemm", ["x", "w0"], ["a"], "first"),
        onnx.helper.make_node("Gemm", ["a", "w1"], ["b"], "second", transB=1),
        onnx.helper.make_node("Relu", ["b"], ["c"], "relu"),
        onnx.helper.make_node("Gemm", ["c", "w2"], ["y"], "third"),
    ]
    weights = [
        models.weight(f"w{each}", draw(size=shape).astype(np.float32))
        for each, shape in enumerate([(9, 7), (5, 7), (5, 3)])
    ]
    return models.model(nodes, [models.value("x", ["N", 9])], [models.value("y", ["N", 3])], weights)


@pytest.mark.parametrize(
    ("proto", "kernels"),
    [
        (models.conv_net(), {"QLinearConv": 1, "QLinearGlobalAveragePool": 1, "QGemm": 1}),
        (models.mlp(widths=(16, 32, 32, 4)), {"QGemm": 3}),
    ],
    ids=["cnn", "mlp"],
)
def test_nothing_is_left_float_in_a_cnn_and_an_mlp(proto, kernels, tmp_path) -> None:
    _, quantized, _ = _quantized(proto, tmp_path)
    _, found = _optimised(quantized, tmp_path)
    moves = {"Transpose", "Flatten"}
    assert {name: count for name, count in found.items() if name not in moves} == {
        **kernels,
        "QuantizeLinear": 1,
    }


def test_an_attention_block_keeps_residual_and_bias_float_only(tmp_path) -> None:
    _, quantized, _ = _quantized(attention(), tmp_path)
    _, found = _optimised(quantized, tmp_path)
    assert found["Add"] == 5
    assert found["DequantizeLinear"] == 0
