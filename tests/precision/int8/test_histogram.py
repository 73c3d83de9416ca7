"""Histograms of activations against the arrays they were counted from."""

import numpy as np
import pytest
from fakes import models
from onnx import TensorProto, helper

from wavefit.errors import InputError
from wavefit.model.samples import Samples
from wavefit.precision import graph
from wavefit.precision.int8.histogram import BINS, collect, histogram, merged


def _quiet(_: str) -> None:
    pass


def _load(proto, tmp_path):
    return graph.load(models.save(proto, tmp_path / "model.onnx"))


def _samples(seed: int = 0, count: int = 20, name: str = "image", shape=(3, 8, 8)) -> Samples:
    array = np.random.default_rng(seed).normal(size=(count, *shape)).astype(np.float32)
    return Samples({name: array}, None, "test")


@pytest.mark.parametrize("scale", [1e-6, 0.3, 1.0, 7.0, 6e4, 1e30])
def test_bins_hold_what_numpy_counts(scale: float) -> None:
    array = (np.random.default_rng(1).normal(size=5000) * scale).astype(np.float32)
    found = histogram(array)
    assert found.counts.tolist() == np.histogram(array.astype(np.float64), found.edges)[0].tolist()
    assert (found.low, found.high) == (array.min(), array.max())
    assert found.limit / 2 <= np.abs(array).max() <= found.limit


def test_a_range_that_grows_gives_the_histogram_of_all_at_once() -> None:
    random = np.random.default_rng(2)
    parts = [(random.normal(size=500) * scale).astype(np.float32) for scale in (1e-3, 40.0, 0.5, 3000.0)]
    found = histogram(parts[0])
    for part in parts[1:]:
        found = merged(found, histogram(part))
    whole = histogram(np.concatenate(parts))
    assert found.counts.tolist() == whole.counts.tolist()
    assert (found.limit, found.low, found.high, found.total) == (whole.limit, whole.low, whole.high, 2000)


def test_zeros_are_counted_apart() -> None:
    found = histogram(np.array([0.0, -0.0, 1.0, 0.0, 1e-40], np.float32))
    assert (found.zeros, found.counts.sum(), found.total) == (3, 2, 5)


def test_what_is_not_finite_is_in_no_bin() -> None:
    found = histogram(np.array([np.nan, np.inf, -np.inf, 2.0], np.float32))
    assert (found.nonfinite, found.total, found.low, found.high) == (3, 1, 2.0, 2.0)


@pytest.mark.parametrize("array", [np.zeros(7, np.float32), np.full(3, np.nan, np.float32)])
def test_nothing_but_zeros_or_nans_has_a_range_of_zero(array: np.ndarray) -> None:
    found = merged(histogram(array), histogram(array))
    assert (found.low, found.high, found.counts.sum()) == (0.0, 0.0, 0)


def test_an_empty_histogram_does_not_pull_the_range_to_zero() -> None:
    found = merged(histogram(np.full(3, np.nan, np.float32)), histogram(np.array([3.0, 5.0], np.float32)))
    assert (found.low, found.high) == (3.0, 5.0)


@pytest.mark.parametrize("axis", [1, 3])
def test_the_range_of_each_channel(axis: int) -> None:
    random = np.random.default_rng(3)
    parts = [random.normal(size=(2, 3, 4, 5)).astype(np.float32) for _ in range(3)]
    parts[1][0, 0, 0, 0] = np.nan
    found = histogram(parts[0], axis)
    for part in parts[1:]:
        found = merged(found, histogram(part, axis))
    whole = np.moveaxis(np.concatenate(parts), axis, 0).reshape(parts[0].shape[axis], -1)
    assert found.channel_low.tolist() == np.nanmin(whole, axis=1).tolist()
    assert found.channel_high.tolist() == np.nanmax(whole, axis=1).tolist()


def test_collect_sees_every_item_once(tmp_path) -> None:
    model = _load(models.conv_net(), tmp_path)
    samples = _samples(count=20)  # batches of 8, 8 and 4
    found = collect(model, samples, None, _quiet, {"r": 1})
    arrays = graph.Runner(model, tuple(name for name in found if name != "image"))(samples.inputs)
    arrays["image"] = samples.inputs["image"]
    assert set(found) == {"image", "c", "r", "p", "f", "logits"}
    for name, array in arrays.items():
        assert found[name].total == array.size
        assert found[name].low == pytest.approx(array.min(), rel=1e-6)
        assert found[name].high == pytest.approx(array.max(), rel=1e-6)
    assert found["r"].channel_high == pytest.approx(arrays["r"].max(axis=(0, 2, 3)), rel=1e-6)
    assert found["r"].zeros == np.count_nonzero(arrays["r"] == 0)


def test_collect_fills_the_batch_that_a_model_is_frozen_to(tmp_path) -> None:
    model = _load(models.conv_net(batch=4), tmp_path)
    assert collect(model, _samples(count=4), ["p"], _quiet)["p"].total == 4 * 8


def test_a_large_model_is_run_with_some_values_at_a_time(tmp_path, monkeypatch) -> None:
    model = _load(models.conv_net(), tmp_path)
    whole = collect(model, _samples(), None, _quiet)
    monkeypatch.setattr("wavefit.precision.int8.histogram._BUDGET_BYTES", 20_000)
    said: list[str] = []
    found = collect(model, _samples(), None, said.append)
    assert len(said) > 1
    assert {name: each.counts.tolist() for name, each in found.items()} == {
        name: each.counts.tolist() for name, each in whole.items()
    }


def test_values_of_unknown_shape_are_measured_by_a_run(tmp_path) -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["at"], "nonzero"),
        helper.make_node("Cast", ["at"], ["y"], "cast", to=TensorProto.FLOAT),
    ]
    proto = models.model(nodes, [models.value("x", ["N", 16])], [models.value("y", [2, None])])
    samples = _samples(name="x", shape=(16,), count=5)
    assert collect(_load(proto, tmp_path), samples, ["y"], _quiet)["y"].total == 2 * 5 * 16


@pytest.mark.parametrize("name", ["conv_w", "nothing"])
def test_a_constant_or_unknown_value_is_refused(tmp_path, name: str) -> None:
    with pytest.raises(InputError, match=name):
        collect(_load(models.conv_net(), tmp_path), _samples(), [name], _quiet)


def test_no_items_are_refused(tmp_path) -> None:
    with pytest.raises(InputError, match="calibration"):
        collect(_load(models.conv_net(), tmp_path), _samples(count=0), None, _quiet)


def test_memory_does_not_grow_with_the_items() -> None:
    found = histogram(np.ones(3, np.float32))
    for number in range(50):
        found = merged(found, histogram(np.full(3, 2.0**number, np.float32)))
    assert found.counts.shape == (BINS,)
    assert found.total == 153
