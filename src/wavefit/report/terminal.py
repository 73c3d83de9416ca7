"""What the terminal shows: one line a plan while it goes on, a table at the end, and what to do about the rest."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from wavefit.report import variants, view
from wavefit.report.figures import energy, ms, rate, significant, size
from wavefit.schema import (
    Bundle,
    Choice,
    Model,
    Record,
    Request,
    ScenarioResult,
    Skipped,
    Unsupported,
    Variant,
)

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

_KEPT = 3  # nodes that are named for each variant
_STYLES = {"pick": "bold green", "moved": "red", "out": "yellow", "failed": "red"}


def summary(folder: Path, bundle: Bundle, records: Sequence[Record]) -> RenderableType:
    """What ``optimize`` ends with: the pick's sentence, the table, what failed, and where the report lies."""
    from rich.console import Group

    lines = [_text(f"report: {folder / 'report.html'}", "dim")]
    if bundle.choice.pick is not None:
        lines.append(_text(f"run it: {_program()} run {folder}", "dim"))
    return Group(
        table(records, bundle.choice, bundle.refusals, bundle.request),
        *_skipped(bundle.skipped),
        *_variants(bundle.variants, bundle.model),
        _text(""),
        _text(bundle.choice.sentence, "bold"),
        *lines,
    )


def _program() -> str:
    """How this program is called: by its name where that is found, by the path that it was started by else."""
    started = Path(sys.argv[0])
    return "wavefit" if shutil.which("wavefit") or started.name != "wavefit" else str(started)


def table(
    records: Sequence[Record],
    choice: Choice,
    refusals: Sequence[Unsupported] = (),
    request: Request | None = None,
) -> RenderableType:
    """Every plan that was measured, then what failed or was refused: reason -> fix. Fits 80 columns."""
    from rich.console import Group

    rows = view.rows(records, choice, request)
    measured = [row for row in rows if row.record.measurement and row.record.failure is None]
    parts: list[RenderableType] = [_plans(measured)] if measured else [_text("No plan has a measurement.")]
    return Group(*parts, *_notes(rows), *_failures(rows), *_refusals(refusals))


def measurements(records: Sequence[Record], refusals: Sequence[Unsupported] = ()) -> RenderableType:
    """Every scenario of every plan, in the order given, then what failed or was refused."""
    from rich.console import Group

    shown = _table("plan", "batch", "scenario", "p50 ms", "p90 ms", "p99 ms", "inf/s", "valid")
    for record in records:
        for one in record.measurement.scenarios if record.measurement else ():
            shown.add_row(
                _text(record.plan.series),
                str(record.plan.batch),
                one.name,
                *_percentiles(one),
                _rate(one),
                "yes" if one.valid else "no",
            )
    rows = view.rows(records, Choice(pick=None, sentence=""))
    return Group(*([shown] if shown.row_count else []), *_notes(rows), *_failures(rows), *_refusals(refusals))


def one_line(record: Record) -> str:
    """A plan's result in one line, for progress."""
    latency = record.measurement.latency if record.measurement else None
    throughput = record.measurement.throughput if record.measurement else None
    parts = []
    if latency is not None:
        parts.append(f"p50 {ms(latency.latency.p50_s)}")
    if throughput is not None:
        parts.append(rate(throughput.throughput_per_s))
    parts.append("answers unchanged" if record.passed else record.why_not or "answers were not checked")
    return printable(f"{record.plan.label}: {', '.join(parts)}")


def printable(text: str) -> str:
    """Text that cannot steer a terminal: names come from models and drivers."""
    return "".join(
        char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in " ".join(text.split())
    )


def _plans(rows: Sequence[view.Row]) -> Table:
    shown = _table("plan", "batch", "p50 ms", "p90 ms", "inf/s", "memory", "J/inf", "verdict")
    for row in rows:
        style = _STYLES.get(row.status, "")
        shown.add_row(
            _text(row.series),
            str(row.record.plan.batch),
            *_percentiles(row.latency)[:2],
            _rate(row.throughput),
            size(row.peak_bytes),
            energy(row.power.joules_per_inference if row.power else None),
            _text(row.word),
            style=style,
        )
    return shown


def _table(*names: str) -> Table:
    from rich.table import Table

    words = {"scenario", "valid", "verdict"}
    shown = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    shown.add_column(names[0], overflow="fold")
    for name in names[1:]:
        shown.add_column(name, justify="left" if name in words else "right", no_wrap=True)
    return shown


def _percentiles(result: ScenarioResult | None) -> tuple[str, str, str]:
    latency = result.latency if result else None
    figures = (latency.p50_s, latency.p90_s, latency.p99_s) if latency else (None, None, None)
    p50, p90, p99 = (significant(None if seconds is None else seconds * 1e3) for seconds in figures)
    return p50, p90, p99


def _rate(result: ScenarioResult | None) -> str:
    return significant(result.throughput_per_s if result else None)


def _notes(rows: Iterable[view.Row]) -> list[RenderableType]:
    shown = [_reason(row.label, note, "") for row in rows for note in row.notes]
    return [_text(""), _text("Notes", "bold"), *shown] if shown else []


def _failures(rows: Iterable[view.Row]) -> list[RenderableType]:
    shown = [_reason(row.label, row.why, row.fix) for row in rows if row.why]
    return [_text(""), _text("Not eligible, and why", "bold"), *shown] if shown else []


def _refusals(refusals: Iterable[Unsupported]) -> list[RenderableType]:
    """Routes that are refused for the same reason share a line."""
    names: dict[tuple[str, str], list[str]] = {}
    for one in refusals:
        name = f"{one.route} ({one.device})" if one.device else one.route
        names.setdefault((one.reason, one.fix), []).append(name)
    shown = [_reason(", ".join(alike), reason, fix) for (reason, fix), alike in names.items()]
    return [_text(""), _text("Routes that cannot run here", "bold"), *shown] if shown else []


def _skipped(skipped: Iterable[Skipped]) -> list[RenderableType]:
    shown = [_reason(one.plan.label, one.reason, "") for one in skipped]
    return [_text(""), _text("Not tried", "bold"), *shown] if shown else []


def _variants(found: Sequence[Variant], model: Model | None) -> list[RenderableType]:
    """Briefly: the page has the reasons."""
    if not found:
        return []
    shown = []
    for one in found:
        kept = variants.kept_names(one.kept, _KEPT)
        shown.append(_told(one.name, [*variants.lines(one, model), *([kept] if kept else [])]))
    told = [_reason(f"note on {names}", note, "") for names, note in variants.notes(found)]
    return [_text(""), _text("Variants", "bold"), *shown, *told]


def variant(one: Variant, model: Model, name: str, most: int) -> RenderableType:
    """A variant by itself under a name, with the reason for every node that is kept back.

    Args:
        model: that it was made from.
        most: how many nodes are named.
    """
    kept = [f"{each.node} ({each.op}) stays in {each.precision}: {each.reason}" for each in one.kept[:most]]
    left = len(one.kept) - most
    more = [f"{left} more nodes stay: --json has them"] if left > 0 else []
    none = [] if one.kept else ["no node had to be kept back"]
    scaled = [f"{variants.stretch(each.nodes)} on scaled numbers: {each.reason}" for each in one.scaled]
    return _told(name, [*variants.lines(one, model), *one.notes, *scaled, *kept, *more, *none])


def _told(name: str, lines: Sequence[str]) -> RenderableType:
    from rich.console import Group
    from rich.padding import Padding

    return Group(_reason(name, lines[0], ""), *(Padding(_text(line), (0, 0, 0, 4)) for line in lines[1:]))


def _reason(name: str, why: str, fix: str) -> RenderableType:
    from rich.padding import Padding
    from rich.text import Text

    line = Text.assemble((printable(name), "bold"), ": ", printable(why))
    if fix:
        line.append(f"\n-> {printable(fix)}", "green")
    return Padding(line, (0, 0, 0, 2))


def _text(text: str, style: str = "") -> Text:
    from rich.text import Text

    return Text(printable(text), style)
