"""Runs before anything is measured: until the time has settled."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wavefit.bench.statistics import median
from wavefit.routes.session import Arrays, Session
from wavefit.schema import TensorSpec

_CLOSE = 0.05
"""Two windows agree where their medians differ by no more than this share."""

_WINDOW_RUNS = 5
_WINDOW_S = 0.05
"""A window has at least so many runs and lasts at least so long, as five runs of 20 us say nothing. Where that many
would take more than the time there is, one run is a window."""


@dataclass(frozen=True)
class WarmUp:
    """How a session settled.

    Args:
        runs: how many runs were spent.
        batch_s: the median time of one batch over the last window, in seconds.
        settled: False where the time or the runs were used up before two windows agreed.
    """

    runs: int
    batch_s: float
    settled: bool


def warm_up(session: Session, batches: Sequence[Arrays], most_s: float, most_runs: int = 100_000) -> WarmUp:
    """Runs the batches in turn until two windows of runs in a row have the same median, within 5 %.

    Args:
        most_s: ends at the first window after this time.
        most_runs: ends after so many runs at the latest.

    Raises:
        RouteError: the runtime failed.
    """
    end = time.perf_counter() + most_s
    first = _window(session, batches, 0, 1, 0.0)
    least = _WINDOW_RUNS if first[0] * _WINDOW_RUNS * 2 <= most_s else 1
    runs, before = 1, None
    while True:
        window = _window(session, batches, runs, least, min(end, time.perf_counter() + _WINDOW_S))
        runs += len(window)
        batch_s = median(window)
        whole = len(window) >= least
        if whole and before is not None and abs(batch_s - before) <= _CLOSE * before:
            return WarmUp(runs, batch_s, settled=True)
        if time.perf_counter() >= end or runs >= most_runs:
            return WarmUp(runs, batch_s, settled=False)
        before = batch_s


def _window(session: Session, batches: Sequence[Arrays], first: int, least: int, end: float) -> list[float]:
    """Times of the runs up to ``end``, and of at least ``least``."""
    times: list[float] = []
    while len(times) < least or time.perf_counter() < end:
        start = time.perf_counter()
        session.run(batches[(first + len(times)) % len(batches)])
        times.append(time.perf_counter() - start)
    return times


def other_batch(inputs: tuple[TensorSpec, ...], batch: Arrays) -> Arrays | None:
    """That batch with one item less (two items where it has one); None where the model's batch is fixed.

    Inputs without a batch axis, scalars and those of a fixed first size, stay as they are.
    """
    first = {spec.name: spec.shape[0] for spec in inputs if spec.shape}
    symbols = {size for size in first.values() if not isinstance(size, int)}
    if len(symbols) != 1 or None in symbols or any(spec.shape is None for spec in inputs):
        return None
    return {name: _resized(array) if first.get(name) in symbols else array for name, array in batch.items()}


def _resized(array: np.ndarray) -> np.ndarray:
    return array[:-1] if len(array) > 1 else np.repeat(array, 2, axis=0)
