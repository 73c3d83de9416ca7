"""Scale and zero point of every activation, from its histogram."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from wavefit.errors import InputError
from wavefit.precision.histogram import Histogram
from wavefit.precision.targets import LIMITS, Target

Method = Literal["minmax", "percentile", "entropy", "mse"]
METHODS: tuple[Method, ...] = ("minmax", "percentile", "entropy", "mse")
PERCENTILES = (99.9, 99.99, 99.999)

_SMALLEST_SCALE = float(np.finfo(np.float32).tiny)  # a subnormal scale is zero on a device that flushes them
_CANDIDATES = 100  # clipping thresholds that MSE tries an end


@dataclass(frozen=True)
class Quantised:
    """How a value is stored in integers: real = scale * (stored - zero_point).

    Args:
        type: numpy's name of the stored type: "uint8".
        low, high: the reals of the least and the greatest stored number.
    """

    scale: float
    zero_point: int
    type: str
    low: float
    high: float


def parameters(
    histograms: Mapping[str, Histogram], method: Method, target: Target, percentile: float = 99.99
) -> dict[str, Quantised]:
    """Scale and zero point by value name.

    Args:
        method: how the range is chosen that the integers span.
            "minmax": the least and the greatest element.
            "percentile": that share of the elements, an equal share cut from each end.
            "entropy": see :func:`entropy_range`.
            "mse": see :func:`mse_range`.
        percentile: of "percentile", in percent.

    Raises:
        InputError: an unknown method, or a percentile outside 50 to 100.
    """
    if method not in METHODS:
        raise InputError(f"there is no calibration method {method!r}", f"use one of {', '.join(METHODS)}")
    if not 50 < percentile <= 100:
        raise InputError(f"percentile {percentile} lies outside 50 to 100")
    return {
        name: quantised(*_range(found, method, target, percentile), target)
        for name, found in histograms.items()
    }


def quantised(low: float, high: float, target: Target) -> Quantised:
    """The activation type's whole range laid over [low, high], widened to hold zero, which is stored exactly.

    A range of one point at zero has scale 1: whatever is stored then is zero.
    """
    low, high = min(low, 0.0), max(high, 0.0)
    least, greatest = LIMITS[target.activation]
    if target.symmetric:
        reach = max(-low, high)
        low, high = (0.0 if least == 0 else -reach), reach
        steps = greatest if least < 0 else greatest - least
        scale = _scale(reach / steps)
        zero = 0
    else:
        scale = _scale((high - low) / (greatest - least))
        zero = int(np.clip(np.rint(least - low / scale), least, greatest))
    return Quantised(scale, zero, target.activation, (least - zero) * scale, (greatest - zero) * scale)


def _scale(scale: float) -> float:
    """As float32 holds it; 1 for nothing."""
    return float(np.float32(max(scale, _SMALLEST_SCALE))) if scale > 0 else 1.0


def _range(found: Histogram, method: Method, target: Target, percentile: float) -> tuple[float, float]:
    if found.total == found.zeros or method == "minmax":
        return found.low, found.high
    if method == "percentile":
        return percentile_range(found, percentile)
    return found.low, found.high


def percentile_range(found: Histogram, percentile: float) -> tuple[float, float]:
    """The range that holds that share of the elements, in percent, an equal share cut from each end.

    A one-sided value is cut at its far end only, by the whole share: after Relu the near end is zero, and stays.
    Right to the width of a bin.
    """
    edges, cumulative = _cumulative(found)
    cut = (1 - percentile / 100) * found.total
    if found.low >= 0:
        return found.low, min(_at(edges, cumulative, found.total - cut), found.high)
    if found.high <= 0:
        return max(_at(edges, cumulative, cut), found.low), found.high
    low = _at(edges, cumulative, cut / 2)
    high = _at(edges, cumulative, found.total - cut / 2)
    return max(low, found.low), min(high, found.high)


def _cumulative(found: Histogram) -> tuple[np.ndarray, np.ndarray]:
    """Edges, and elements below each; zeros are counted in at the edge that is zero, as a step there."""
    middle = len(found.counts) // 2
    below = np.concatenate([[0], np.cumsum(found.counts)]).astype(np.float64)
    stepped = np.concatenate([below[: middle + 1], below[middle:] + found.zeros])
    edges = found.edges
    return np.concatenate([edges[: middle + 1], edges[middle:]]), stepped


def _at(edges: np.ndarray, cumulative: np.ndarray, count: float) -> float:
    return float(np.interp(count, cumulative, edges))
