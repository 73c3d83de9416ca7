"""What is absorbed is the paper's c, the answers stay, and int8 has finer steps for what varies."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

pytest.importorskip("onnx_ir")
pytest.importorskip("onnxruntime")

import onnx_ir as ir
from fakes.models import model, value, weight
from onnx import helper
from precision.quantised import int8

from wavefit.model.samples import Samples
from wavefit.precision import graph
from wavefit.precision.compensation import absorb
from wavefit.precision.linear import linears


def quiet(_: str) -> None:
    pass


def net(tmp_path: Path, pads: list[int] | None = None, shown: bool = False, groups: int = 1) -> ir.Model:
    """Conv with biases of about 30 -> Relu -> Conv 3x3 -> y; ``shown``: the Relu is an output as well."""
    random = np.random.default_rng(0)
    stored = {
        "w1": random.normal(0, 0.3, (8, 3, 1, 1)),
        "b1": random.uniform(20, 40, 8) * (np.arange(8) % 4 > 0),
        "w2": random.normal(0, 0.1, (4, 8 // groups, 3, 3)),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["a"], "one"),
        helper.make_node("Relu", ["a"], ["r"], "relu"),
        helper.make_node("Conv", ["r", "w2"], ["y"], "two", pads=pads or [0] * 4, group=groups),
    ]
    size = 8 if pads else 6
    outputs = [value("y", ["N", 4, size, size])]
    if shown:
        outputs.append(value("r", ["N", 8, 8, 8]))
    weights = [weight(name, array.astype(np.float32)) for name, array in stored.items()]
    onnx.save(model(nodes, [value("x", ["N", 3, 8, 8])], outputs, weights), str(tmp_path / "m.onnx"))
    return graph.load(tmp_path / "m.onnx")


def data(seed: int) -> Samples:
    array = np.random.default_rng(seed).uniform(-1, 1, (32, 3, 8, 8)).astype(np.float32)
    return Samples({"x": array}, None, "test")


def distance(one: ir.Model, other: ir.Model, samples: Samples) -> float:
    first, second = (graph.Runner(each)(samples.inputs)["y"] for each in (one, other))
    return float(
        np.linalg.norm(first - second) / np.linalg.norm(first - first.mean((0, 2, 3), keepdims=True))
    )


@pytest.mark.parametrize("groups", [1, 2])
def test_the_answers_stay_and_int8_gains(tmp_path: Path, groups: int) -> None:
    before = net(tmp_path, groups=groups)
    after = absorb.compensate(before, data(1), quiet)
    assert distance(before, after, data(1)) < 1e-4  # of what varies, beside offsets of 30
    assert distance(before, after, data(2)) < 0.01  # a few elements go below what was seen
    seen = graph.Runner(before, ("a",))(data(1).inputs)["a"].astype(np.float64)
    mean, deviation = seen.mean((0, 2, 3)), seen.std((0, 2, 3))
    wanted = np.maximum(0, np.minimum(seen.min((0, 2, 3)), mean - 3 * deviation))
    assert (wanted > 10).sum() == 6
    old, new = (next(linears(each)).bias() for each in (before, after))
    np.testing.assert_allclose(old - new, wanted, rtol=1e-4, atol=1e-4)  # type: ignore[operator]
    plain, ours = (distance(before, int8(each, data(1)), data(2)) for each in (before, after))
    assert ours < 0.5 * plain  # the rest is the rounding of y itself, which is offset as well


@pytest.mark.parametrize("how", [{"pads": [1, 1, 1, 1]}, {"shown": True}])
def test_padding_and_outputs_forbid_it(tmp_path: Path, how: dict[str, object]) -> None:
    before = net(tmp_path, **how)  # type: ignore[arg-type]
    after = absorb.compensate(before, data(1), quiet)
    assert distance(before, after, data(2)) == 0


@pytest.mark.parametrize("width", [8, 5])
def test_a_product_over_positions_takes_no_channels_in(tmp_path: Path, width: int) -> None:
    """A MatMul behind a Conv adds up what lies along the last axis: with as many positions as channels it fits."""
    random = np.random.default_rng(0)
    stored = {
        "w1": random.normal(0, 0.3, (8, 3, 1, 1)),
        "b1": random.uniform(20, 40, 8),
        "w2": random.normal(0, 0.1, (width, 7)),
        "b2": np.zeros(7),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["a"], "one"),
        helper.make_node("Relu", ["a"], ["r"], "relu"),
        helper.make_node("MatMul", ["r", "w2"], ["p"], "two"),
        helper.make_node("Add", ["p", "b2"], ["y"], "bias"),
    ]
    weights = [weight(name, array.astype(np.float32)) for name, array in stored.items()]
    given, made = value("x", ["N", 3, 4, width]), value("y", ["N", 8, 4, 7])
    onnx.save(model(nodes, [given], [made], weights), str(tmp_path / "m.onnx"))
    before = graph.load(tmp_path / "m.onnx")
    array = random.uniform(-1, 1, (16, 3, 4, width)).astype(np.float32)
    samples = Samples({"x": array}, None, "test")
    assert distance(before, absorb.compensate(before, samples, quiet), samples) == 0


def test_what_reaches_zero_has_no_floor() -> None:
    found = absorb.floor(np.array([-1.0, 2.0, 2.0]), np.array([9.0, 9.0, 9.0]), np.array([1.0, 1.0, 2.5]))
    np.testing.assert_array_equal(found, [0, 2, 1.5])
