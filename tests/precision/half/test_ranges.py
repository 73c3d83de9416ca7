"""Ranges against numpy on the same numbers, in one pass or many, at one size or several."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from fakes.models import conv_net, model, save, value, weight
from onnx import helper

from wavefit.model.samples import Samples
from wavefit.precision import graph
from wavefit.precision.half import accumulate, ranges
from wavefit.precision.half.ranges import merge, observe
from wavefit.precision.half.value_range import HALF_SMALLEST, HALF_SMALLEST_NORMAL, describe


def quiet(_: str) -> None:
    pass


@pytest.fixture(name="net")
def net_(tmp_path: Path) -> ir.Model:
    return graph.load(save(conv_net(), tmp_path / "m.onnx"))


@pytest.fixture(name="samples")
def samples_() -> Samples:
    return Samples(
        {"image": np.random.default_rng(0).normal(size=(7, 3, 8, 8)).astype(np.float32)}, None, "test"
    )


def test_every_float_value_has_the_range_that_numpy_gives(net: ir.Model, samples: Samples) -> None:
    found = observe(net, samples, quiet)
    assert set(found) == {"image", "c", "r", "p", "f", "logits", "conv_w", "conv_b", "fc_w", "fc_b"}
    everything = graph.Runner(net, ("c", "r", "p", "logits"))(samples.batch(0, 7))
    for name, array in (everything | {"image": samples.inputs["image"]}).items():
        wide = array.astype(np.float64)
        assert found[name].low == wide.min()
        assert found[name].high == wide.max()
        assert found[name].max_abs == np.abs(wide).max()
        assert found[name].smallest == np.abs(wide)[wide != 0].min()
        assert found[name].elements == wide.size
        assert found[name].mean_square == pytest.approx(np.mean(wide**2), rel=1e-6)
        assert found[name].mean_abs == pytest.approx(np.abs(wide).mean(), rel=1e-6)
    kernel = graph.constant(net.graph.initializers["conv_w"])
    assert kernel is not None
    assert found["conv_w"].max_abs == np.abs(kernel).max()


@pytest.mark.parametrize("batch", [1, 3, 7, 50])
def test_the_batch_changes_nothing(net: ir.Model, samples: Samples, batch: int) -> None:
    whole, parts = observe(net, samples, quiet, batch=7), observe(net, samples, quiet, batch=batch)
    for name, found in parts.items():
        assert found.elements == whole[name].elements
        assert found.max_abs == pytest.approx(whole[name].max_abs, rel=1e-5)
        assert found.mean_square == pytest.approx(whole[name].mean_square, rel=1e-5)


def test_many_passes_give_what_one_gives(
    net: ir.Model, samples: Samples, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = observe(net, samples, quiet)
    said: list[str] = []
    chunks = ranges.chunks
    monkeypatch.setattr(ranges, "chunks", lambda values, given, batch: chunks(values, given, batch, 4096))
    assert observe(net, samples, said.append) == whole
    assert len(said) > 1


def test_a_pass_takes_no_more_memory_than_allowed(net: ir.Model, samples: Samples) -> None:
    values = [node.outputs[0] for node in net.graph]
    bytes_each = {"c": 4 * 2048, "r": 4 * 2048, "p": 4 * 32, "f": 4 * 32, "logits": 160}
    groups = list(ranges.chunks(values, samples, 4, limit=10_000))
    assert [name for group in groups for name in group] == list(bytes_each)
    for group in groups:
        assert len(group) == 1 or sum(bytes_each[name] for name in group) <= 10_000


def test_a_frozen_batch_is_filled_up(tmp_path: Path, samples: Samples) -> None:
    net = graph.load(save(conv_net(batch=4), tmp_path / "m.onnx"))
    assert observe(net, samples, quiet)["logits"].elements == 80  # two runs of 4 for 7 items


def test_several_sizes_are_merged(tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"], "relu")]
    net = graph.load(
        save(model(nodes, [value("x", ["N", "W"])], [value("y", ["N", "W"])]), tmp_path / "m.onnx")
    )
    small = np.array([[1e-7, -2.0, 3.0]], np.float32)
    large = np.array([[0.0, 5.0, -7.0, 0.5]], np.float32)
    parts = [observe(net, Samples({"x": x}, None, "test"), quiet) for x in (small, large)]
    both = merge(*parts)["x"]
    assert (both.low, both.high, both.elements) == (-7.0, 5.0, 7)
    assert both.smallest == np.float32(1e-7)
    assert both.mean_square == pytest.approx((4 + 9 + 25 + 49 + 0.25) / 7, rel=1e-6)
    assert merge(parts[0], {"z": parts[1]["x"]})["z"] == parts[1]["x"]


def test_shares_under_halfs_smallest_numbers() -> None:
    tiny = np.finfo(np.float16)
    assert float(tiny.smallest_normal) == HALF_SMALLEST_NORMAL
    assert float(tiny.smallest_subnormal) == HALF_SMALLEST
    found = describe(np.array([0.0, 1e-8, 1e-6, 1.0, -1e-5], np.float32))
    assert found.lost_share == 1 / 4
    assert found.subnormal_share == 3 / 4


@pytest.mark.parametrize("size", [1e-8, 3e-7, 1e-5, 1.0, 1e4])
def test_the_error_of_rounding_is_numpys(size: float) -> None:
    values = (size * np.random.default_rng(0).normal(size=1000)).astype(np.float32)
    apart = np.linalg.norm(values.astype(np.float16).astype(np.float64) - values)
    assert describe(values).half_error == pytest.approx(apart / np.linalg.norm(values.astype(np.float64)))
    assert describe(values / 64).scaled(64).half_error == pytest.approx(
        describe(values).half_error, rel=0.3, abs=1e-4
    )


def test_nan_and_inf_are_counted_and_left_out() -> None:
    found = describe(np.array([np.nan, np.inf, -np.inf, 2.0, -3.0], np.float32))
    assert (found.low, found.high, found.unbounded, found.elements) == (-3.0, 2.0, 3, 5)
    nothing = describe(np.array([np.nan], np.float32))
    assert (nothing.max_abs, nothing.unbounded) == (0.0, 1)
    assert describe(np.zeros((0, 3), np.float32)).elements == 0


X = np.random.default_rng(1).normal(1, 2, (2, 4, 6)).astype(np.float32)
WIDE = X.astype(np.float64)
CENTRED = WIDE - WIDE.mean(-1, keepdims=True)
SUMS: dict[str, tuple[dict[str, object], float]] = {
    "ReduceL2": ({"axes": [-1]}, (WIDE**2).sum(-1).max()),
    "ReduceSumSquare": ({"axes": [1, 2]}, (WIDE**2).sum((1, 2)).max()),
    "ReduceL1": ({"axes": [0]}, np.abs(WIDE).sum(0).max()),
    "ReduceMean": ({"axes": [1]}, np.abs(np.cumsum(WIDE, 1)).max()),
    "GlobalAveragePool": ({}, np.abs(np.cumsum(WIDE, 2)).max()),
    "RMSNormalization": ({"axis": -1}, (WIDE**2).sum(-1).max()),
    "InstanceNormalization": ({}, max((CENTRED**2).sum(-1).max(), np.abs(np.cumsum(WIDE, 2)).max())),
    "GroupNormalization": (
        {"num_groups": 2},
        max(
            np.square(
                WIDE.reshape(2, 2, 12) - WIDE.reshape(2, 2, 12).mean(-1, keepdims=True)
            ).sum(-1).max(),
            np.abs(np.cumsum(WIDE.reshape(2, 2, 12), -1)).max(),
        ),
    ),
    "Softmax": ({"axis": -1}, np.exp(WIDE - WIDE.max(-1, keepdims=True)).sum(-1).max()),
    "AveragePool": ({"kernel_shape": [3]}, WIDE.max() * 3 if WIDE.max() > -WIDE.min() else -WIDE.min() * 3),
    "LpNormalization": ({"axis": 1, "p": 1}, np.abs(WIDE).sum(1).max()),
}  # fmt: skip


@pytest.mark.parametrize("op", SUMS)
def test_the_largest_sum_inside_an_operator(op: str) -> None:
    attributes, expected = SUMS[op]
    node = ir.node(op, [ir.val("x")], attributes)
    assert op in accumulate.ACCUMULATING
    assert accumulate.largest_sum(node, X) == pytest.approx(expected, rel=1e-6)


def test_axes_as_an_input_and_axes_that_are_computed(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("ReduceSum", ["x", "axes"], ["y"], "known", keepdims=0),
        helper.make_node("ReduceSum", ["x", "some"], ["z"], "unknown"),
    ]
    inputs = [value("x", ["N", 4, 6]), value("some", [1], 7)]
    outputs = [value("y", None), value("z", None)]
    net = graph.load(
        save(model(nodes, inputs, outputs, [weight("axes", np.array([1, 2]))]), tmp_path / "m.onnx")
    )
    some = np.array([1])
    found = observe(net, Samples({"x": X, "some": some}, None, "test", ("some",)), quiet)
    assert found["x"].sums == {"known": pytest.approx(np.abs(np.cumsum(WIDE.reshape(2, -1), 1)).max())}


def test_the_smallest_divisor_of_a_normalisation() -> None:
    node = ir.node("LayerNormalization", [ir.val("x")], {"axis": -1, "epsilon": 1e-12})
    flat = np.concatenate([X, np.full((2, 4, 6), 3.0, np.float32)])
    assert accumulate.smallest_divisor(node, X) == pytest.approx(WIDE.var(-1).min(), rel=1e-6)
    assert accumulate.smallest_divisor(node, flat) == pytest.approx(1e-12, rel=1e-6)
    assert accumulate.smallest_divisor(ir.node("Relu", [ir.val("x")]), X) is None


def test_a_sequence_of_floats_has_no_range(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("SequenceConstruct", ["x", "x"], ["s"], "make"),
        helper.make_node("ConcatFromSequence", ["s"], ["c"], "join", axis=1),
        helper.make_node("Relu", ["c"], ["y"], "relu"),
    ]
    proto = model(nodes, [value("x", [2, 3])], [value("y", [2, 6])], [])
    x = np.arange(-3, 3, dtype=np.float32).reshape(2, 3)
    found = observe(graph.load(save(proto, tmp_path / "m.onnx")), Samples({"x": x}, None, "test"), quiet)
    assert {name: (seen.low, seen.high) for name, seen in found.items()} == {
        "x": (-3, 2),
        "c": (-3, 2),
        "y": (0, 2),
    }
