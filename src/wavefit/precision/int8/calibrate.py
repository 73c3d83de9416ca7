"""Scale and zero point of every activation, from its histogram."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from wavefit.errors import InputError
from wavefit.precision.int8.histogram import Histogram
from wavefit.precision.int8.targets import LIMITS, Target
from wavefit.precision.int8.thresholds import Range, entropy_range, mse_range, percentile_range, squared_error

Method = Literal["minmax", "percentile", "entropy", "mse"]
METHODS: tuple[Method, ...] = ("minmax", "percentile", "entropy", "mse")
PERCENTILES = (99.9, 99.99, 99.999)

_SMALLEST_SCALE = float(np.finfo(np.float32).tiny)  # a subnormal scale is zero on a device that flushes them


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
            "entropy": least divergence, see :func:`wavefit.precision.int8.thresholds.entropy_range`.
            "mse": least squared error, see :func:`wavefit.precision.int8.thresholds.mse_range`.
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


def _range(found: Histogram, method: Method, target: Target, percentile: float) -> Range:
    if found.total == found.zeros or method == "minmax":
        return found.low, found.high
    if method == "percentile":
        return percentile_range(found, percentile)
    if method == "entropy":
        return entropy_range(found, _levels(found, target))
    return mse_range(found, lambda ends: _error(found, quantised(*ends, target)))


def _levels(found: Histogram, target: Target) -> int:
    """Integers that magnitudes have: half of all, or all where only one sign is there and the zero point may move."""
    least, greatest = LIMITS[target.activation]
    one_sided = found.low >= 0 or found.high <= 0
    whole = greatest - least + 1
    return whole if one_sided and (least == 0 or not target.symmetric) else whole // 2


def _error(found: Histogram, to: Quantised) -> float:
    return squared_error(found, to.scale, to.low, to.high)
