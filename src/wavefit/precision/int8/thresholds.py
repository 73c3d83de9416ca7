"""Ranges that clip what is rare, found from a histogram."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from wavefit.precision.int8.histogram import Histogram

Range = tuple[float, float]

_STEPS = 100  # that a common threshold is tried at
_NEAR = 10  # that each end is tried at on either side of the best: in those steps, then in tenths of them
_ROUNDS = 2
_ENTROPY_BINS = 2048
_ENTROPY_STRIDE = 8  # bins between two thresholds: 0.4 to 0.8 % of the range
_EPSILON = (
    1e-4  # that MXNet and ONNX Runtime put where a distribution is zero, as the logarithm of zero is infinite
)


def percentile_range(found: Histogram, percentile: float) -> Range:
    """The range that holds that share of the elements, in percent, an equal share cut from each end.

    A one-sided value is cut at its far end only, by the whole share: after Relu the near end is zero, and stays.
    Right to the width of a bin.
    """
    edges, below = _cumulative(found)
    cut = (1 - percentile / 100) * found.total
    if found.low >= 0:
        return found.low, min(_at(edges, below, found.total - cut), found.high)
    if found.high <= 0:
        return max(_at(edges, below, cut), found.low), found.high
    low = _at(edges, below, cut / 2)
    high = _at(edges, below, found.total - cut / 2)
    return max(low, found.low), min(high, found.high)


def entropy_range(found: Histogram, levels: int) -> Range:
    """The range whose integers say most about the floats: least Kullback-Leibler divergence.

    As published by NVIDIA (S. Migacz, 8-bit Inference with TensorRT, GTC 2017, "Entropy calibration - pseudocode"):
    of the histogram of magnitudes in up to 2048 bins, the first i are the reference P, with all behind added to
    the last of them, and Q is the same without those, summed into the levels and spread over the bins that P has.
    Exact zeros are left out: whatever the range, they are stored exactly.

    Args:
        levels: that magnitudes are stored in: 128 for both signs in 8 bits, 256 for one in uint8.
    """
    counts, width = _magnitudes(found)
    if len(counts) <= levels or not counts.any():
        return found.low, found.high
    ends = [*range(levels, len(counts), _ENTROPY_STRIDE), len(counts)]
    best = min(ends, key=lambda end: _divergence(counts, end, levels))
    return max(found.low, -best * width), min(found.high, best * width)


def mse_range(found: Histogram, error: Callable[[Range], float]) -> Range:
    """The range with the least expected squared error.

    A common threshold for both ends is tried over a grid, then each end by itself, then about the best found.

    Args:
        error: of a range, as :func:`squared_error` says.
    """
    reach = max(-found.low, found.high)
    grid = reach * np.arange(1, _STEPS + 1) / _STEPS
    clipped = [(max(found.low, -t), min(found.high, t)) for t in grid]
    best = min(clipped, key=error)
    for step in (reach / _STEPS,) * _ROUNDS + (reach / _STEPS / 10,) * _ROUNDS:
        best = min([best, *((best[0], high) for high in _near(best[1], step, 0.0, found.high))], key=error)
        best = min([best, *((low, best[1]) for low in _near(best[0], step, found.low, 0.0))], key=error)
    return best


def squared_error(found: Histogram, scale: float, low: float, high: float) -> float:
    """Sum of the squared errors of rounding to steps of ``scale`` within [low, high]; each bin counts at its middle."""
    occupied = np.flatnonzero(found.counts)
    width = 2 * found.limit / len(found.counts)
    middles = (occupied + 0.5) * width - found.limit
    stored = np.clip(np.rint(middles / scale) * scale, low, high)
    return float(np.sum(found.counts[occupied] * (middles - stored) ** 2))


def _near(end: float, step: float, least: float, greatest: float) -> np.ndarray:
    """Places about an end of the range, within its bounds."""
    places = end + step * np.arange(-_NEAR, _NEAR + 1)
    return places[(places >= least) & (places <= greatest) & (places != end)]


def _magnitudes(found: Histogram) -> tuple[np.ndarray, float]:
    """Counts of magnitudes in at most 2048 bins that reach to the greatest, and the width of a bin."""
    middle = len(found.counts) // 2
    counts = found.counts[middle:] + found.counts[:middle][::-1]
    counts = counts.reshape(_ENTROPY_BINS, -1).sum(axis=1)
    occupied = np.flatnonzero(counts)
    return counts[: occupied[-1] + 1 if occupied.size else 0], found.limit / _ENTROPY_BINS


def _divergence(counts: np.ndarray, end: int, levels: int) -> float:
    within = counts[:end].astype(np.float64)
    reference = within.copy()
    reference[-1] += counts[end:].sum()
    level = np.minimum(np.arange(end) * levels // end, levels - 1)
    present = reference > 0
    sums = np.bincount(level, within, levels)
    sharers = np.bincount(level, present, levels)
    candidate = np.where(present, (sums / np.maximum(sharers, 1))[level], 0.0)
    if not candidate.any():
        return np.inf
    p, q = _smooth(reference), _smooth(candidate)
    return float(np.sum(p * np.log(p / q)))


def _smooth(distribution: np.ndarray) -> np.ndarray:
    """As probabilities without zeros: what they are given is taken evenly from the others."""
    shares = distribution / distribution.sum()
    empty = shares == 0
    shares = np.maximum(shares - _EPSILON * empty.sum() / max((~empty).sum(), 1), _EPSILON)
    shares[empty] = _EPSILON
    return np.asarray(shares / shares.sum())


def _cumulative(found: Histogram) -> tuple[np.ndarray, np.ndarray]:
    """Edges, and elements below each; the edge that is zero stands twice, before and after the exact zeros."""
    middle = len(found.counts) // 2
    below = np.concatenate([[0], np.cumsum(found.counts)]).astype(np.float64)
    edges = found.edges
    stepped = np.concatenate([below[: middle + 1], below[middle:] + found.zeros])
    return np.concatenate([edges[: middle + 1], edges[middle:]]), stepped


def _at(edges: np.ndarray, below: np.ndarray, count: float) -> float:
    return float(np.interp(count, below, edges))
