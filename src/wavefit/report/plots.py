"""The two pictures of the page: latency against throughput, and latency by percentile."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from wavefit.report.figures import ms, rate
from wavefit.report.scale import Scale, scale
from wavefit.report.svg import Series, embed

WIDE, NARROW = (540, 350), (330, 300)
"""Sizes in pixels. The page shows the narrow one on a phone, where the wide one's text would be too small."""

_TAIL = (0.0, 0.5, 0.9, 0.99, 0.999)
_STEPS = 120  # points of one curve


@dataclass(frozen=True)
class Point:
    """A plan in the picture of latency against throughput.

    Attributes:
        number: its row in the table of plans.
        latency_s: p90, of one query.
        per_s: inferences a second.
        role: "pick", "front", "passed" or "moved": its class in the style sheet.
        sweep: points of one name differ in their batch only.
    """

    number: int
    label: str
    latency_s: float
    per_s: float
    role: str
    sweep: str


@dataclass(frozen=True)
class Curve:
    """Latencies in seconds of one plan."""

    label: str
    latencies_s: Sequence[float]
    role: str


def pareto(points: Sequence[Point], size: tuple[int, int]) -> Markup:
    """Plans by p90 latency and throughput, each a numbered dot; lines join the batches of one series.

    Args:
        points: one or more, every figure above 0.
    """
    across = scale([point.latency_s * 1e3 for point in points], ticks=max(4, size[0] // 75))
    up = scale([point.per_s for point in points], ticks=7)
    drawn = chart(f"pareto-{size[0]}", size, across, up, plain)
    shown = []
    for name, line in _sweeps(points):
        drawn.add(name, [_place(point, across, up) for point in line], show_dots=False)
        shown.append(Series("sweep"))
    for role in ("moved", "passed", "front", "pick"):
        group = [point for point in points if point.role == role]
        drawn.add(role, [_place(point, across, up) for point in group], stroke=False, dots_size=9)
        titles = [f"{p.label}: p90 {ms(p.latency_s)}, {rate(p.per_s)}" for p in group]
        shown.append(Series(role, titles, [str(point.number) for point in group]))
    label = f"Latency against throughput of {len(points)} plans; the table of plans has the figures"
    return embed(drawn.render_tree(), shown, label)


def percentiles(curves: Sequence[Curve], size: tuple[int, int]) -> Markup:
    """Latency by percentile, the tail stretched so that p50, p90, p99 and p99.9 stand evenly.

    Args:
        curves: one or more, every latency above 0.
    """
    placed = [(curve, _quantiles(curve.latencies_s)) for curve in curves]
    up = scale([latency * 1e3 for _, line in placed for _, latency in line], ticks=7)
    end = max(line[-1][0] for _, line in placed)
    marks = [share for share in _TAIL if _stretch(share) <= end]
    across = Scale(0, end * 1.04, log=False, ticks=tuple(map(_stretch, marks)))
    names = dict(zip(across.ticks, ("min", *(f"p{share * 100:g}" for share in marks[1:])), strict=True))
    drawn = chart(f"percentiles-{size[0]}", size, across, up, lambda tick: names[tick])
    for curve, line in placed:
        drawn.add(curve.label, [(x, up.place(latency * 1e3)) for x, latency in line], show_dots=False)
    label = f"Latency by percentile of {len(curves)} plans"
    return embed(drawn.render_tree(), [Series(curve.role) for curve in curves], label)


def chart(name: str, size: tuple[int, int], across: Scale, up: Scale, show_x: Callable[[float], str]) -> Any:
    """An empty chart in pygal's XY with the axes' ticks where the scales place them.

    Args:
        name: unique on the page.
        show_x: the words of a tick of ``across``.
    """
    import pygal
    from pygal.style import Style

    made = pygal.XY(
        style=Style(font_family="inherit", label_font_size=12),
        js=[],
        width=size[0],
        height=size[1],
        margin=6,
        show_legend=False,
        show_x_guides=True,
        xrange=(across.low, across.high),
        range=(up.low, up.high),
    )
    made.uuid = name
    made.x_labels = [{"value": across.place(tick), "label": show_x(tick)} for tick in across.ticks]
    made.y_labels = [{"value": up.place(tick), "label": plain(tick)} for tick in up.ticks]
    return made


def _sweeps(points: Sequence[Point]) -> list[tuple[str, list[Point]]]:
    lines: dict[str, list[Point]] = {}
    for point in points:
        if point.role != "moved":
            lines.setdefault(point.sweep, []).append(point)
    return [(name, sorted(line, key=lambda p: p.latency_s)) for name, line in lines.items() if len(line) > 1]


def _place(point: Point, across: Scale, up: Scale) -> tuple[float, float]:
    return across.place(point.latency_s * 1e3), up.place(point.per_s)


def plain(tick: float) -> str:
    """A tick's number."""
    return f"{tick:,.10g}"


def _stretch(share: float) -> float:
    """Where a percentile stands: 0 at the least, 0.3 at p50, 1 at p90, 2 at p99, 3 at p99.9."""
    return -math.log10(1 - share)


def _quantiles(latencies_s: Sequence[float]) -> list[tuple[float, float]]:
    """(place, latency) along the percentiles that so many latencies can tell: 1,000 of them tell p99.9."""
    ordered = sorted(latencies_s)
    end = min(_stretch(_TAIL[-1]), math.log10(len(ordered)) or 0.3)
    line = []
    for step in range(_STEPS + 1):
        place = end * step / _STEPS
        rank = min(len(ordered) - 1, int((1 - 10**-place) * len(ordered)))
        line.append((place, ordered[rank]))
    return line
