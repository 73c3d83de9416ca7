"""Blame falls on the node that was planted, and an error that the outputs never see is none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fakes.models import conv_net, model, save, value, weight
from onnx import helper
from precision.cases import attention_overflow
from precision.judging import Bench

from wavefit.model.samples import Samples
from wavefit.precision import graph
from wavefit.precision.half.attribute import attribute, own_errors


def test_the_overflowing_nodes_come_first(tmp_path: Path) -> None:
    bench = Bench(attention_overflow.build(tmp_path / "m.onnx"))
    order = attribute(bench.graph, bench.nodes, bench.calibration)
    assert sorted(order) == sorted(bench.nodes)
    assert set(order[:2]) == bench.case.minimal


def test_a_nodes_own_error_is_that_of_numpy_half(tmp_path: Path) -> None:
    """y = x * 3.3: the product of two rounded halves, rounded again."""
    nodes = [helper.make_node("Mul", ["x", "c"], ["y"], "mul")]
    proto = model(nodes, [value("x", ["N", 64])], [value("y", ["N", 64])], [weight("c", np.float32(3.3))])
    x = np.random.default_rng(0).normal(size=(3, 64)).astype(np.float32)
    loaded = graph.load(save(proto, tmp_path / "m.onnx"))
    found = own_errors(loaded, ["mul"], Samples({"x": x}, None, "test"))
    exact = x.astype(np.float64) * np.float32(3.3)
    half = (x.astype(np.float16).astype(np.float32) * np.float32(np.float16(3.3))).astype(np.float16)
    expected = np.linalg.norm(half - exact) / np.linalg.norm(exact)
    assert found["mul"] == pytest.approx(expected, rel=1e-3)


def test_an_error_that_never_reaches_the_outputs_comes_last(tmp_path: Path) -> None:
    """Two branches lose their input under half's smallest number; one of them is multiplied by 0."""
    weights = [
        weight("small", np.float32(1e-7)), weight("large", np.float32(3e4)), weight("zero", np.float32(0))
    ]  # fmt: skip
    nodes = [
        helper.make_node("Mul", ["x", "small"], ["a"], "unseen"),
        helper.make_node("Mul", ["a", "zero"], ["b"], "nothing"),
        *(
            helper.make_node("Relu", ["b" if i == 0 else f"r{i - 1}"], [f"r{i}"], f"relu{i}")
            for i in range(40)
        ),
        helper.make_node("Mul", ["x", "small"], ["c"], "seen"),
        helper.make_node("Mul", ["c", "large"], ["d"], "back"),
        helper.make_node("Add", ["d", "r39"], ["y"], "add"),
    ]
    proto = model(nodes, [value("x", ["N", 64])], [value("y", ["N", 64])], weights)
    loaded = graph.load(save(proto, tmp_path / "m.onnx"))
    x = np.random.default_rng(0).normal(size=(2, 64)).astype(np.float32)
    order = attribute(loaded, list(graph.nodes(loaded)), Samples({"x": x}, None, "test"))
    assert order[0] in ("seen", "back")
    assert order.index("seen") < order.index("unseen")


def test_a_frozen_batch(tmp_path: Path) -> None:
    loaded = graph.load(save(conv_net(batch=3), tmp_path / "m.onnx"))
    x = np.random.default_rng(0).normal(size=(6, 3, 8, 8)).astype(np.float32)
    names = list(graph.nodes(loaded))
    assert sorted(attribute(loaded, names, Samples({"image": x}, None, "test"))) == sorted(names)
