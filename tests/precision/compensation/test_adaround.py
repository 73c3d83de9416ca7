"""Rounded weights give outputs nearer to fp32 than the nearest ones, against brute force and in ONNX Runtime."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import onnx
import pytest

pytest.importorskip("onnx_ir")
pytest.importorskip("onnxruntime")

import onnx_ir as ir
import onnxruntime
from fakes.models import model, value, weight
from onnx import helper
from precision.cases import depthwise_spread
from precision.judging import Bench, quiet
from precision.quantised import calibrated, target

from wavefit.model.samples import Samples
from wavefit.precision import graph
from wavefit.precision.compensation import adaround
from wavefit.precision.compensation.im2col import patches
from wavefit.precision.int8 import fold, qdq
from wavefit.precision.linear import linear


def correlated(random: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    """Positive and alike, as neighbouring channels after Relu are."""
    return np.abs(random.normal(size=(rows, 2)) @ random.normal(size=(2, columns))) + 0.1 * random.random(
        (rows, columns)
    )


def test_against_all_ways_to_round_up_or_down() -> None:
    random = np.random.default_rng(0)
    inputs, weights = correlated(random, 200, 8), random.normal(size=(5, 8))
    scale = np.full(weights.shape, 0.25)

    def errors(stored: np.ndarray) -> np.ndarray:
        return np.square((stored * scale - weights) @ inputs.T).sum(1)

    found = errors(adaround.nearest_together(weights, scale, inputs, inputs, 127))
    down = np.floor(weights / scale)
    best = np.min([errors(down + np.array(up)) for up in itertools.product((0, 1), repeat=8)], 0)
    nearest = errors(np.rint(weights / scale))
    assert (found < nearest).all()
    assert found.sum() < 0.3 * nearest.sum()
    assert found.sum() < 2.5 * best.sum()


def test_it_makes_up_for_what_the_layer_reads() -> None:
    """A quantised input that is a tenth too large: the weights become a tenth smaller, which no rounding could."""
    random = np.random.default_rng(1)
    inputs, weights = random.normal(size=(500, 6)), random.normal(size=(3, 6))
    stored = adaround.nearest_together(weights, np.full(weights.shape, 1e-3), inputs, 1.1 * inputs, 10_000)
    np.testing.assert_allclose(stored * 1e-3, weights / 1.1, rtol=0.02, atol=2e-3)


def test_integers_stay_within_the_limit() -> None:
    random = np.random.default_rng(2)
    inputs, weights = correlated(random, 100, 200), random.normal(size=(4, 200))
    scale = np.broadcast_to(np.abs(weights).max(1, keepdims=True) / 3, weights.shape)
    stored = adaround.nearest_together(weights, scale, inputs, inputs, 3)
    assert np.abs(stored).max() <= 3
    assert (stored == np.rint(stored)).all()


@pytest.mark.parametrize(
    ("shape", "kernel", "attributes"),
    [
        ((2, 4, 7, 6), (6, 4, 3, 2), {"strides": [2, 1], "pads": [1, 0, 2, 1], "dilations": [1, 2]}),
        ((2, 4, 7, 7), (6, 2, 3, 3), {"group": 2}),
        ((2, 4, 7, 7), (4, 1, 3, 3), {"group": 4, "pads": [1, 1, 1, 1]}),
        ((2, 3, 9), (5, 3, 4), {"strides": [3]}),
    ],
)
def test_patches_times_weights_is_the_convolution(
    shape: tuple[int, ...], kernel: tuple[int, ...], attributes: dict[str, object]
) -> None:
    random = np.random.default_rng(3)
    data, weights = (random.normal(size=each).astype(np.float32) for each in (shape, kernel))
    node = helper.make_node("Conv", ["x", "w"], ["y"], "conv", **attributes)
    proto = model([node], [value("x", shape)], [value("y", None)], [weight("w", weights)])
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    [right] = session.run(None, {"x": data})
    layer = linear(graph.nodes(ir.from_proto(proto))["conv"])
    assert layer is not None
    rows = patches(layer, data, 10_000, random)
    assert rows is not None
    matrix = layer.matrix()
    made = rows @ matrix.reshape(*matrix.shape[:2], -1).swapaxes(1, 2)  # groups x rows x outputs
    made = made.transpose(1, 0, 2).reshape(shape[0], *right.shape[2:], -1)
    np.testing.assert_allclose(np.moveaxis(made, -1, 1), right, rtol=1e-4, atol=1e-5)
    few = patches(layer, data, 3, random)
    assert few is not None
    assert few.shape[1] == 3


def test_the_scores_move_less(tmp_path: Path) -> None:
    bench = Bench(depthwise_spread.build(tmp_path / "model.onnx", spread=1.0))
    to, before = target(), bench.graph
    layers = frozenset(qdq.quantisable(before, to))
    ranges = calibrated(before, bench.calibration)
    plain = qdq.quantize(before, layers, ranges, to)
    folded = fold.folded(before, layers)
    rounding = adaround.compensate(folded, plain, layers, bench.calibration, quiet)
    assert rounding
    assert {array.dtype for array in rounding.values()} == {np.dtype(np.int8)}
    ours = qdq.quantize(before, layers, ranges, to, rounding)
    errors = [bench.judge.numbers(each, "int8").size for each in (plain, ours)]
    assert errors[1] < 0.9 * errors[0]
    assert adaround.compensate(folded, plain, layers, bench.calibration, quiet, lambda: 0.0) == {}


def test_what_it_cannot_round_is_left_out(tmp_path: Path) -> None:
    """A transposed convolution, a convolution padded by its shape, and weights that two layers share."""
    random = np.random.default_rng(4)
    nodes = [
        helper.make_node("ConvTranspose", ["x", "up"], ["a"], "up", strides=[2, 2]),
        helper.make_node("Conv", ["a", "same"], ["b"], "same", auto_pad="SAME_UPPER"),
        helper.make_node("Conv", ["b", "shared"], ["c"], "one"),
        helper.make_node("Conv", ["c", "shared"], ["y"], "two"),
    ]
    shapes = {"up": (3, 4, 2, 2), "same": (4, 4, 3, 3), "shared": (4, 4, 1, 1)}
    stored = [weight(name, random.normal(size=shape).astype(np.float32)) for name, shape in shapes.items()]
    proto = model(nodes, [value("x", ["N", 3, 4, 4])], [value("y", ["N", 4, 8, 8])], stored)
    onnx.save(proto, str(tmp_path / "m.onnx"))
    before = graph.load(tmp_path / "m.onnx")
    samples = Samples({"x": random.normal(size=(8, 3, 4, 4)).astype(np.float32)}, None, "test")
    layers = frozenset(qdq.quantisable(before, target()))
    lowered = qdq.quantize(before, layers, calibrated(before, samples), target())
    assert adaround.compensate(fold.folded(before, layers), lowered, layers, samples, quiet) == {}
