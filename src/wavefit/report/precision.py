"""The page's section on lower precisions: its variants, what each plan loses, and why a plan is no faster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from wavefit.choice import value
from wavefit.report import precision_plots as plots
from wavefit.report.figures import error, ms, rate, significant
from wavefit.report.plots import NARROW, WIDE
from wavefit.report.precision_plots import Moved, Trade
from wavefit.report.variants import SHARES, notes
from wavefit.report.view import Row
from wavefit.schema import Bundle, Request, Variant
from wavefit.slower import replaced, why

_ALIKE = 2.0  # errors within this factor are: those of two runtimes in fp32 differ by as much
_TIE = 1.02  # as choice: measurements closer than 2 % are a tie


@dataclass(frozen=True)
class Shown:
    """A variant with its picture.

    Attributes:
        moved: every node that was lowered alone, the furthest first.
        picture: of them, wide and narrow; None where there are none.
        same_as: an earlier variant whose search it shares, with the same picture.
    """

    variant: Variant
    moved: tuple[Moved, ...]
    picture: dict[str, Markup] | None
    same_as: str | None


@dataclass(frozen=True)
class Figure:
    """A picture of the trade-off, and what stands around it; the plans of the front by number, fastest first."""

    title: str
    across: str
    up: str
    pictures: dict[str, Markup]
    better: str
    front: tuple[int, ...]
    roles: frozenset[str]


def context(bundle: Bundle, rows: Sequence[Row]) -> dict[str, Any]:
    """What the template needs beside the rows."""
    known, name = _losses(rows)
    lost_nothing = _nothing_lost(known, name)
    return {
        "variants": _variants(bundle.variants),
        "variant_notes": notes(bundle.variants),
        "tradeoffs": [] if lost_nothing else _tradeoffs(known, name, bundle.request),
        "nothing_lost": lost_nothing,
        "no_faster": _no_faster(rows, bundle.request),
        "labelled": plots.LABELLED,
    }


def _variants(variants: Sequence[Variant]) -> list[Shown]:
    shown: list[Shown] = []
    for index, variant in enumerate(variants):
        moved = _moved(variant)
        first = next(
            (each for each in shown if moved and each.variant.sensitivity == variant.sensitivity), None
        )
        moves = any(node.error is None or node.error > 0 for node in moved)
        picture = None if first is not None or not moves else _both_of_nodes(f"sensitivity-{index}", moved)
        shown.append(Shown(variant, moved, picture, first.variant.name if first else None))
    return shown


def _moved(variant: Variant) -> tuple[Moved, ...]:
    """The nodes of its sensitivity, the furthest first; what is not finite is furthest of all."""
    kept = {node.node for node in variant.kept}
    placed = list(enumerate(variant.sensitivity, 1))
    placed.sort(key=lambda each: float("-inf") if each[1].error is None else -each[1].error)
    return tuple(
        Moved(node.node, node.op, place, rank, node.error, node.node in kept)
        for rank, (place, node) in enumerate(placed, 1)
    )


def _both_of_nodes(name: str, moved: Sequence[Moved]) -> dict[str, Markup]:
    order = sorted(moved, key=lambda node: node.place)
    return {key: plots.sensitivity(name, order, size) for key, size in (("wide", WIDE), ("narrow", NARROW))}


def _losses(rows: Sequence[Row]) -> tuple[list[tuple[Row, float]], str | None]:
    """What each measured plan loses of a metric, which is named, or by distance; none without a lower precision."""
    usable = [row for row in rows if row.record.measurement and row.record.verdict]
    labelled = [row for row in usable if row.record.verdict and row.record.verdict.task]
    name = labelled[0].record.verdict.task.name if labelled else None  # type: ignore[union-attr]
    known = [(row, loss) for row in (labelled or usable) if (loss := _loss(row)) is not None]
    lower = len({row.record.plan.precision for row, _ in known}) > 1
    return (known, name) if lower else ([], name)


def _nothing_lost(known: Sequence[tuple[Row, float]], name: str | None) -> str:
    """What is said in place of pictures on which every plan would stand on one line; "" where there is a loss."""
    if not known or any(loss for _, loss in known):
        return ""
    answers = "its answers" if name is None else name
    return f"No plan loses anything: in every precision that was measured {answers} is what it is in fp32."


def _tradeoffs(known: Sequence[tuple[Row, float]], name: str | None, request: Request) -> list[Figure]:
    """Loss against latency and against throughput; nothing where no lower precision was measured."""
    return [
        made
        for more_is_faster in (False, True)
        if (made := _tradeoff(known, name, request, more_is_faster)) is not None
    ]


def _loss(row: Row) -> float | None:
    """Of the metric as the check found it on the device; where there are no labels, the worst output's error."""
    verdict = row.record.verdict
    if verdict is None:
        return None
    if verdict.task is not None:
        return verdict.task.drop * (100 if verdict.task.name in SHARES else 1)
    errors = [each.rel_l2 for each in verdict.outputs if each.rel_l2 is not None]
    return max(errors, default=None)


def _tradeoff(
    known: Sequence[tuple[Row, float]], name: str | None, request: Request, more_is_faster: bool
) -> Figure | None:
    trades = []
    for row, loss in known:
        speed = _speed(row, more_is_faster)
        if speed is not None and speed > 0:
            role = row.status if row.status in ("pick", "moved") else "passed"
            lost = f"{error(loss)} from fp32" if name is None else f"{_lost(name, loss)} of {name} lost"
            told = rate(speed) if more_is_faster else f"p90 {ms(speed / 1e3)}"
            trades.append(Trade(row.number, speed, loss, role, f"{row.label}: {told}, {lost}"))
    if len(trades) < 2:
        return None
    line = plots.front(trades, more_is_faster, 1.0 if name else _ALIKE)
    on = {trade.number for trade in line}
    marked = [
        Trade(t.number, t.speed, t.loss, "front", t.title) if t.number in on and t.role == "passed" else t
        for t in trades
    ]
    percent = name in SHARES
    allowed = None if name is None else request.max_drop * (100 if percent else 1)
    title = f"Accuracy against {'throughput' if more_is_faster else 'latency'}"
    return Figure(
        title=title,
        across="inferences a second" if more_is_faster else "p90 latency of a query, ms",
        up="distance from fp32 (relative L2)"
        if name is None
        else f"{name} lost{', points' if percent else ''}",
        pictures={
            key: plots.tradeoff(title, marked, line, allowed, size)
            for key, size in (("wide", WIDE), ("narrow", NARROW))
        },
        better="Down and to the right" if more_is_faster else "Down and to the left",
        front=tuple(trade.number for trade in line),
        roles=frozenset({trade.role for trade in marked} | ({"allowed"} if allowed is not None else set())),
    )


def _lost(name: str, loss: float) -> str:
    return f"{significant(loss)} points" if name in SHARES else significant(loss)


def _speed(row: Row, more_is_faster: bool) -> float | None:
    if more_is_faster:
        return row.throughput.throughput_per_s if row.throughput else None
    return row.latency.latency.p90_s * 1e3 if row.latency else None


def _no_faster(rows: Sequence[Row], request: Request) -> dict[int, str]:
    """By the row's number: why a plan in a lower precision is no better than its fp32 plan."""
    records = [row.record for row in rows]
    found = {}
    for row in rows:
        other = replaced(row.record, records)
        if other is None or not row.record.passed or row.status == "pick":
            continue
        figure, rival = value(row.record, request), value(other, request)
        if figure is not None and rival is not None and figure * _TIE >= rival:
            found[row.number] = f"no better than {other.plan.label}: {why(row.record, other)}"
    return found
