"""Figures as people read them. None, what was not measured, is an em dash, never 0."""

from __future__ import annotations

import math
from collections.abc import Mapping

MISSING = "—"
TIMES = "\N{MULTIPLICATION SIGN}"


def significant(value: float | None, digits: int = 3) -> str:
    """A number with so many significant digits, thousands set apart: ``0.0123``, ``51.2``, ``12,300``."""
    if value is None:
        return MISSING
    if not math.isfinite(value):
        return str(value)
    if value == 0:
        return "0"
    exponent = math.floor(math.log10(abs(value)))
    if not -4 <= exponent < 9:
        return f"{value:.{digits - 1}e}"
    rounded = round(value, digits - 1 - exponent)
    return f"{rounded:,.{max(0, digits - 1 - exponent)}f}"


def ms(seconds: float | None) -> str:
    return MISSING if seconds is None else f"{significant(seconds * 1e3)} ms"


def duration(seconds: float | None) -> str:
    """Seconds where milliseconds would be a long number."""
    return ms(seconds) if seconds is None or seconds < 1 else f"{significant(seconds)} s"


def rate(per_second: float | None) -> str:
    return MISSING if per_second is None else f"{significant(per_second)}/s"


def size(count: float | None) -> str:
    """Bytes in KiB, MiB or GiB."""
    if count is None:
        return MISSING
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= scale:
            return f"{significant(count / scale)} {unit}"
    return f"{count:,.0f} B"


def si(value: float, unit: str) -> str:
    """With the prefix that leaves one to three digits before the point: ``8.30 TFLOP/s``."""
    for prefix, scale in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= scale:
            return f"{significant(value / scale)} {prefix}{unit}"
    return f"{significant(value)} {unit}"


def watts(value: float | None) -> str:
    return MISSING if value is None else f"{significant(value)} W"


def energy(value: float | None) -> str:
    """Joules, in millijoules where they are less than one."""
    if value is None:
        return MISSING
    return f"{significant(value * 1e3)} mJ" if value < 1 else f"{significant(value)} J"


def error(value: float | None) -> str:
    """A relative error: ``3.1e-07``."""
    return MISSING if value is None else f"{value:.1e}"


def count(value: int | None) -> str:
    return MISSING if value is None else f"{value:,}"


def share(value: float | None) -> str:
    """A share of 1 in percent: ``97.8 %``; never "100 %" for less than all."""
    if value is None:
        return MISSING
    percent = value * 100 if value >= 1 else min(value * 100, 99.99)
    return f"{percent:.4g} %"


def ratio(one: float | None, other: float | None) -> str:
    """How many times ``one`` is of ``other``."""
    return MISSING if one is None or not other else f"{significant(one / other)}{TIMES}"


def versions(named: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(named.items()))
