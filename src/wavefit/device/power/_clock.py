"""The thread that reads a meter while a measurement runs: of power it makes an integral, of a counter a difference."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import pairwise

from wavefit.device.power import Covers
from wavefit.schema import Power

Reading = tuple[float, float]
"""Seconds of a monotonic clock, and watts (of power) or joules (of a counter)."""

POWER_INTERVAL_S = 0.05  # drivers refresh the average about every 10 to 100 ms
COUNTER_INTERVAL_S = 0.02  # some counters move only every 100 ms (NVML): shorter, to see when they move


class Sampled(ABC):
    """A meter that is read every ``interval_s`` by a thread of its own.

    Args:
        name: see :class:`wavefit.device.power.Meter`.
        covers: see there.
        read: watts or joules now; None where that cannot be read.
        interval_s: seconds between readings.
    """

    def __init__(
        self, name: str, covers: Covers, read: Callable[[], float | None], interval_s: float
    ) -> None:
        self.name = name
        self.covers = covers
        self._read = read
        self._interval_s = interval_s
        self._readings: list[Reading] = []
        self._started_s = 0.0
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self.stop(0)  # a meter that was left running begins anew
        self._readings = []
        self._stopping = threading.Event()
        self._started_s = time.monotonic()
        self._take()
        self._thread = threading.Thread(target=self._run, name=f"meter {self.name}", daemon=True)
        self._thread.start()

    def stop(self, inferences: int) -> Power | None:
        if self._thread is None:
            return None
        self._stopping.set()
        self._thread.join()
        self._thread = None
        self._take()
        seconds = time.monotonic() - self._started_s
        watts = self._watts(self._readings)
        if watts is None or seconds <= 0:
            return None
        joules = watts * seconds
        return Power(
            meter=self.name,
            covers=self.covers,
            watts=watts,
            joules=joules,
            joules_per_inference=joules / inferences if inferences > 0 else None,
            samples=len(self._readings),
        )

    def _run(self) -> None:
        while not self._stopping.wait(self._interval_s):
            self._take()

    def _take(self) -> None:
        value = self._read()
        if value is not None:
            self._readings.append((time.monotonic(), value))

    @abstractmethod
    def _watts(self, readings: Sequence[Reading]) -> float | None:
        """Mean watts over the readings; None where they are too few."""


class PowerMeter(Sampled):
    """A meter that reads watts: their trapezoid integral, every 50 ms."""

    def __init__(
        self,
        name: str,
        covers: Covers,
        read: Callable[[], float | None],
        interval_s: float = POWER_INTERVAL_S,
    ) -> None:
        super().__init__(name, covers, read, interval_s)

    def _watts(self, readings: Sequence[Reading]) -> float | None:
        return mean_watts(readings)


class CounterMeter(Sampled):
    """A meter that reads a growing energy counter in joules, every 20 ms: its mean rate from when it first moved to
    when it last did, so that a counter that moves in steps is not cut within one.
    """

    def __init__(
        self,
        name: str,
        covers: Covers,
        read: Callable[[], float | None],
        interval_s: float = COUNTER_INTERVAL_S,
    ) -> None:
        super().__init__(name, covers, read, interval_s)

    def _watts(self, readings: Sequence[Reading]) -> float | None:
        return mean_rate(readings)


def mean_rate(readings: Sequence[Reading]) -> float | None:
    """Joules a second of counter readings; None for a counter that stands still or went back."""
    moves = [after for before, after in pairwise(readings) if after[1] != before[1]]
    used = moves if len(moves) >= 3 else readings
    if len(used) < 2 or used[-1][0] <= used[0][0] or used[-1][1] <= used[0][1]:
        return None
    return (used[-1][1] - used[0][1]) / (used[-1][0] - used[0][0])


class Unwrapped:
    """A counter that starts again from 0 after ``span`` made one that only grows, from 0 at its first reading on.

    Args:
        read: the counter; None where it cannot be read.
        span: the counter's range; None where it is unknown: after a fall the reading is then None for good.
    """

    def __init__(self, read: Callable[[], int | None], span: int | None) -> None:
        self._read = read
        self._span = span
        self._last: int | None = None
        self._total: int | None = 0

    def __call__(self) -> int | None:
        now = self._read()
        if now is None or self._total is None:
            return None
        grown = 0 if self._last is None else now - self._last
        if grown < 0:
            grown = grown + self._span if self._span is not None and self._span + grown > 0 else -1
        self._last = now
        self._total = None if grown < 0 else self._total + grown
        return self._total


def mean_watts(readings: Sequence[Reading]) -> float | None:
    """The mean of power readings by the trapezoid rule; None for fewer than two moments."""
    if len(readings) < 2 or readings[-1][0] <= readings[0][0]:
        return None
    pairs = pairwise(readings)
    joules = sum((after[0] - before[0]) * (after[1] + before[1]) / 2 for before, after in pairs)
    return joules / (readings[-1][0] - readings[0][0])
