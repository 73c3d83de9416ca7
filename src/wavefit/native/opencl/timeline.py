"""What a device did when: uploads, kernels and downloads of a stream of batches, by its own clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wavefit.schema import Struct

TRACKS = ("upload", "compute", "download")
"""The queues."""


class Span(Struct, frozen=True, kw_only=True):
    """One command.

    Args:
        track: one of :data:`TRACKS`.
        name: of the input, output or node.
        batch: number of the batch in its stream.
        start_s, end_s: seconds since the first command began.
    """

    track: str
    name: str
    batch: int
    start_s: float
    end_s: float


class Timeline:
    """Gathers events of queues that were made with profiling; reads their times once all are done."""

    def __init__(self) -> None:
        self._events: list[tuple[str, str, int, Any]] = []

    def add(self, track: str, batch: int, names: Sequence[str], events: Sequence[Any]) -> None:
        """Commands of one queue, in order; where a transfer needs none, there are no events."""
        self._events += [(track, name, batch, event) for name, event in zip(names, events, strict=False)]

    def spans(self) -> tuple[Span, ...]:
        """All of them, by start. Waits for what is not done."""
        for *_, event in self._events:
            event.wait()
        times = [(event.profile.start, event.profile.end) for *_, event in self._events]
        first = min((start for start, _ in times), default=0)
        found = [
            Span(
                track=track,
                name=name,
                batch=batch,
                start_s=(start - first) * 1e-9,
                end_s=(end - first) * 1e-9,
            )
            for (track, name, batch, _), (start, end) in zip(self._events, times, strict=True)
        ]
        return tuple(sorted(found, key=lambda span: (span.start_s, span.end_s)))


def overlap_s(spans: Sequence[Span]) -> float:
    """Seconds in which kernels ran while another queue moved data."""
    computing = _joined([(span.start_s, span.end_s) for span in spans if span.track == "compute"])
    moving = _joined([(span.start_s, span.end_s) for span in spans if span.track != "compute"])
    pairs = ((max(a, c), min(b, d)) for a, b in computing for c, d in moving)
    return sum(end - start for start, end in pairs if end > start)


def chrome(spans: Sequence[Span]) -> dict[str, Any]:
    """In the Trace Event Format, which Perfetto and chrome://tracing show; one thread a queue, times in us.

    https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
    """
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": number, "args": {"name": track}}
        for number, track in enumerate(TRACKS)
    ]
    events += [
        {
            "ph": "X",
            "name": span.name,
            "pid": 1,
            "tid": TRACKS.index(span.track),
            "ts": span.start_s * 1e6,
            "dur": (span.end_s - span.start_s) * 1e6,
            "args": {"batch": span.batch},
        }
        for span in spans
    ]
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _joined(intervals: list[tuple[float, float]]) -> list[tuple[float, float]]:
    joined: list[tuple[float, float]] = []
    for start, end in sorted(intervals):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined
