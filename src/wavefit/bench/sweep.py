"""When a batch sweep stops."""

from __future__ import annotations

from collections.abc import Sequence

from wavefit.schema import Record

_RISE = 1.03  # what counts as more throughput: 3 % above the best so far
_PATIENCE = 2  # batches in a row without more of it; one alone may be noise


def why_stop(done: Sequence[Record], batch: int, free_bytes: int | None) -> str | None:
    """Why ``batch`` is not tried after the batches ``done`` of the same series, ascending; None where it is.

    Args:
        free_bytes: memory that the device offers now; None where that is not known.
    """
    if not done:
        return None
    last = done[-1]
    if last.failure is not None and last.failure.kind == "out of memory":
        return f"batch {last.plan.batch} already ran out of memory"
    if (needed := _needed_bytes(done, batch)) is not None and free_bytes is not None and needed > free_bytes:
        return f"it would take about {needed / 2**20:,.0f} MiB (predicted), {free_bytes / 2**20:,.0f} MiB are free"
    rates = [(record.plan.batch, rate) for record in done if (rate := _rate(record)) is not None]
    best_of = len(rates) - _PATIENCE
    if best_of < 1 or max(rate for _, rate in rates[best_of:]) >= _RISE * max(
        rate for _, rate in rates[:best_of]
    ):
        return None
    (before, slower), (at, rate) = max(rates[:best_of], key=lambda pair: pair[1]), rates[-1]
    return f"throughput stopped rising: {slower:,.0f}/s at batch {before}, {rate:,.0f}/s at batch {at}"


def _needed_bytes(done: Sequence[Record], batch: int) -> int | None:
    """The peak at ``batch``, on the straight line through the two largest batches measured."""
    peaks = [(record.plan.batch, peak) for record in done if (peak := _peak(record)) is not None]
    if len(peaks) < 2 or peaks[-1][0] == peaks[-2][0]:
        return None
    (small, low), (large, high) = peaks[-2:]
    return high + max(0, high - low) * (batch - large) // (large - small)


def _peak(record: Record) -> int | None:
    """In the memory that the device offers: what the host took says nothing about a card's."""
    if record.measurement is None:
        return None
    on_cpu = record.device.kind == "cpu"
    return record.measurement.host_peak_bytes if on_cpu else record.measurement.device_peak_bytes


def _rate(record: Record) -> float | None:
    result = record.measurement.throughput if record.measurement else None
    return result.throughput_per_s if result else None
