"""Timing a piece of work that a device runs on its own: warm up, repeat until a clock can tell, take the median."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from time import perf_counter

from wavefit.device.measure.order import Reading

RUNS = 7
_WARM_S = 0.3  # clocks rise from idle within that time
_RUN_S = 0.02  # of one run: a thousand times what waiting for a device costs


def seconds(work: Callable[[], object], wait: Callable[[], object]) -> float:
    """Seconds that ``work`` takes when it is asked for again and again; ``wait`` returns when all of it is done."""
    count, start = 0, perf_counter()
    while count == 0 or perf_counter() - start < _WARM_S:
        work()
        wait()
        count += 1
    repeats = max(1, math.ceil(_RUN_S / ((perf_counter() - start) / count)))
    return statistics.median(_run(work, wait, repeats) for _ in range(RUNS))


def _run(work: Callable[[], object], wait: Callable[[], object], repeats: int) -> float:
    start = perf_counter()
    for _ in range(repeats):
        work()
    wait()
    return (perf_counter() - start) / repeats


def bandwidth(nbytes: int, taken_s: float, how: str) -> Reading:
    return Reading(value=nbytes / taken_s, unit="B/s", runs=RUNS, how=how)


def product(size: int, taken_s: float, how: str) -> Reading:
    """Of a product of two square matrices: a multiply-add counts as 2."""
    return Reading(value=2 * size**3 / taken_s, unit="FLOP/s", runs=RUNS, how=how)


def launch(taken_s: float, how: str) -> Reading:
    return Reading(value=taken_s, unit="s", runs=RUNS, how=how)


def mib(nbytes: int) -> str:
    return f"{nbytes / 2**20:.0f} MiB"
