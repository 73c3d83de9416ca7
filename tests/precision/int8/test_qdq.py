"""Graphs in int8 against the same arithmetic in integers, written out in numpy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from fakes import models
from onnx import helper, numpy_helper
from precision.int8_graphs import attention

import wavefit
from wavefit.errors import InputError
from wavefit.model.samples import Samples
from wavefit.precision import graph
from wavefit.precision.half.convert import convert
from wavefit.precision.int8.calibrate import parameters
from wavefit.precision.int8.histogram import collect
from wavefit.precision.int8.qdq import activation_values, possible_values, quantisable, quantize
from wavefit.precision.int8.qdq_operators import OPERATORS
from wavefit.precision.int8.targets import CPU, Target

ANY = replace(CPU, operators=OPERATORS)
SIGNED = replace(ANY, activation="int8", symmetric=True)
SEVEN = replace(ANY, weight_bits=7)


def _load(proto: onnx.ModelProto, tmp_path):
    return graph.load(models.save(proto, tmp_path / "model.onnx"))


def _inputs(model, seed: int = 0, items: int = 16) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(seed).normal
    shapes = {
        value.name: [size if isinstance(size, int) else items for size in value.shape]
        for value in model.graph.inputs
    }
    return {name: draw(size=shape).astype(np.float32) for name, shape in shapes.items()}


def _int8(model, nodes=None, target: Target = ANY, rounding=None, inputs=None):
    nodes = frozenset(quantisable(model) if nodes is None else nodes)
    samples = Samples(inputs or _inputs(model), None, "test")
    found = collect(model, samples, activation_values(model, nodes), lambda _: None)
    return quantize(model, nodes, parameters(found, "minmax", target), target, rounding)


def _proto(model, tmp_path) -> onnx.ModelProto:
    graph.save(model, tmp_path / "int8.onnx")  # holds it to onnx's full check
    return onnx.load(tmp_path / "int8.onnx")


def _operators(model) -> list[str]:
    return [node.op_type for node in model.graph]


# ---- The integers, by the definitions of ONNX -----------------------------------------------------------------------


def _scale(low: float, high: float, steps: int) -> tuple[np.float32, int]:
    low, high = min(low, 0.0), max(high, 0.0)
    scale = np.float32((high - low) / steps)
    return scale, int(np.rint(-low / scale))


def _store(array: np.ndarray, scale: np.float32, zero: int) -> np.ndarray:
    return np.clip(np.rint(array / np.float64(scale)) + zero, 0, 255).astype(np.int64)


def _weights(array: np.ndarray, limit: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows are output channels."""
    rows = array.reshape(len(array), -1).astype(np.float64)
    scale = (np.abs(rows).max(axis=1) / limit).astype(np.float32)
    return np.clip(np.rint(rows / scale[:, None].astype(np.float64)), -limit, limit).astype(np.int64), scale


def _patches(array: np.ndarray, zero: int) -> np.ndarray:
    """3x3 patches with a border of zeros as stored, (N, C * 9, H * W)."""
    padded = np.pad(array, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=zero)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    count, channels, height, width = array.shape
    return windows.transpose(0, 1, 4, 5, 2, 3).reshape(count, channels * 9, height * width)


@pytest.mark.parametrize(("target", "limit"), [(ANY, 127), (SEVEN, 64)], ids=["8 bits", "7 bits"])
def test_a_cnn_is_the_arithmetic_in_integers(target: Target, limit: int, tmp_path) -> None:
    proto = models.conv_net()
    model = _load(proto, tmp_path)
    inputs = _inputs(model)
    floats = graph.Runner(model, ("r", "p"))(inputs)
    tensors = {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}

    image, pooled_range = inputs["image"], floats["p"]
    s_x, z_x = _scale(image.min(), image.max(), 255)
    s_r, _ = _scale(0, floats["r"].max(), 255)
    s_p, z_p = _scale(pooled_range.min(), pooled_range.max(), 255)
    w, s_w = _weights(tensors["conv_w"], limit)
    bias = np.rint(tensors["conv_b"] / (s_w.astype(np.float64) * s_x)).astype(np.int64)
    sums = np.einsum("ok,nkp->nop", w, _patches(_store(image, s_x, z_x), z_x) - z_x) + bias[:, None]
    relu = np.clip(np.rint(sums * (s_w[:, None].astype(np.float64) * s_x / s_r)), 0, 255)
    pooled = np.clip(np.rint(relu.mean(axis=2) * s_r / s_p) + z_p, 0, 255)
    w, s_w = _weights(tensors["fc_w"], limit)
    bias = np.rint(tensors["fc_b"] / (s_w.astype(np.float64) * s_p))
    expected = ((pooled - z_p) @ w.T + bias) * (s_w.astype(np.float64) * s_p)

    found = graph.Runner(_int8(model, target=target, inputs=inputs))(inputs)["logits"]
    step = s_p * 127 * s_w.max()  # one step of one pooled channel, at most
    assert np.abs(found - expected).max() <= step
    assert np.median(np.abs(found - expected)) < 1e-5


def test_weights_lie_in_the_range_of_their_bits_and_reach_its_end(tmp_path) -> None:
    for target, limit in ((ANY, 127), (SEVEN, 64)):
        proto = _proto(_int8(_load(models.conv_net(), tmp_path), target=target), tmp_path)
        stored = {each.name: numpy_helper.to_array(each) for each in proto.graph.initializer}
        rows = np.abs(stored["conv_w_quantized"].astype(int)).reshape(8, -1).max(axis=1)
        assert rows.tolist() == [limit] * 8
        assert stored["conv_w_scale"].shape == (8,)
        assert stored["conv_b_quantized"].dtype == np.int32
        assert "conv_w" not in stored


def test_signed_symmetric_activations_have_no_zero_point(tmp_path) -> None:
    model = _load(models.conv_net(), tmp_path)
    int8 = _int8(model, target=SIGNED)
    zeros = [
        numpy_helper.to_array(tensor)
        for tensor in _proto(int8, tmp_path).graph.initializer
        if tensor.name.endswith("zero_point")
    ]
    assert all(not zero.any() for zero in zeros)
    assert "Relu" in _operators(int8)  # which signed integers do not do by themselves
    inputs = _inputs(model)
    before, after = graph.Runner(model)(inputs)["logits"], graph.Runner(int8)(inputs)["logits"]
    assert np.linalg.norm(before - after) < 0.05 * np.linalg.norm(before)


def test_16_bit_activations_raise_the_opset(tmp_path) -> None:
    model = _load(models.conv_net(), tmp_path)
    int8 = _int8(model, target=replace(ANY, activation="uint16"))
    assert int8.graph.opset_imports[""] == 21
    inputs = _inputs(model)
    before, after = graph.Runner(model)(inputs)["logits"], graph.Runner(int8)(inputs)["logits"]
    assert np.linalg.norm(before - after) < 0.01 * np.linalg.norm(before)


def test_half_graphs_have_half_scales(tmp_path) -> None:
    proto = models.conv_net()
    nodes = [
        helper.make_node("Cast", ["image"], ["image16"], "cast", to=onnx.TensorProto.FLOAT16),
        *proto.graph.node,
    ]
    nodes[1].input[0] = "image16"
    weights = [
        numpy_helper.from_array(numpy_helper.to_array(each).astype(np.float16), each.name)
        for each in proto.graph.initializer
    ]
    output = models.value("logits", ["N", 10], onnx.TensorProto.FLOAT16)
    model = _load(models.model(nodes, list(proto.graph.input), [output], weights), tmp_path)
    int8 = _int8(model)
    assert int8.graph.opset_imports[""] >= 19
    inputs = _inputs(model)
    before, after = graph.Runner(model)(inputs)["logits"], graph.Runner(int8)(inputs)["logits"]
    assert after.dtype == np.float16
    assert np.linalg.norm(before - after) < 0.05 * np.linalg.norm(before)


def test_weights_too_small_for_a_normal_half_scale_are_kept(tmp_path) -> None:
    node = helper.make_node("MatMul", ["x", "w"], ["y"], "node")
    weights = np.random.default_rng(0).normal(0, 1e-4, (16, 8)).astype(np.float16)
    values = [
        models.value(name, ["N", size], onnx.TensorProto.FLOAT16) for name, size in (("x", 16), ("y", 8))
    ]
    model = _load(models.model([node], values[:1], values[1:], [models.weight("w", weights)]), tmp_path)
    inputs = {"x": np.random.default_rng(1).normal(size=(8, 16)).astype(np.float16)}
    before = graph.Runner(model)(inputs)["y"].astype(float)
    after = graph.Runner(_int8(model, inputs=inputs))(inputs)["y"].astype(float)
    assert np.linalg.norm(before - after) < 0.05 * np.linalg.norm(before)


def test_the_nodes_that_are_not_int8_can_be_half(tmp_path) -> None:
    model = _load(attention(), tmp_path)
    nodes = {"project_q", "project_k", "project_v", "project_o"}
    int8 = _int8(model, nodes=nodes)
    half = convert(int8, {name: "fp16" for name in graph.nodes(model) if name not in nodes})
    types = {node.name: node.outputs[0].dtype.name for node in half.graph}
    assert {types[name] for name in ("bias_q", "scores", "softmax", "residual")} == {"FLOAT16"}
    assert {types[name] for name in nodes} == {"FLOAT"}
    _proto(half, tmp_path)
    _close(model, half)


# ---- Which nodes, and where the pairs are ---------------------------------------------------------------------------


def test_no_nodes_change_nothing(tmp_path) -> None:
    model = _load(models.conv_net(), tmp_path)
    int8 = _int8(model, nodes=())
    inputs = _inputs(model)
    assert _operators(int8) == _operators(model)
    assert (graph.Runner(int8)(inputs)["logits"] == graph.Runner(model)(inputs)["logits"]).all()


def test_a_subset_leaves_the_others_as_they_are(tmp_path) -> None:
    model = _load(models.conv_net(), tmp_path)
    int8 = _int8(model, nodes={"fc"})
    assert _operators(int8) == [
        *["DequantizeLinear"] * 2, "Conv", "Relu", "GlobalAveragePool", "Flatten", "QuantizeLinear",
        "DequantizeLinear", "Gemm",
    ]  # fmt: skip
    assert {"conv_w", "conv_b"} <= set(int8.graph.initializers)
    inputs = _inputs(model)
    pooled = [graph.Runner(each, ("f",))(inputs)["f"] for each in (model, int8)]
    assert (pooled[0] == pooled[1]).all()


def test_the_given_graph_is_not_changed(tmp_path) -> None:
    model = _load(models.conv_net(), tmp_path)
    before = [(node.name, [value.name for value in node.inputs]) for node in model.graph]
    _int8(model)
    assert [(node.name, [value.name for value in node.inputs]) for node in model.graph] == before


def test_a_value_has_one_pair_however_many_read_it(tmp_path) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "one"),
        helper.make_node("Conv", ["x", "w"], ["b"], "two"),
        helper.make_node("Softplus", ["x"], ["c"], "float"),
    ]
    outputs = [models.value(name, ["N", 4, None, None]) for name in "abc"]
    weight = models.weight("w", np.random.default_rng(0).normal(size=(4, 4, 3, 3)).astype(np.float32))
    model = _load(models.model(nodes, [models.value("x", ["N", 4, 8, 8])], outputs, [weight]), tmp_path)
    int8 = _int8(model)
    assert _operators(int8).count("QuantizeLinear") == 3  # x, a and b
    assert [name for name in int8.graph.initializers if name.endswith("quantized")] == ["w_quantized"]
    assert graph.nodes(int8)["float"].inputs[0].name == "x"
    inputs = _inputs(model)
    assert [value.name for value in int8.graph.outputs] == ["a", "b", "c"]
    assert (graph.Runner(int8)(inputs)["c"] == graph.Runner(model)(inputs)["c"]).all()


def test_a_weight_that_a_kept_node_shares_stays_float_for_it(tmp_path) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], "one"),
        helper.make_node("MatMul", ["a", "w"], ["y"], "two"),
    ]
    weight = models.weight("w", np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32))
    model = _load(
        models.model(nodes, [models.value("x", ["N", 8])], [models.value("y", ["N", 8])], [weight]), tmp_path
    )
    int8 = _int8(model, nodes={"one"})
    assert {"w", "w_quantized"} <= set(int8.graph.initializers)
    assert graph.nodes(int8)["two"].inputs[1].name == "w"


def test_one_weight_used_along_two_axes_is_stored_twice(tmp_path) -> None:
    nodes = [
        helper.make_node("Gemm", ["x", "w"], ["a"], "one"),
        helper.make_node("Gemm", ["a", "w"], ["y"], "two", transB=1),
    ]
    weight = models.weight("w", np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32))
    model = _load(
        models.model(nodes, [models.value("x", ["N", 8])], [models.value("y", ["N", 8])], [weight]), tmp_path
    )
    int8 = _int8(model)
    axes = [graph.nodes(int8)[name].inputs[1].producer().attributes["axis"].value for name in ("one", "two")]
    assert axes == [1, 0]
    _close(model, int8)


def test_a_middle_output_of_the_graph_keeps_its_name_and_type(tmp_path) -> None:
    proto = models.conv_net()
    proto.graph.output.extend([models.value("r", ["N", 8, 8, 8]), models.value("c", ["N", 8, 8, 8])])
    model = _load(proto, tmp_path)
    int8 = _int8(model)
    assert [value.name for value in int8.graph.outputs] == ["logits", "r", "c"]
    _proto(int8, tmp_path)
    inputs = _inputs(model)
    before, after = graph.Runner(model)(inputs), graph.Runner(int8)(inputs)
    for name in before:
        assert np.linalg.norm(before[name] - after[name]) < 0.05 * np.linalg.norm(before[name])


def test_a_dead_end_does_no_harm(tmp_path) -> None:
    proto = models.conv_net()
    proto.graph.node.append(helper.make_node("Conv", ["image", "conv_w"], ["dead"], "dead"))
    model = _load(proto, tmp_path)
    _close(model, _int8(model))


def test_batchnorm_and_its_relu_run_inside_the_convolution(tmp_path) -> None:
    draw = np.random.default_rng(0)
    proto = models.conv_net()
    proto.graph.node[1].input[0] = "n"
    proto.graph.node.insert(
        1, helper.make_node("BatchNormalization", ["c", "g", "b", "m", "v"], ["n"], "norm")
    )
    for name in "gbmv":
        proto.graph.initializer.append(models.weight(name, draw.uniform(0.5, 2, 8).astype(np.float32)))
    model = _load(proto, tmp_path)
    int8 = _int8(model)
    assert not {"BatchNormalization", "Relu"} & set(_operators(int8))
    _close(model, int8)


def test_what_feeds_only_float_nodes_is_left_float(tmp_path) -> None:
    """A Concat of boxes and scores at the end of a detector: nothing to gain, and one scale for both to lose."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["boxes"], "boxes"),
        helper.make_node("Conv", ["x", "w"], ["s"], "scores"),
        helper.make_node("Sigmoid", ["s"], ["p"], "sigmoid"),
        helper.make_node("Concat", ["boxes", "p"], ["y"], "concat", axis=1),
    ]
    weight = models.weight("w", np.random.default_rng(0).normal(size=(4, 4, 1, 1)).astype(np.float32))
    output = [models.value("y", ["N", 8, 8, 8])]
    model = _load(models.model(nodes, [models.value("x", ["N", 4, 8, 8])], output, [weight]), tmp_path)
    assert quantisable(model) == ("boxes", "scores")


def test_bodies_of_loops_and_branches_read_the_floats(tmp_path) -> None:
    def branch(name: str, operator: str) -> onnx.GraphProto:
        node = helper.make_node(operator, ["a"], [name], name)
        return helper.make_graph([node], name, [], [models.value(name, ["N", 4])])

    nodes = [
        helper.make_node("Gemm", ["x", "w"], ["a"], "gemm"),
        helper.make_node("Gemm", ["a", "w"], ["b"], "second"),
        helper.make_node("ReduceMax", ["b"], ["top"], "top", keepdims=0),
        helper.make_node("Cast", ["top"], ["flag"], "cast", to=onnx.TensorProto.BOOL),
        helper.make_node(
            "If", ["flag"], ["y"], "if", then_branch=branch("t", "Tanh"), else_branch=branch("e", "Neg")
        ),
    ]
    weight = models.weight("w", np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32))
    model = _load(
        models.model(nodes, [models.value("x", ["N", 4])], [models.value("y", ["N", 4])], [weight]), tmp_path
    )
    assert quantisable(model) == ("gemm", "second")
    _close(model, _int8(model))


def _close(model, int8, bound: float = 0.05) -> None:
    inputs = _inputs(model)
    before, after = graph.Runner(model)(inputs), graph.Runner(int8)(inputs)
    for name, array in before.items():
        assert np.linalg.norm(array - after[name]) < bound * np.linalg.norm(array)


def test_a_matmul_stays_one_where_gemm_has_no_kernel(tmp_path) -> None:
    model = _load(models.mlp(), tmp_path)
    assert "Gemm" in _operators(_int8(model))
    kept = _int8(model, target=replace(ANY, operators=OPERATORS - {"Gemm"}))
    assert _operators(kept).count("MatMul") == 2
    assert "Gemm" not in _operators(kept)
    _close(model, kept)


# ---- Weights and biases ---------------------------------------------------------------------------------------------


def test_channels_of_zeros_have_scale_one(tmp_path) -> None:
    proto = models.conv_net()
    weights = numpy_helper.to_array(proto.graph.initializer[0]).copy()
    weights[2] = 0
    proto.graph.initializer[0].CopyFrom(models.weight("conv_w", weights))
    model = _load(proto, tmp_path)
    int8 = _int8(model)
    assert int8.graph.initializers["conv_w_scale"].const_value.numpy()[2] == 1
    _close(model, int8)


def test_a_bias_that_would_overflow_int32_widens_its_weights_scale(tmp_path) -> None:
    proto = models.conv_net()
    weights = numpy_helper.to_array(proto.graph.initializer[0]).copy()
    weights[3] *= 1e-9
    bias = np.zeros(8, np.float32)
    bias[3] = 5.0
    proto.graph.initializer[0].CopyFrom(models.weight("conv_w", weights))
    proto.graph.initializer[1].CopyFrom(models.weight("conv_b", bias))
    model = _load(proto, tmp_path)
    int8 = _int8(model)
    stored = {name: value.const_value.numpy() for name, value in int8.graph.initializers.items()}
    assert int(stored["conv_b_quantized"][3]) == pytest.approx(2**30, rel=0.001)
    restored = int(stored["conv_b_quantized"][3]) * np.float64(stored["conv_b_scale"][3])
    assert restored == pytest.approx(5.0, rel=1e-6)
    _close(model, int8)


def test_precomputed_rounding_is_stored_as_it_is(tmp_path) -> None:
    model = _load(models.conv_net(), tmp_path)
    given = np.random.default_rng(1).integers(-127, 128, (8, 3, 3, 3)).astype(np.int8)
    int8 = _int8(model, rounding={"conv_w": given})
    assert (int8.graph.initializers["conv_w_quantized"].const_value.numpy() == given).all()


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("nothing", np.zeros((8, 3, 3, 3), np.int8)),
        ("conv_w", np.zeros(3, np.int8)),
        ("conv_w", np.zeros((8, 3, 3, 3))),
    ],
)
def test_rounding_that_fits_no_weight_is_refused(name: str, array: np.ndarray, tmp_path) -> None:
    with pytest.raises(InputError, match=name):
        _int8(_load(models.conv_net(), tmp_path), rounding={name: array})


def test_names_that_the_graph_has_already_are_left_to_it(tmp_path) -> None:
    proto = models.conv_net()
    proto.graph.node.append(helper.make_node("Neg", ["logits"], ["conv_w_scale"], "image_QuantizeLinear"))
    proto.graph.output.append(models.value("conv_w_scale", ["N", 10]))
    model = _load(proto, tmp_path)
    int8 = _int8(model)
    _proto(int8, tmp_path)
    _close(model, int8)


# ---- Refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["relu", "flatten", "nothing"])
def test_a_node_without_a_kernel_is_refused(name: str, tmp_path) -> None:
    with pytest.raises(InputError, match=name):
        _int8(_load(models.conv_net(), tmp_path), nodes={name})


def test_a_value_without_parameters_is_refused(tmp_path) -> None:
    model = _load(models.conv_net(), tmp_path)
    with pytest.raises(InputError, match="image"):
        quantize(model, frozenset(quantisable(model)), {}, ANY)


@pytest.mark.parametrize(
    ("node", "weights"),
    [
        (helper.make_node("MatMul", ["x", "w"], ["y"], "node"), (8,)),
        (helper.make_node("Gemm", ["x", "w", "c"], ["y"], "node"), (8, 4)),
        (helper.make_node("Gemm", ["x", "w"], ["y"], "node", alpha=-1.0), (8, 4)),
        (helper.make_node("Gemm", ["w", "x"], ["y"], "node", transB=1), (4, 8)),
    ],
    ids=["vector", "bias for each row", "negative alpha", "constant first"],
)
def test_forms_without_an_int8_kernel_are_not_quantisable(node, weights, tmp_path) -> None:
    tensors = [
        models.weight("w", np.ones(weights, np.float32)),
        models.weight("c", np.ones((6, 4), np.float32)),
    ]
    shape = None if node.op_type == "MatMul" else [None, None]
    proto = models.model([node], [models.value("x", [6, 8])], [models.value("y", shape or [6])], tensors)
    assert quantisable(_load(proto, tmp_path)) == ()


def test_what_a_custom_operator_made_is_not_quantised(tmp_path) -> None:
    """Its type is not known: the node that reads it stays, and the others are int8 all the same."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], "before"),
        helper.make_node("Gelu", ["a"], ["g"], "custom", domain="com.microsoft"),
        helper.make_node("MatMul", ["g", "w"], ["y"], "after"),
    ]
    proto = models.model(
        nodes,
        [models.value("x", [2, 4])],
        [models.value("y", [2, 4])],
        [models.weight("w", np.eye(4, dtype=np.float32))],
    )
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    assert quantisable(_load(proto, tmp_path)) == ("before",)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", ["digits", "attention"])
def test_any_set_of_nodes_needs_no_other_ranges_than_the_possible_ones(
    tmp_path: Path, seed: int, name: str
) -> None:
    path = Path(wavefit.__file__).parent / "demo" / "digits.onnx"
    if name == "attention":
        path = tmp_path / "m.onnx"
        onnx.save(attention(), path)
    model = graph.load(path)
    able = quantisable(model)
    rng = np.random.default_rng(seed)
    chosen = frozenset(name for name in able if rng.random() < 0.5)
    assert set(activation_values(model, chosen)) <= set(possible_values(model, frozenset(able)))
