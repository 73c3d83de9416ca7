"""The report: one page that stands alone, for a person to look at."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape

from wavefit.report import figures, plots, precision, variants, view
from wavefit.schema import Bundle, OutputError, Placement, Record, Verdict

_ENOUGH = 100  # queries, below which the slowest in a hundred says nothing
_CURVES = 6  # more cannot be told apart
_SHOWN = 6  # placements before the rest is folded
_FOLDED = 12  # nodes of a variant, as well


def render(bundle: Bundle, records: Sequence[Record]) -> str:
    """The page of a bundle: HTML with its style and its pictures inside, no script, nothing loaded from elsewhere.

    Every name is escaped; a policy in the page forbids it to load or run anything.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(_filters())
    return environment.get_template("page.html.j2").render(_context(bundle, records))


def _filters() -> dict[str, Any]:
    names = (
        "ms", "duration", "rate", "size", "watts", "energy", "error", "count", "share", "si", "versions", "significant"
    )  # fmt: skip
    words = ("parts", "lowered", "recipe", "search", "stretch", "unlowered", "figures_of")
    return {
        **{name: getattr(figures, name) for name in names},
        **{name: getattr(variants, name) for name in words},
        "shape": _shape,
        "code": _code,
        "metric": lambda value, name: variants.metric(name, value),
    }


def _code(text: str) -> Markup:
    """Escaped text in which what stands between backticks is code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _context(bundle: Bundle, records: Sequence[Record]) -> dict[str, Any]:
    rows = view.rows(records, bundle.choice, bundle.request)
    picked = bundle.choice.pick is not None
    headline, _, rest = bundle.choice.sentence.partition("; " if picked else ": ")
    return {
        "bundle": bundle,
        "enough": _ENOUGH,
        "folder": bundle.name.removesuffix(".wavefit") + ".wavefit",
        "headline": headline,
        "rest": rest,
        "rows": rows,
        "measured": [row for row in rows if row.record.measurement and row.record.failure is None],
        "checked": [row for row in rows if row.record.verdict],
        "placed": [row for row in rows if row.record.placement],
        "unplaced": [row for row in rows if row.record.measurement and not row.record.placement],
        "unpicked": [row for row in rows if row.why],
        "pick": rows[0] if rows and rows[0].status == "pick" else None,
        "rival": view.cpu_rival(rows),
        "gpu_ran": any(row.record.device.kind == "gpu" and row.record.measurement for row in rows),
        "gpu_tried": any(row.record.device.kind == "gpu" and row.record.verdict for row in rows),
        "devices": view.devices(bundle.devices, records),
        "models": list({record.model.sha256: record.model for record in records}.values()),
        "versions": {name: text for record in records for name, text in record.versions.items()},
        "predicted": [row for row in rows if row.record.plan.predicted],
        "ratio": figures.ratio,
        "shares": _shares,
        "worst_output": _worst,
        "shown": _SHOWN,
        "folded": _FOLDED,
        "missing": figures.MISSING,
        **_pareto(rows),
        **_curves(rows),
        **precision.context(bundle, rows),
    }


def _pareto(rows: Sequence[view.Row]) -> dict[str, Any]:
    points = [
        plots.Point(
            number=row.number,
            label=row.label,
            latency_s=row.latency.latency.p90_s,
            per_s=row.throughput.throughput_per_s,
            role="passed" if row.status == "out" else row.status,
            sweep=f"{row.record.device.id} {row.record.plan.series}",
        )
        for row in rows
        if row.latency
        and row.throughput
        and row.latency.latency.p90_s > 0
        and row.throughput.throughput_per_s > 0
    ]
    pictures = _both(lambda size: plots.pareto(points, size)) if len(points) > 1 else None
    return {"pareto": pictures, "roles": {point.role for point in points}}


def _curves(rows: Sequence[view.Row]) -> dict[str, Any]:
    shown = [
        row
        for row in view.best_of_each_series(rows, _CURVES)
        if row.latency and min(row.latency.latencies_s) > 0
    ]
    curves = [
        plots.Curve(row.label, row.latency.latencies_s if row.latency else (), f"curve-{index}")
        for index, row in enumerate(shown)
    ]
    pictures = _both(lambda size: plots.percentiles(curves, size)) if curves else None
    return {"percentiles": pictures, "curves": shown}


def _both(draw: Any) -> dict[str, Markup]:
    return {"wide": draw(plots.WIDE), "narrow": draw(plots.NARROW)}


def _shares(placement: Placement) -> list[tuple[str, float]]:
    """Each provider's part of the time, of the nodes where times are not known; for the bar."""
    parts = [share.time_s for share in placement.providers]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts) or not sum(known):
        known = [float(share.nodes) for share in placement.providers]
    whole = sum(known) or 1.0
    return [(share.provider, part / whole) for share, part in zip(placement.providers, known, strict=True)]


def _worst(verdict: Verdict | None) -> OutputError | None:
    """The output that is furthest from the fp32 reference."""
    return max(verdict.outputs if verdict else (), key=_distance, default=None)


def _distance(output: OutputError) -> float:
    """From the fp32 reference: without end where the output is missing or the distance is no number.

    Integers have none, as they are compared for equality: they come after all others.
    """
    if output.rel_l2 is not None:
        return output.rel_l2
    return -1.0 if output.elements and output.max_abs is None else math.inf


def _shape(dims: tuple[object, ...] | None) -> str:
    return (
        "of any rank"
        if dims is None
        else figures.TIMES.join("?" if d is None else str(d) for d in dims) or "scalar"
    )
