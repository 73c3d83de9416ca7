"""The system under test: a session that answers LoadGen's samples."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter_ns

from wavefit.bench import loadgen
from wavefit.routes.session import Arrays, Session


@dataclass(frozen=True)
class Subject:
    """What is measured.

    Args:
        session: already warm; run only in the thread that calls :func:`run`.
        batches: distinct inputs of ``batch`` items each, used in turn and never copied.
        batch: items in one batch.
        batch_s: the time of one batch, as estimated so far, in seconds.
    """

    session: Session
    batches: Sequence[Arrays]
    batch: int
    batch_s: float

    def faster_or_slower(self, items_per_s: float) -> Subject:
        """The same with the estimate that a measured throughput gives."""
        return Subject(self.session, self.batches, self.batch, self.batch / items_per_s)


class System:
    """Answers samples and keeps the times; after a failure it answers without running."""

    def __init__(self, subject: Subject) -> None:
        self.failure = loadgen.Kept()
        self.spans: list[tuple[int, int]] = []  # start and end of each query or batch, ns
        self._subject = subject
        self._complete = loadgen.completer()
        self._runs = 0

    def answer(self, ids: list[int], place: int | None = None) -> None:
        """Answers samples that fit in one batch, with the batch at that place in turn."""
        self._run(self._runs if place is None else place)
        self._complete(ids)

    def answer_all(self, ids: list[int]) -> None:
        """Answers any number of samples as a stream of batches, and tells LoadGen when all are done."""
        if self.failure.error is None:
            with self.failure:
                self._stream(math.ceil(len(ids) / self._subject.batch))
        self._complete(ids)

    def answer_query(self, ids: list[int]) -> None:
        """The same, timed as one."""
        first = len(self.spans)
        self.answer_all(ids)
        if len(self.spans) > first:
            self.spans[first:] = [(self.spans[first][0], self.spans[-1][1])]

    def _stream(self, count: int) -> None:
        """A batch's time is from being taken to being answered: where several are under way, their times overlap."""
        begun: deque[int] = deque()
        batches, first = self._subject.batches, self._runs

        def taken() -> Iterator[Arrays]:
            for number in range(first, first + count):
                begun.append(perf_counter_ns())
                yield batches[number % len(batches)]

        for _ in self._subject.session.stream(taken()):
            self.spans.append((begun.popleft(), perf_counter_ns()))
            self._runs += 1

    def _run(self, place: int) -> None:
        if self.failure.error is not None:
            return
        batches = self._subject.batches
        with self.failure:
            start = perf_counter_ns()
            self._subject.session.run(batches[place % len(batches)])
            self.spans.append((start, perf_counter_ns()))
            self._runs += 1

    def latencies_s(self) -> list[float]:
        return [(end - start) / 1e9 for start, end in self.spans]

    def duration_s(self) -> float:
        return (self.spans[-1][1] - self.spans[0][0]) / 1e9
