"""The pictures of lower precisions: what is lost against how fast it is, and how far each node moves the answers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from wavefit.report.plots import chart, plain
from wavefit.report.scale import Scale, linear, logarithmic, scale
from wavefit.report.svg import Series, embed

LABELLED = 30
"""Nodes that have a dot and a row in the table below the picture."""
_ROOM = 19.0  # pixels that a numbered dot takes
_ROLES = ("pick", "front", "passed", "moved")  # whose dots are numbered first
_UP_TICKS = 7


@dataclass(frozen=True)
class Trade:
    """A measured plan.

    Attributes:
        number: its row in the table of plans.
        speed: p90 latency in ms, or inferences a second; above 0.
        loss: of the metric, or the error; at least 0 where it is an error.
        role: "pick", "front", "passed" or "moved": its class in the style sheet.
        title: what a pointer over it reads.
    """

    number: int
    speed: float
    loss: float
    role: str
    title: str


def front(trades: Sequence[Trade], more_is_faster: bool, factor: float = 1.0) -> list[Trade]:
    """The plans that no other beats on both speed and loss, fastest first; none whose answers moved.

    Args:
        factor: by which a slower plan's loss has to be smaller; of errors near fp32's own, less is only rounding.
    """
    sign = -1 if more_is_faster else 1
    found: list[Trade] = []
    for trade in sorted(trades, key=lambda each: (sign * each.speed, each.loss)):
        if trade.role != "moved" and (not found or trade.loss * factor < found[-1].loss):
            found.append(trade)
    return found


def tradeoff(
    name: str, trades: Sequence[Trade], line: Sequence[Trade], allowed: float | None, size: tuple[int, int]
) -> Markup:
    """Plans by speed and loss, each a dot, numbered where there is room; a line joins the front.

    Args:
        name: unique on the page; the picture's name for people who cannot see it begins with it.
        line: the front.
        allowed: loss of a metric that is allowed: then the axis is linear, else logarithmic.
    """
    across = scale([trade.speed for trade in trades], ticks=max(4, size[0] // 75))
    losses = [trade.loss for trade in trades]
    up = linear([*losses, 0.0, allowed], _UP_TICKS) if allowed is not None else _errors(losses)
    least = min((loss for loss in losses if loss > 0), default=1.0) / 3

    def place(trade: Trade) -> tuple[float, float]:
        return across.place(trade.speed), up.place(
            trade.loss if allowed is not None else max(trade.loss, least)
        )

    drawn = chart(f"{name.replace(' ', '-')}-{size[0]}", size, across, up, plain)
    shown = []
    if allowed is not None:
        drawn.add("allowed", [(across.low, allowed), (across.high, allowed)], show_dots=False)
        shown.append(Series("allowed"))
    if len(line) > 1:
        drawn.add("line", [place(trade) for trade in line], show_dots=False)
        shown.append(Series("frontier"))
    first = sorted(trades, key=lambda each: (_ROLES.index(each.role), each.number))
    numbered = _apart({each.number: _pixels(place(each), across, up, size) for each in first})
    for big in (False, True):
        for role in reversed(_ROLES):
            group = [each for each in trades if each.role == role and (each.number in numbered) == big]
            drawn.add(role, [place(each) for each in group], stroke=False, dots_size=9 if big else 4)
            labels = [str(each.number) for each in group] if big else []
            shown.append(Series(role, [each.title for each in group], labels))
    label = (
        f"{name} of {len(trades)} plans, {len(line)} on the front: {'; '.join(each.title for each in line)}"
    )
    return embed(drawn.render_tree(), shown, label)


@dataclass(frozen=True)
class Moved:
    """A node that was lowered alone.

    Attributes:
        place: in the graph's order, from 1.
        rank: from 1, by how far it moved the answers, furthest first.
        error: relative L2 of the outputs; None: not finite.
    """

    name: str
    op: str
    place: int
    rank: int
    error: float | None
    kept: bool


def sensitivity(name: str, nodes: Sequence[Moved], size: tuple[int, int]) -> Markup:
    """Every node in the graph's order by how far it moves the answers; the furthest are dots, numbered by
    rank where there is room.

    What is not finite stands at the top, and 0 at the bottom.

    Args:
        name: unique on the page.
        nodes: one or more.
    """
    finite = [each.error for each in nodes if each.error is not None and each.error > 0] or [1.0]
    top = [10 * max(finite)] if any(each.error is None for each in nodes) else []
    up = logarithmic([*finite, *top], _UP_TICKS)
    across = _places(len(nodes), ticks=max(4, size[0] // 75))

    def place(node: Moved) -> tuple[float, float]:
        error = top[0] if node.error is None else max(node.error, min(finite))
        return float(node.place), up.place(error)

    drawn = chart(f"{name}-{size[0]}", size, across, up, plain)
    drawn.add("all", [place(node) for node in nodes], show_dots=False)
    shown = [Series("every")]
    furthest = sorted((node for node in nodes if node.rank <= LABELLED), key=lambda node: node.rank)
    numbered = _apart({node.rank: _pixels(place(node), across, up, size) for node in furthest})
    for big in (False, True):
        for role, kept in (("lowered", False), ("kept", True)):
            group = [each for each in furthest if each.kept == kept and (each.rank in numbered) == big]
            drawn.add(role, [place(each) for each in group], stroke=False, dots_size=8 if big else 4)
            labels = [str(each.rank) for each in group] if big else []
            shown.append(Series(role, [_title(each) for each in group], labels))
    first = min(nodes, key=lambda node: node.rank)
    kept_count = sum(node.kept for node in nodes)
    label = f"How far each of {len(nodes)} nodes moves the answers, most {_title(first)}; {kept_count} are kept back"
    return embed(drawn.render_tree(), shown, label)


def _pixels(
    place: tuple[float, float], across: Scale, up: Scale, size: tuple[int, int]
) -> tuple[float, float]:
    """About where a dot stands in the picture."""
    x, y = place
    return size[0] * (x - across.low) / (across.high - across.low), size[1] * (y - up.low) / (
        up.high - up.low
    )


def _apart(places: Mapping[int, tuple[float, float]]) -> frozenset[int]:
    """The dots that a number fits in without covering another's, the first ranks before the others."""
    found: dict[int, tuple[float, float]] = {}
    for rank, (x, y) in places.items():
        if all(math.hypot(x - other_x, y - other_y) >= _ROOM for other_x, other_y in found.values()):
            found[rank] = x, y
    return frozenset(found)


def _title(node: Moved) -> str:
    moves = "the answers are not finite" if node.error is None else f"{node.error:.1e}"
    return f"{node.name} ({node.op}): {moves}{', kept back' if node.kept else ''}"


def _errors(losses: Sequence[float]) -> Scale:
    """Of errors, some of which may be 0: those stand below the least of the others."""
    least = min((loss for loss in losses if loss > 0), default=1.0)
    return logarithmic([max(loss, least / 3) for loss in losses], _UP_TICKS)


def _places(count: int, ticks: int) -> Scale:
    """Of nodes from 1 on: ticks are whole."""
    found = linear([1, count], ticks)
    return Scale(
        found.low,
        found.high,
        log=False,
        ticks=tuple(t for t in found.ticks if t == int(t) and 1 <= t <= count),
    )
