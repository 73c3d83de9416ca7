"""An axis: what it spans and where its ticks stand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_LOG_FROM = 4.0  # an axis that spans more than this many times is logarithmic
_STEPS: tuple[tuple[float, ...], ...] = ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 7))


@dataclass(frozen=True)
class Scale:
    """Where values stand on an axis: ``place(value)`` lies between ``low`` and ``high``."""

    low: float
    high: float
    log: bool
    ticks: tuple[float, ...]

    def place(self, value: float) -> float:
        return math.log10(value) if self.log else value


def scale(values: Sequence[float], ticks: int) -> Scale:
    """An axis that holds all values, with room at both ends and at most ``ticks`` ticks (at least 2).

    Args:
        values: one or more, all above 0.
    """
    wide = max(values) / min(values) > _LOG_FROM
    return logarithmic(values, ticks) if wide else linear(values, ticks)


def logarithmic(values: Sequence[float], ticks: int) -> Scale:
    """As :func:`scale`, whatever the values span."""
    low, high = math.log10(min(values)), math.log10(max(values))
    room = 0.09 * (high - low) or 0.5
    return Scale(
        low - room, high + room, log=True, ticks=_log_ticks(10 ** (low - room), 10 ** (high + room), ticks)
    )


def linear(values: Sequence[float], ticks: int) -> Scale:
    """As :func:`scale`, of any values: 0 and negative ones too."""
    low, high = min(values), max(values)
    room = 0.09 * (high - low) or 0.2 * abs(high) or 1.0
    return Scale(low - room, high + room, log=False, ticks=_linear_ticks(low - room, high + room, ticks))


def _log_ticks(low: float, high: float, most: int) -> tuple[float, ...]:
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    choices = [
        tuple(tick for decade in decades for step in steps if low <= (tick := step * 10.0**decade) <= high)
        for steps in _STEPS
    ]
    finest = max((ticks for ticks in choices if len(ticks) <= most), key=len, default=())
    if not finest:
        return choices[0][:: math.ceil(len(choices[0]) / most)]
    return finest if len(finest) >= 2 else _linear_ticks(low, high, most)


def _linear_ticks(low: float, high: float, most: int) -> tuple[float, ...]:
    rough = (high - low) / most
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next((s * unit for s in (1, 2, 2.5, 5, 10) if s * unit >= rough), 10 * unit)
    first = math.ceil(low / step)
    ticks = (index * step for index in range(first, first + most))
    return tuple(tick for tick in ticks if low <= tick <= high)
