"""Ranges against brute force over the raw values, numpy.percentile and ONNX Runtime's calibrators."""

from dataclasses import replace

import numpy as np
import pytest

from wavefit.errors import InputError
from wavefit.precision.int8.calibrate import METHODS, Quantised, parameters, quantised
from wavefit.precision.int8.histogram import Histogram, histogram
from wavefit.precision.int8.targets import CPU, Target
from wavefit.precision.int8.thresholds import percentile_range

SIGNED = replace(CPU, activation="int8", symmetric=True)
AFFINE = replace(CPU, activation="int8")
WIDE = replace(CPU, activation="uint16")


def _values(kind: str, count: int = 20_000) -> np.ndarray:
    random = np.random.default_rng(7)
    spread = {
        "normal": random.normal(0.5, 1.0, count),
        "relu": np.maximum(random.normal(0, 1.0, count), 0),
        "laplace": random.laplace(0, 1.0, count),
        "negative": -random.exponential(2.0, count),
        "outlier": np.concatenate([random.normal(0, 1, count), [40.0, -3.0]]),
        "lognormal": random.lognormal(0, 1.2, count),
    }
    return spread[kind].astype(np.float32)


def _one(values: np.ndarray, method: str, target: Target = CPU, **more: float) -> Quantised:
    return parameters({"v": histogram(values)}, method, target, **more)["v"]


def _stored(values: np.ndarray, to: Quantised) -> np.ndarray:
    """By the definition of ONNX's QuantizeLinear."""
    limits = np.iinfo(to.type)
    return np.clip(np.rint(values.astype(np.float64) / to.scale) + to.zero_point, limits.min, limits.max)


def _error(values: np.ndarray, to: Quantised) -> float:
    restored = (_stored(values, to) - to.zero_point) * to.scale
    return float(np.mean((values.astype(np.float64) - restored) ** 2))


@pytest.mark.parametrize("target", [CPU, SIGNED, AFFINE, WIDE], ids=["u8", "s8", "s8 affine", "u16"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ["normal", "relu", "negative", "outlier"])
def test_zero_is_exact_and_the_zero_point_fits_its_type(target: Target, method: str, kind: str) -> None:
    to = _one(_values(kind), method, target)
    limits = np.iinfo(target.activation)
    assert limits.min <= to.zero_point <= limits.max
    assert _stored(np.zeros(1), to)[0] == to.zero_point
    assert to.type == target.activation
    assert to.scale == np.float32(to.scale)
    assert to.low == pytest.approx((limits.min - to.zero_point) * to.scale)
    assert to.high == pytest.approx((limits.max - to.zero_point) * to.scale)
    assert to.zero_point == 0 or not target.symmetric


@pytest.mark.parametrize("target", [CPU, SIGNED, AFFINE, WIDE], ids=["u8", "s8", "s8 affine", "u16"])
@pytest.mark.parametrize("kind", ["normal", "relu", "negative"])
def test_min_max_clips_nothing(target: Target, kind: str) -> None:
    values = _values(kind)
    to = _one(values, "minmax", target)
    assert _error(values, to) <= (to.scale / 2) ** 2 * 1.01
    ends = _stored(np.array([values.min(), values.max()]), to)
    limits = np.iinfo(to.type)
    assert ends[0] <= limits.min + target.symmetric or ends[1] == limits.max


def test_what_comes_from_relu_uses_all_of_uint8() -> None:
    values = _values("relu")
    to = _one(values, "minmax")
    assert to.zero_point == 0
    assert to.scale == pytest.approx(values.max() / 255)


def test_only_negative_values_use_all_of_uint8() -> None:
    values = _values("negative")
    to = _one(values, "minmax")
    assert to.zero_point == 255
    assert to.scale == pytest.approx(-values.min() / 255)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("target", [CPU, SIGNED], ids=["u8", "s8"])
@pytest.mark.parametrize("constant", [0.0, 3.0, -2.0, 1e-30])
def test_a_constant_is_stored_within_a_step(method: str, target: Target, constant: float) -> None:
    values = np.full(100, constant, np.float32)
    to = _one(values, method, target)
    restored = (_stored(values, to) - to.zero_point) * to.scale
    assert np.isfinite(to.scale)
    assert to.scale > 0
    assert restored[0] == pytest.approx(constant, rel=0.01, abs=1e-37)


def test_values_that_are_all_zero_have_scale_one() -> None:
    assert _one(np.zeros(9, np.float32), "mse") == Quantised(1.0, 0, "uint8", 0.0, 255.0)


@pytest.mark.parametrize("percent", [99.0, 99.9, 99.99])
@pytest.mark.parametrize("kind", ["relu", "lognormal", "negative", "laplace"])
def test_percentiles_are_numpys_to_a_bin(percent: float, kind: str) -> None:
    values = _values(kind, 200_000).astype(np.float64)
    found = histogram(values)
    width, one = 2 * found.limit / len(found.counts), 100 / len(values)
    tail = (100 - percent) / (1 if values.min() >= 0 or values.max() <= 0 else 2)
    low, high = percentile_range(found, percent)
    if values.min() < 0:
        near = np.percentile(values, [tail - one, tail + one])
        assert near[0] - width <= low <= near[1] + width
    if values.max() > 0:
        near = np.percentile(values, [100 - tail - one, 100 - tail + one])
        assert near[0] - width <= high <= near[1] + width
    assert (low >= 0) == (values.min() >= 0)


def test_a_percentile_of_100_is_min_max() -> None:
    values = _values("outlier")
    assert _one(values, "percentile", percentile=100) == _one(values, "minmax")


def _exhaustive(values: np.ndarray, target: Target) -> float:
    """The least error of any pair of ends on a fine grid, on the raw values."""
    lows = np.linspace(0, min(values.min(), 0), 60) if values.min() < 0 else [0.0]
    highs = np.linspace(0, max(values.max(), 0), 60) if values.max() > 0 else [0.0]
    if target.symmetric:
        reach = np.abs(values).max()
        pairs = [(-t, t) for t in np.linspace(reach / 1000, reach, 1000)]
    elif len(lows) == 1:
        pairs = [(0.0, high) for high in np.linspace(values.max() / 1000, values.max(), 1000)]
    elif len(highs) == 1:
        pairs = [(low, 0.0) for low in np.linspace(values.min() / 1000, values.min(), 1000)]
    else:
        pairs = [(low, high) for low in lows for high in highs if high > low]
    return min(_error(values, quantised(low, high, target)) for low, high in pairs)


@pytest.mark.parametrize("target", [CPU, SIGNED], ids=["u8", "s8"])
@pytest.mark.parametrize("kind", ["normal", "relu", "laplace", "negative", "outlier", "lognormal"])
def test_mse_is_as_good_as_every_threshold_tried_on_the_raw_values(target: Target, kind: str) -> None:
    values = _values(kind, 3000)
    assert _error(values, _one(values, "mse", target)) <= 1.03 * _exhaustive(values, target)


def test_mse_clips_an_outlier_that_min_max_keeps() -> None:
    values = np.concatenate([_values("normal", 1_000_000), [100.0]]).astype(np.float32)
    assert _error(values, _one(values, "mse")) < 0.5 * _error(values, _one(values, "minmax"))


def _published_entropy(magnitudes: np.ndarray, levels: int = 128, bins: int = 2048) -> float:
    """The pseudocode of the talk, bin by bin in Python."""
    counts, edges = np.histogram(magnitudes, bins, (0, magnitudes.max()))
    best = (np.inf, 0)
    for end in range(levels, bins + 1, 64):
        p = counts[:end].astype(float)
        p[-1] += counts[end:].sum()
        q = np.zeros(end)
        for level in range(levels):
            inside = [i for i in range(end) if i * levels // end == level]
            filled = [i for i in inside if p[i] > 0]
            for i in filled:
                q[i] = counts[inside].sum() / len(filled)
        p, q = _without_zeros(p), _without_zeros(q)
        best = min(best, (float(np.sum(p * np.log(p / q))), end))
    return float(edges[best[1]])


def _without_zeros(distribution: np.ndarray) -> np.ndarray:
    shares = distribution / distribution.sum()
    empty = shares == 0
    shares = np.maximum(shares - 1e-4 * empty.sum() / (~empty).sum(), 1e-4)
    shares[empty] = 1e-4
    return shares / shares.sum()


@pytest.mark.parametrize("kind", ["laplace", "normal"])
def test_entropy_is_the_published_threshold(kind: str) -> None:
    values = _values(kind, 50_000)
    to = _one(values, "entropy", SIGNED)
    assert to.high == pytest.approx(_published_entropy(np.abs(values[values != 0])), rel=0.1)


def test_entropy_is_near_onnxruntimes() -> None:
    calibrate = pytest.importorskip("onnxruntime.quantization.calibrate")
    values = _values("laplace", 50_000)
    collector = calibrate.HistogramCollector(
        method="entropy",
        symmetric=True,
        num_bins=2048,
        num_quantized_bins=128,
        percentile=99.9,
        scenario="same",
    )
    collector.collect({"v": [values]})
    theirs = float(collector.compute_collection_result()["v"][1])
    assert _one(values, "entropy", SIGNED).high == pytest.approx(theirs, rel=0.25)


def test_entropy_cuts_a_lone_outlier() -> None:
    assert _one(_values("outlier"), "entropy").high < 15


def test_entropy_takes_all_of_a_uniform_spread() -> None:
    values = np.random.default_rng(0).uniform(0, 4, 100_000).astype(np.float32)
    assert _one(values, "entropy").high == pytest.approx(4, rel=0.02)


@pytest.mark.parametrize("method", ["percentile", "entropy", "mse"])
def test_no_method_reaches_past_min_and_max(method: str) -> None:
    for kind in ("normal", "lognormal", "negative"):
        values = _values(kind)
        whole, to = _one(values, "minmax"), _one(values, method)
        assert to.scale <= whole.scale * (1 + 1e-6)


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(InputError, match="best"):
        parameters({}, "best", CPU)  # type: ignore[arg-type]


@pytest.mark.parametrize("percent", [0, 50, 100.1])
def test_a_percentile_outside_its_range_is_refused(percent: float) -> None:
    with pytest.raises(InputError, match="percentile"):
        parameters({}, "percentile", CPU, percent)


def test_a_histogram_of_nothing_finite_has_scale_one() -> None:
    empty: Histogram = histogram(np.full(4, np.nan, np.float32))
    assert parameters({"v": empty}, "mse", CPU)["v"].scale == 1.0
