"""The data in two parts, what is said of odd ones, and the same items twice as large."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from wavefit.guard.reference import guard_items
from wavefit.model.load import load
from wavefit.model.samples import Samples
from wavefit.precision.search.data import odd, split, twice_as_large
from wavefit.schema import Model


def _model(folder: Path, shape: list[object]) -> Model:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])], "g", [value("x", 1, shape)], [value("y", 1, shape)]
    )
    path = folder / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return load(path)


def _samples(count: int, labels: bool = True) -> Samples:
    array = np.random.default_rng(0).normal(size=(count, 3)).astype(np.float32)
    return Samples({"x": array}, np.arange(count) % 4 if labels else None, "made up")


@pytest.mark.parametrize("count", [2, 9, 16, 100, 1000])
def test_parts_share_no_item_and_the_guards_items_are_held_out(tmp_path: Path, count: int) -> None:
    model, samples = _model(tmp_path, ["N", 3]), _samples(count)
    parts = split(model, samples, seed=0)
    rows = [{row.tobytes() for row in part.inputs["x"]} for part in (parts.calibration, parts.heldout)]
    if count <= 8:  # all are the guard's
        assert rows[0] == rows[1]
        assert "the same" in parts.notes[0]
        return
    assert rows[0].isdisjoint(rows[1])
    assert {samples.inputs["x"][item].tobytes() for item in guard_items(model, samples)} <= rows[1]
    assert len(rows[0]) <= 256
    assert parts.heldout.labels is not None
    assert len(parts.heldout.labels) == parts.heldout.count


def test_the_seed_draws_the_parts(tmp_path: Path) -> None:
    model, samples = _model(tmp_path, ["N", 3]), _samples(100)
    first, again, other = (split(model, samples, seed).calibration.inputs["x"] for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_a_frozen_batch_gets_whole_batches(tmp_path: Path) -> None:
    parts = split(_model(tmp_path, [4, 3]), _samples(40), seed=0)
    assert parts.calibration.count % 4 == 0
    assert parts.heldout.count % 4 == 0


def test_odd_sets_are_told() -> None:
    few = odd(_samples(3))
    assert any("3 items, which is few" in note for note in few)
    copies = Samples({"x": np.ones((64, 3), np.float32)}, np.zeros(64, int), "made up")
    told = odd(copies, np.arange(64) % 4)
    assert any("63 of 64 calibration items are copies" in note for note in told)
    assert any("'x' is 1 everywhere" in note for note in told)
    assert any("3 of 4 classes are in no calibration item" in note for note in told)
    assert odd(_samples(64), np.arange(64) % 4) == ()


def test_items_are_repeated_along_symbolic_axes_only(tmp_path: Path) -> None:
    samples = Samples({"x": np.arange(24.0, dtype=np.float32).reshape(2, 3, 4)}, None, "made up")
    grown = twice_as_large(_model(tmp_path, ["N", 3, "width"]), samples)
    assert grown is not None
    assert grown.inputs["x"].shape == (2, 3, 8)
    assert np.array_equal(grown.inputs["x"][..., 4:], samples.inputs["x"])
    assert twice_as_large(_model(tmp_path, ["N", 3, 4]), samples) is None
