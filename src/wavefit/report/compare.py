"""Plans of several machines side by side: each a column, the first the measure of the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

from wavefit import choice as choices
from wavefit.report import figures
from wavefit.report.columns import Entry, Per
from wavefit.report.terminal import printable
from wavefit.report.view import quoted_power
from wavefit.schema import Record, ScenarioResult, Struct

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text


class Row(Struct, frozen=True, kw_only=True):
    """One figure of every column; None where it was not measured.

    Attributes:
        ratios: each value over the first column's.
    """

    name: str
    unit: str
    better: Literal["lower", "higher"]
    values: tuple[float | None, ...]
    ratios: tuple[float | None, ...]


class Column(Struct, frozen=True, kw_only=True):
    """Whose figures a column holds; None where no plan passed."""

    name: str
    price: float | None
    device: str | None
    machine: str | None
    model: str | None
    plan: str | None


class Comparison(Struct, frozen=True, kw_only=True):
    """A whole comparison, for ``--json``.

    Attributes:
        differences: what makes the columns not comparable; empty where they are.
    """

    price_per: Per
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    differences: tuple[str, ...]


def comparison(entries: Sequence[Entry], per: Per = "hour") -> Comparison:
    """Everything that the table shows, as data."""
    return Comparison(
        price_per=per,
        columns=tuple(map(_column, entries)),
        rows=tuple(rows(entries, per)),
        differences=tuple(differences(entries)),
    )


def rows(entries: Sequence[Entry], per: Per = "hour") -> list[Row]:
    """The figures of all columns, and their ratios to the first. A row that no column has is left out."""
    figures: list[tuple[str, str, Literal["lower", "higher"], Callable[[Record], float | None]]] = [
        ("latency p50", "s", "lower", lambda record: _percentile(record, "p50_s")),
        ("latency p90", "s", "lower", lambda record: _percentile(record, "p90_s")),
        ("latency p99", "s", "lower", lambda record: _percentile(record, "p99_s")),
        ("queries a second", "1/s", "higher", _queries_per_s),
        ("inferences a second", "1/s", "higher", choices.throughput_per_s),
        ("peak memory", "B", "lower", choices.peak_bytes),
        ("watts", "W", "lower", _watts),
        # Joules and inferences of the same time: a throughput over a mean of watts would mix two scenarios.
        ("inferences a joule", "1/J", "higher", _inferences_per_joule),
    ]
    made = [
        _row(name, unit, better, [_value(entry, figure) for entry in entries])
        for name, unit, better, figure in figures
    ]
    priced = [_per_price(entry, per) for entry in entries]
    if per == "hour":
        made.append(_row("inferences per price", "1/price", "higher", priced))
        made.append(
            _row("price of a million", "price", "lower", [1e6 / each if each else None for each in priced])
        )
    else:
        made.append(_row("inferences a second per price", "1/s/price", "higher", priced))
    return [row for row in made if any(value is not None for value in row.values)]


def differences(entries: Sequence[Entry]) -> list[str]:
    """What makes columns not comparable, one sentence each; empty where they are."""
    known = [(entry.name, entry.record) for entry in entries if entry.record is not None]
    aspects: tuple[tuple[str, Callable[[Record], str | None]], ...] = (
        ("models (their hashes)", lambda record: record.model.sha256[:8]),
        ("precisions", lambda record: record.plan.precision),
        ("batches", lambda record: str(record.plan.batch)),
        ("input shapes", _shapes),
        ("latency scenarios", lambda record: _traffic(record.measurement.latency if record.measurement else None)),
        (
            "throughput scenarios",
            lambda record: _traffic(record.measurement.throughput if record.measurement else None),
        ),
        ("power meters", _meter),
    )  # fmt: skip
    found = []
    for what, aspect in aspects:
        told = [(name, text) for name, record in known if (text := aspect(record)) is not None]
        if len({text for _, text in told}) > 1:
            found.append(f"different {what}: " + ", ".join(f"{name} {text}" for name, text in told))
    found += [f"{entry.name}: no plan passed" for entry in entries if entry.record is None]
    found += [
        f"{name}: LoadGen calls its {one.name} run not valid"
        for name, record in known
        for one in (record.measurement.scenarios if record.measurement else ())
        if not one.valid
    ]
    return found


def table(entries: Sequence[Entry], per: Per = "hour") -> RenderableType:
    """The comparison for the terminal; what is not comparable stands above it."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    shown.add_column("")
    for entry in entries:
        shown.add_column(Text(printable(entry.name)), justify="right", overflow="fold")
    for name, say in _HEAD:
        shown.add_row(
            name,
            *(Text(printable(say(e.record)) if e.record else figures.MISSING) for e in entries),
            style="dim",
        )
    for row in rows(entries, per):
        shown.add_row(row.name, *_cells(row))
    warnings = [Text(f"Not comparable: {printable(text)}", "bold yellow") for text in differences(entries)]
    foot = (
        f"Beside each figure its ratio to {printable(entries[0].name)}; {figures.MISSING} was not measured."
    )
    return Group(*warnings, *([Text("")] if warnings else []), shown, Text(foot, "dim"))


def _column(entry: Entry) -> Column:
    record = entry.record
    return Column(
        name=entry.name,
        price=entry.price,
        device=(record.device.name or record.device.id) if record else None,
        machine=record.device.machine if record else None,
        model=record.model.sha256 if record else None,
        plan=record.plan.label if record else None,
    )


def _row(name: str, unit: str, better: Literal["lower", "higher"], values: Sequence[float | None]) -> Row:
    first = values[0]
    ratios = tuple(value / first if value is not None and first else None for value in values)
    return Row(name=name, unit=unit, better=better, values=tuple(values), ratios=ratios)


def _value(entry: Entry, figure: Callable[[Record], float | None]) -> float | None:
    return None if entry.record is None else figure(entry.record)


def _percentile(record: Record, name: str) -> float | None:
    result = record.measurement.latency if record.measurement else None
    return getattr(result.latency, name) if result else None


def _queries_per_s(record: Record) -> float | None:
    """Of the scenario that the latency is quoted from; a query is a whole batch in SingleStream."""
    result = record.measurement.latency if record.measurement else None
    return result.queries / result.duration_s if result and result.duration_s else None


def _watts(record: Record) -> float | None:
    power = quoted_power(record)
    return power.watts if power else None


def _inferences_per_joule(record: Record) -> float | None:
    joules = choices.joules(record)
    return 1 / joules if joules else None


def _per_price(entry: Entry, per: Per) -> float | None:
    rate = _value(entry, choices.throughput_per_s)
    if rate is None or entry.price is None:
        return None
    return rate / entry.price * (3600 if per == "hour" else 1)


def _shapes(record: Record) -> str:
    """Without the first axis where it is the batch, which is told apart on its own."""
    skip = 1 if record.model.batch is not None else 0
    return ", ".join(
        f"{name} {'x'.join(map(str, shape[skip:]))}" for name, shape in sorted(record.plan.shapes.items())
    )


def _traffic(result: ScenarioResult | None) -> str | None:
    if result is None:
        return None
    target = f" within {result.target_latency_s * 1e3:g} ms" if result.target_latency_s is not None else ""
    return result.name + target


def _meter(record: Record) -> str | None:
    power = quoted_power(record)
    return f"{power.meter} ({power.covers})" if power else None


_HEAD: tuple[tuple[str, Callable[[Record], str]], ...] = (
    ("device", lambda record: record.device.name or record.device.id),
    ("model", lambda record: record.model.name),
    ("plan", lambda record: record.plan.series),
    ("batch", lambda record: str(record.plan.batch)),
)


def _cells(row: Row) -> list[Text]:
    from rich.text import Text

    cells = []
    for column, (value, ratio) in enumerate(zip(row.values, row.ratios, strict=True)):
        cell = Text(_SHOW.get(row.unit, figures.significant)(value))
        if column and ratio is not None:
            good = ratio < 1 if row.better == "lower" else ratio > 1
            cell.append(
                f" {figures.significant(ratio)}{figures.TIMES}",
                "green" if good else "red" if ratio != 1 else "",
            )
        cells.append(cell)
    return cells


_SHOW: dict[str, Callable[[float | None], str]] = {"s": figures.ms, "B": figures.size, "W": figures.watts}
