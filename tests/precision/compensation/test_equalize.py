"""Equalised graphs answer as before, in ONNX Runtime; the scales are those of the paper, worked out by hand."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import onnx
import pytest

pytest.importorskip("onnx_ir")
pytest.importorskip("onnxruntime")

from fakes.models import model, value, weight
from onnx import helper
from precision.cases import depthwise_spread
from precision.judging import Bench
from precision.quantised import int8

from wavefit.precision import graph
from wavefit.precision.compensation import equalize
from wavefit.precision.linear import linears


def spread(random: np.random.Generator, *shape: int, axis: int = 0) -> np.ndarray:
    """Normal weights whose channels along an axis differ by about 1,000."""
    sizes = 10 ** random.uniform(-1.5, 1.5, shape[axis])
    sizes = sizes.reshape([-1 if each == axis else 1 for each in range(len(shape))])
    return (random.normal(0, 0.3, shape) * sizes).astype(np.float32)


def rows(model: object) -> dict[str, np.ndarray]:
    """Largest weight of each channel that a layer makes, by layer."""
    return {layer.name: np.abs(layer.matrix()).max((2, 3)).ravel() for layer in linears(model)}  # type: ignore[arg-type]


def columns(model: object) -> dict[str, np.ndarray]:
    """Largest weight of each channel that a layer reads, by layer."""
    return {layer.name: np.abs(layer.matrix()).max((1, 3)).ravel() for layer in linears(model)}  # type: ignore[arg-type]


def unevenness(size: np.ndarray) -> float:
    return float(size.max() / size.min())


def apart(one: object, other: object, inputs: dict[str, np.ndarray]) -> float:
    """Largest relative L2 distance of an output."""
    first, second = graph.Runner(one)(inputs), graph.Runner(other)(inputs)  # type: ignore[arg-type]
    return max(
        float(np.linalg.norm(first[name] - second[name]) / np.linalg.norm(first[name])) for name in first
    )


def written(tmp_path: Path, proto: onnx.ModelProto) -> object:
    path = tmp_path / "model.onnx"
    onnx.checker.check_model(proto, full_check=True)
    onnx.save(proto, str(path))
    return graph.load(path)


def test_the_scale_is_the_papers() -> None:
    # rows 8 and 2, columns 2 and 32: s = sqrt(r1 r2) / r2 = 2 and 1/4; both ranges become 4 and 8
    pair = model(
        [
            helper.make_node("MatMul", ["x", "w1"], ["h"], "one"),
            helper.make_node("Relu", ["h"], ["r"], "relu"),
            helper.make_node("MatMul", ["r", "w2"], ["y"], "two"),
        ],
        [value("x", ["N", 2])],
        [value("y", ["N", 2])],
        [
            weight("w1", np.array([[8, 1], [-4, -2]], np.float32)),
            weight("w2", np.array([[1, -2], [32, 5]], np.float32)),
        ],
    )
    import onnx_ir as ir

    made = equalize.compensate(graph.infer(ir.from_proto(pair)))
    first, second = (layer.node for layer in linears(made))
    np.testing.assert_allclose(graph.constant(first.inputs[1]), [[4, 4], [-2, -8]], rtol=1e-6)
    np.testing.assert_allclose(graph.constant(second.inputs[1]), [[2, -4], [8, 1.25]], rtol=1e-6)


def test_convolutions_of_all_kinds(tmp_path: Path) -> None:
    """A grouped, a depthwise and a transposed convolution, pools, LeakyRelu, PRelu, a flattening and a Gemm."""
    random = np.random.default_rng(0)
    weights = {
        "stem": spread(random, 8, 3, 3, 3),
        "grouped": spread(random, 8, 4, 3, 3),
        "depthwise": spread(random, 8, 1, 3, 3),
        "up": spread(random, 8, 6, 2, 2, axis=1),
        "grouped_up": spread(random, 6, 4, 2, 2, axis=1),
        "fc": spread(random, 5, 8 * 4 * 4),
        "last": spread(random, 5, 4),
    }
    nodes = [
        helper.make_node("Conv", ["x", "stem", "stem_b"], ["a"], "stem", pads=[1] * 4),
        helper.make_node("LeakyRelu", ["a"], ["b"], "leaky", alpha=0.1),
        helper.make_node("Conv", ["b", "grouped"], ["c"], "grouped", group=2, pads=[1] * 4),
        helper.make_node("PRelu", ["c", "slope"], ["d"], "prelu"),
        helper.make_node("Conv", ["d", "depthwise"], ["e"], "depthwise", group=8),
        helper.make_node("MaxPool", ["e"], ["f"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("ConvTranspose", ["f", "up"], ["g"], "up", strides=[2, 2]),
        helper.make_node("Relu", ["g"], ["h"], "relu"),
        helper.make_node("ConvTranspose", ["h", "grouped_up"], ["i"], "grouped_up", group=2),
        helper.make_node("AveragePool", ["i"], ["j"], "average", kernel_shape=[4, 4], strides=[2, 2]),
        helper.make_node("Flatten", ["j"], ["k"], "flatten"),
        helper.make_node("Gemm", ["k", "fc", "fc_b"], ["l"], "fc", transB=1, alpha=0.5, beta=2.0),
        helper.make_node("Relu", ["l"], ["m"], "relu2"),
        helper.make_node("Gemm", ["m", "last"], ["y"], "last"),
    ]
    stored = [weight(name, array) for name, array in weights.items()]
    stored += [weight("stem_b", spread(random, 8)), weight("fc_b", spread(random, 5))]
    stored.append(weight("slope", random.uniform(0.1, 0.3, (8, 1, 1)).astype(np.float32)))
    before = written(tmp_path, model(nodes, [value("x", ["N", 3, 12, 12])], [value("y", ["N", 4])], stored))
    after = equalize.compensate(before)  # type: ignore[arg-type]
    data = {"x": random.normal(size=(2, 3, 12, 12)).astype(np.float32)}
    assert apart(before, after, data) < 3e-6
    made, read = rows(after), columns(after)
    names = ["stem", "grouped", "depthwise", "up", "grouped_up"]
    for one, other in (*itertools.pairwise(names), ("fc", "last")):
        np.testing.assert_allclose(made[one], read[other], rtol=0.05)
    blocks = read["fc"].reshape(8, 16).max(1)  # a channel of the picture is 16 columns of the Gemm
    np.testing.assert_allclose(made["grouped_up"], blocks, rtol=0.05)
    assert unevenness(rows(before)["stem"]) > 100  # the caller's graph is left alone
    assert unevenness(made["stem"]) < 30


def test_branches_and_residual_sums_share_their_scales(tmp_path: Path) -> None:
    """Two users, a sum and a Concat; what an output of the graph or a Sigmoid reads stays as it is."""
    random = np.random.default_rng(1)
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], "stem", pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["b"], "relu"),
        helper.make_node("Conv", ["b", "w1"], ["c"], "left", pads=[1] * 4),
        helper.make_node("Add", ["b", "c"], ["d"], "sum"),
        helper.make_node("Relu", ["d"], ["e"], "relu2"),
        helper.make_node("Conv", ["x", "w2"], ["f"], "side", pads=[1] * 4),
        helper.make_node("Concat", ["e", "f"], ["g"], "concat", axis=1),
        helper.make_node("Conv", ["g", "w3"], ["h"], "join"),
        helper.make_node("Sigmoid", ["h"], ["i"], "sigmoid"),
        helper.make_node("Conv", ["f", "w4"], ["j"], "tap"),
    ]
    shapes = {
        "w0": (6, 3, 3, 3),
        "w1": (6, 6, 3, 3),
        "w2": (4, 3, 3, 3),
        "w3": (5, 10, 1, 1),
        "w4": (2, 4, 1, 1),
    }
    stored = [weight(name, spread(random, *shape)) for name, shape in shapes.items()]
    outputs = [value("i", ["N", 5, 8, 8]), value("j", ["N", 2, 8, 8])]
    before = written(tmp_path, model(nodes, [value("x", ["N", 3, 8, 8])], outputs, stored))
    after = equalize.compensate(before)  # type: ignore[arg-type]
    data = {"x": random.normal(size=(2, 3, 8, 8)).astype(np.float32)}
    assert apart(before, after, data) < 3e-6
    made, read = rows(after), columns(after)
    np.testing.assert_allclose(made["side"], np.maximum(read["join"][6:], read["tap"]), rtol=0.05)
    summed = np.maximum(made["stem"], made["left"])
    np.testing.assert_allclose(summed, np.maximum(read["left"], read["join"][:6]), rtol=0.05)
    old, new = (next(layer for layer in linears(each) if layer.name == "tap") for each in (before, after))  # type: ignore[arg-type]
    scale = old.matrix() / new.matrix()
    np.testing.assert_allclose(scale[0, 0], scale[0, 1], rtol=1e-5)  # its rows are an output of the graph


def test_weights_that_two_layers_share_are_scaled_apart(tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], "one"),
        helper.make_node("Relu", ["a"], ["b"], "relu"),
        helper.make_node("MatMul", ["b", "w"], ["c"], "two"),
        helper.make_node("Add", ["c", "bias"], ["d"], "add"),
        helper.make_node("Relu", ["d"], ["e"], "relu2"),
        helper.make_node("MatMul", ["e", "v"], ["y"], "three"),
    ]
    stored = [
        weight("w", spread(random, 8, 8)),
        weight("v", spread(random, 8, 3)),
        weight("bias", random.normal(size=8).astype(np.float32)),
    ]
    before = written(tmp_path, model(nodes, [value("x", ["N", 5, 8])], [value("y", ["N", 5, 3])], stored))
    after = equalize.compensate(before)  # type: ignore[arg-type]
    assert apart(before, after, {"x": random.normal(size=(2, 5, 8)).astype(np.float32)}) < 3e-6
    one, two, _ = linears(after)
    assert not np.array_equal(one.matrix(), two.matrix())


@pytest.mark.parametrize("reached", [True, False])
def test_relu6_becomes_relu_only_where_six_is_never_reached(tmp_path: Path, reached: bool) -> None:
    random = np.random.default_rng(3)
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], "stem"),
        helper.make_node("Clip", ["a", "zero", "six"], ["b"], "relu6"),
        helper.make_node("Conv", ["b", "w1"], ["y"], "last"),
    ]
    size = 1.0 if reached else 1e-3
    stored = [
        weight("w0", size * spread(random, 8, 3, 3, 3)),
        weight("w1", spread(random, 4, 8, 1, 1)),
        weight("zero", np.float32(0)),
        weight("six", np.float32(6)),
    ]
    before = written(
        tmp_path, model(nodes, [value("x", ["N", 3, 6, 6])], [value("y", ["N", 4, 4, 4])], stored)
    )
    data = {"x": random.normal(size=(4, 3, 6, 6)).astype(np.float32)}
    largest = float(graph.Runner(before, ("a",))(data)["a"].max())  # type: ignore[arg-type]
    assert (largest > 6) == reached
    after = equalize.compensate(before, {"a": largest})  # type: ignore[arg-type]
    ops = [node.op_type for node in after.graph]
    assert ops == (["Conv", "Relu", "Min", "Conv"] if reached else ["Conv", "Relu", "Conv"])
    assert apart(before, after, data) < 3e-6
    np.testing.assert_allclose(rows(after)["stem"], columns(after)["last"], rtol=0.05)


def test_a_bias_that_beta_cancels_stays_a_number(tmp_path: Path) -> None:
    random = np.random.default_rng(4)
    nodes = [
        helper.make_node("Gemm", ["x", "w0", "b"], ["a"], "first", beta=0.0, transB=1),
        helper.make_node("Relu", ["a"], ["r"], "relu"),
        helper.make_node("Gemm", ["r", "w1"], ["y"], "last"),
    ]
    stored = [weight("w0", spread(random, 8, 6)), weight("w1", spread(random, 8, 5))]
    stored.append(weight("b", np.ones(8, np.float32)))
    before = written(tmp_path, model(nodes, [value("x", ["N", 6])], [value("y", ["N", 5])], stored))
    after = equalize.compensate(before)  # type: ignore[arg-type]
    assert unevenness(rows(after)["first"]) < 0.5 * unevenness(rows(before)["first"])
    assert all(np.isfinite(each.const_value.numpy()).all() for each in after.graph.initializers.values())  # type: ignore[union-attr]
    assert apart(before, after, {"x": random.normal(size=(3, 6)).astype(np.float32)}) < 3e-6


def test_batch_normalisation_is_folded_first(tmp_path: Path) -> None:
    random = np.random.default_rng(4)
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], "stem"),
        helper.make_node("BatchNormalization", ["a", "g", "b", "m", "v"], ["n"], "norm", epsilon=1e-3),
        helper.make_node("Relu", ["n"], ["r"], "relu"),
        helper.make_node("Conv", ["r", "w1"], ["c"], "last"),
        helper.make_node("BatchNormalization", ["c", "g", "b", "m", "v"], ["y"], "end"),
    ]
    stored = [weight("w0", spread(random, 8, 3, 3, 3)), weight("w1", spread(random, 8, 8, 1, 1))]
    stored += [weight(name, random.normal(size=8).astype(np.float32)) for name in "gbm"]
    stored.append(weight("v", random.uniform(0.1, 2, 8).astype(np.float32)))
    before = written(
        tmp_path, model(nodes, [value("x", ["N", 3, 6, 6])], [value("y", ["N", 8, 4, 4])], stored)
    )
    after = equalize.compensate(before)  # type: ignore[arg-type]
    assert [node.op_type for node in after.graph] == ["Conv", "Relu", "Conv"]
    assert [str(output.name) for output in after.graph.outputs] == ["y"]
    assert apart(before, after, {"x": random.normal(size=(2, 3, 6, 6)).astype(np.float32)}) < 3e-6


def test_a_depthwise_network_whose_channels_spread_by_1000(tmp_path: Path) -> None:
    """Plain int8 with a scale for each tensor falls to chance; equalised it stays within a point of fp32."""
    bench = Bench(depthwise_spread.build(tmp_path / "model.onnx"))
    fp32 = bench.judge.heldout.score.value  # type: ignore[union-attr]
    assert fp32 > 0.94
    plain = int8(bench.graph, bench.calibration, per_channel=False)
    assert not bench.judge(plain, "int8").passed
    heldout = bench.judge.heldout.samples  # type: ignore[union-attr]
    [scores] = graph.Runner(plain)(heldout.inputs).values()
    assert (scores.argmax(1) == heldout.labels).mean() < 0.25
    better = equalize.compensate(bench.graph)
    assert apart(bench.graph, better, {"image": bench.case.inputs["image"][:16]}) < 3e-6
    for per_channel in (False, True):
        ours = bench.judge(int8(better, bench.calibration, per_channel=per_channel), "int8")
        assert ours.passed, ours.reasons
        assert ours.task is not None
        assert ours.task.candidate >= fp32 - 0.01
