"""Channels that say nothing any more, in an output whose other channels are so much larger that no norm shows it.

A detector gives boxes up to 640 beside scores up to 1 in one tensor. Where the scores are all zero, the tensor's
relative L2 error is 1e-3 at most, and nothing is found. So each channel, on axis 1 and on the last, is looked at by
itself over all items and positions. It is lost where

- the energy of its error is more than half of its variance in the reference, so that the candidate explains less than
  half of what the channel says (a coefficient of determination under 0.5), and more than a quarter of its own energy,
  so that an offset of a channel that hardly varies is left to the norm of the whole;
- it says something: its standard deviation is beyond 4 times the reference's own error against float64 in that
  channel, 4 roundings of its own values, and 2^8 roundings of the reference at the size of the largest channel;
- it is of the size of the others (at least a quarter of the largest standard deviation), and its error more than 4
  times that of the median channel, so that it is no channel that happens to vary little among noise that is allowed;
  or it is of a size of its own (no channel lies between it and 16 times as much); or nine tenths of the channels of
  its size, and three at least, are nearly free of error, so that it is no step too wide that it was lost to.

The small end of many channels, as features after Relu or classes that no item shows, fades into the others, and its
loss does no harm.

Probabilities (all between 0 and 1) have one unit, so that a channel of them that stays near 0 is no other kind of
number but a class that does not occur: of those, only channels of the size of the largest count.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from wavefit.guard.limits import Limits

_FEWEST, _MOST = 2, 4096  # channels
_LEAST_VALUES = 4  # of a channel, to speak of a variance
_UNEXPLAINED = 0.5  # of the variance
_OWN_ENERGY = 0.25
_NOISE, _NOISE_OF_LARGEST = 4.0, 2.0**8
_ORDINARY = 0.25  # of the largest standard deviation
_OUTLYING = 4.0  # times the median channel's error
_GAP = 16.0
_ALIKE, _ALIKE_SHARE, _ALIKE_LEAST = (
    2.0,
    0.9,
    3,
)  # channels of one size: a factor, how many of them, and at least
_CLEAR = 0.05  # of the variance: an error that explains no loss beside it
_PROBABILITY = 1e-3  # that rounding may leave 0 to 1 by
_NAMED = 4  # channels in a sentence


@dataclass
class _Axis:
    """Sums over everything but one axis, each of shape (channels,)."""

    axis: int
    count: int = 0
    total: np.ndarray | float = 0.0
    energy: np.ndarray | float = 0.0
    error: np.ndarray | float = 0.0
    exact_count: int = 0
    exact_error: np.ndarray | float = 0.0

    def add(self, actual: np.ndarray, expected: np.ndarray, exact: np.ndarray | None) -> None:
        others = tuple(each for each in range(expected.ndim) if each != self.axis)
        self.count += expected.size // expected.shape[self.axis]
        self.total = self.total + expected.sum(others)
        self.energy = self.energy + np.square(expected).sum(others)
        self.error = self.error + np.square(actual - expected).sum(others)
        if exact is not None and exact.size:
            self.exact_count += exact.size // exact.shape[self.axis]
            self.exact_error = self.exact_error + np.square(expected[: len(exact)] - exact).sum(others)

    def lost(self, limits: Limits, probabilities: bool) -> tuple[int, ...]:
        """The numbers of lost channels."""
        if self.count < _LEAST_VALUES:
            return ()
        energy, error = np.asarray(self.energy) / self.count, np.asarray(self.error) / self.count
        variance = np.maximum(energy - np.square(np.asarray(self.total) / self.count), 0)
        deviation = np.sqrt(variance)
        largest = float(deviation.max())
        live = deviation > self._noise(limits, np.sqrt(energy), largest)
        gone = live & (error > np.maximum(_UNEXPLAINED * variance, _OWN_ENERGY * energy))
        ordinary = deviation >= _ORDINARY * largest
        outlying = error > _OUTLYING**2 * float(np.median(error[live])) if live.any() else live
        found = gone & ordinary & outlying
        small = gone & ~ordinary
        if small.any() and not probabilities:
            clear = live & (error <= _CLEAR * variance)
            found |= small & (
                _of_a_size_of_their_own(deviation, small, live & ~gone) | _alone(deviation, live, clear)
            )
        return tuple(int(index) for index in np.flatnonzero(found))

    def _noise(self, limits: Limits, size: np.ndarray, largest: float) -> np.ndarray:
        noise = np.maximum(
            _NOISE * limits.roundoff * size, _NOISE_OF_LARGEST * limits.reference_roundoff * largest
        )
        if self.exact_count:
            noise = np.maximum(noise, _NOISE * np.sqrt(np.asarray(self.exact_error) / self.exact_count))
        return noise


def _of_a_size_of_their_own(deviation: np.ndarray, small: np.ndarray, kept: np.ndarray) -> bool:
    """Whether nothing that was kept lies between the small channels that were lost and 16 times as much."""
    end = float(deviation[small].max())
    return not (kept & (deviation > end) & (deviation < _GAP * end)).any() and bool(
        deviation.max() >= _GAP * end
    )


def _alone(deviation: np.ndarray, live: np.ndarray, clear: np.ndarray) -> np.ndarray:
    """Which channels are among others of their size that are nearly free of error."""
    order = np.sort(deviation[live])
    clean = np.sort(deviation[clear])

    def within(values: np.ndarray) -> np.ndarray:
        above = np.searchsorted(values, deviation * _ALIKE, "right")
        return above - np.searchsorted(values, deviation / _ALIKE, "left")

    near, good = within(order) - live, within(clean)  # not counting itself, which is not clear
    return (good >= _ALIKE_LEAST) & (good >= _ALIKE_SHARE * near)


@dataclass
class Channels:
    """Gathers one output's channels batch by batch."""

    _axes: list[_Axis] = field(default_factory=list)
    _low: float = math.inf
    _high: float = -math.inf
    _started: bool = False

    def add(self, actual: np.ndarray, expected: np.ndarray, exact: np.ndarray | None) -> None:
        """Adds one batch; NaN and Inf, in whichever of them, are left out.

        Args:
            exact: float64 for the first of these positions, or None.
        """
        if not self._started:
            self._started = True
            axes = {1, expected.ndim - 1} if expected.ndim > 1 else set()
            self._axes = [_Axis(axis) for axis in sorted(axes) if _FEWEST <= expected.shape[axis] <= _MOST]
        if not self._axes or not expected.size:
            return
        have, want = actual.astype(np.float64), expected.astype(np.float64)
        good = np.isfinite(have) & np.isfinite(want)
        true = exact.astype(np.float64) if exact is not None and exact.ndim == want.ndim else None
        if not good.all():
            have, want = np.where(good, have, 0.0), np.where(good, want, 0.0)
            true = None if true is None else np.where(good[: len(true)], true, 0.0)
        self._low, self._high = min(self._low, float(want.min())), max(self._high, float(want.max()))
        for axis in self._axes:
            axis.add(have, want, true)

    def reason(self, limits: Limits) -> str | None:
        """Which channels are lost, in words; None where none is."""
        probabilities = self._low >= -_PROBABILITY and self._high <= 1 + _PROBABILITY
        for axis in self._axes:
            lost = axis.lost(limits, probabilities)
            if lost:
                channels = len(np.atleast_1d(axis.energy))
                return _said(axis.axis, lost, channels)
        return None


def _said(axis: int, lost: tuple[int, ...], channels: int) -> str:
    names = ", ".join(str(index) for index in lost[:_NAMED])
    more = f" and {len(lost) - _NAMED} more" if len(lost) > _NAMED else ""
    plural = "s" if len(lost) > 1 else ""
    return (
        f"has lost channel{plural} {names}{more} of {channels} on axis {axis}: more than half of what varies there is "
        "error, while larger channels hide it from the tensor's own"
    )
