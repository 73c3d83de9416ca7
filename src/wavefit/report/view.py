"""What the page and the terminal show of the records: plans in order, each with the figures that are quoted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from wavefit import choice as choices
from wavefit.schema import Choice, Device, Power, Record, Request, ScenarioResult

Status = Literal["pick", "front", "passed", "out", "moved", "failed"]


@dataclass(frozen=True)
class Row:
    """One plan.

    Attributes:
        number: its place in the table, from 1.
        status: "out" passed but misses a constraint; "moved" has answers that changed; "failed" was not finished.
        why: why it may not be picked, "" where it may.
        notes: what qualifies its figures or its verdict.
        where: " on gpu1" where plans of several GPUs share the table.
    """

    number: int
    record: Record
    status: Status
    why: str
    fix: str
    notes: tuple[str, ...]
    where: str = ""

    @property
    def label(self) -> str:
        return self.record.plan.label + self.where

    @property
    def series(self) -> str:
        return self.record.plan.series + self.where

    @property
    def latency(self) -> ScenarioResult | None:
        return self.record.measurement.latency if self.record.measurement else None

    @property
    def throughput(self) -> ScenarioResult | None:
        return self.record.measurement.throughput if self.record.measurement else None

    @property
    def peak_bytes(self) -> int | None:
        return choices.peak_bytes(self.record)

    @property
    def power(self) -> Power | None:
        return quoted_power(self.record)

    @property
    def word(self) -> str:
        """The verdict in a word or two."""
        words = {"pick": "picked", "front": "passed", "out": "misses a limit", "moved": "answers moved"}
        if self.status == "failed":
            return self.record.failure.kind if self.record.failure else "incomplete"
        return words.get(self.status, self.status)


def rows(records: Sequence[Record], choice: Choice, request: Request | None = None) -> list[Row]:
    """Every plan: the pick, the runners-up, the others that passed, those that moved, those that failed."""
    order = {key: place for place, key in enumerate((choice.pick, *choice.runners_up))}
    request = request or Request()
    made = [(record, *_status(record, choice, request)) for record in records]
    rank: dict[Status, int] = {"pick": 0, "front": 1, "passed": 1, "out": 2, "moved": 3, "failed": 4}
    made.sort(key=lambda row: (rank[row[1]], order.get(row[0].key, len(order)), _latency(row[0])))
    several = len({record.device.id for record in records if record.device.kind == "gpu"}) > 1
    return [
        Row(
            number,
            record,
            status,
            why,
            fix=record.failure.fix if record.failure else "",
            notes=_notes(record),
            where=f" on {record.device.id}" if several else "",
        )
        for number, (record, status, why) in enumerate(made, 1)
    ]


def quoted_power(record: Record) -> Power | None:
    """The meter whose figures are quoted: the first with joules an inference, else the first with watts."""
    meters = record.measurement.power if record.measurement else ()
    for name in ("joules_per_inference", "watts"):
        for power in meters:
            if getattr(power, name) is not None:
                return power
    return None


def devices(known: Iterable[Device], records: Iterable[Record]) -> list[Device]:
    """Every device of the bundle and of its records, each once."""
    found: dict[tuple[str, str | None, str | None], Device] = {}
    for device in (*known, *(record.device for record in records)):
        found.setdefault((device.id, device.name, device.machine), device)
    return list(found.values())


def best_of_each_series(rows: Sequence[Row], most: int) -> list[Row]:
    """The first row of every series that has raw latencies, the pick first, at most so many."""
    best: dict[tuple[str, str], Row] = {}
    for row in rows:
        if row.status in ("pick", "front", "passed", "out") and row.latency and row.latency.latencies_s:
            best.setdefault((row.record.device.id, row.record.plan.series), row)
    return list(best.values())[:most]


def cpu_rival(rows: Sequence[Row]) -> Row | None:
    """The best CPU plan of the pick's batch, where the pick is on a GPU: what the GPU is worth."""
    if not rows or rows[0].status != "pick" or rows[0].record.device.kind == "cpu":
        return None
    batch = rows[0].record.plan.batch
    rivals = [
        row
        for row in rows
        if row.record.passed and row.record.device.kind == "cpu" and row.record.plan.batch == batch
    ]
    return min(rivals, key=lambda row: _latency(row.record), default=None)


def _status(record: Record, choice: Choice, request: Request) -> tuple[Status, str]:
    if record.failure is None and record.verdict is not None and not record.verdict.passed:
        return "moved", record.why_not
    if not record.passed:
        return "failed", record.why_not or "its answers were not checked"
    if record.key == choice.pick:
        return "pick", ""
    broken = choices.violations(record, request)
    if broken:
        return "out", "; ".join(broken)
    return ("front" if record.key in choice.front else "passed"), ""


def _notes(record: Record) -> tuple[str, ...]:
    verdict = record.verdict.warnings if record.verdict else ()
    scenarios = record.measurement.scenarios if record.measurement else ()
    invalid = (
        f"LoadGen calls its {one.name} run not valid: {'; '.join(one.reasons) or 'no reason given'}"
        for one in scenarios
        if not one.valid
    )
    return (*verdict, *invalid)


def _latency(record: Record) -> float:
    return choices.latency_s(record) or float("inf")
