"""The four traffic scenarios of MLPerf Inference, answered by a session.

What a query is in each (https://github.com/mlcommons/inference_policies, "Scenarios"):

- SingleStream: one whole batch, the next one when it is answered. A batch sweep gives a latency for each batch.
- MultiStream: eight items at once (a whole batch where the batch is larger), the next eight when they are answered.
- Offline: all items at once, a whole number of batches. LoadGen's latency of an item is its place in that queue and
  says nothing, so the latencies given here are those of the batches.
- Server: single items that arrive by a Poisson process. Those that wait are run together, up to a whole batch, and
  none waits for others to come.

A batch that is not full is run as a whole one, as the plan has one shape. Batches are built beforehand, so putting
single items together is not part of any time.

Latencies are taken with ``perf_counter_ns`` around each run; Server's come from LoadGen, which counts from the moment
at which a query was due, not from when it could be handed over.
"""

from __future__ import annotations

import math
import queue
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from msgspec.structs import replace

from wavefit.bench import loadgen
from wavefit.bench.statistics import percentiles, thin
from wavefit.bench.system import Subject, System
from wavefit.errors import InputError
from wavefit.schema import Load, ScenarioName, ScenarioResult

MULTI_STREAM_ITEMS = 8
"""MLPerf's number of samples in a MultiStream query."""

_MOST_QUERIES = 1_000_000  # LoadGen makes them all beforehand, 270 bytes each
_FEWEST_QUERIES = 3
_SLACK = 1.15  # how much faster than estimated Offline may be and still last long enough
_EARLY_STOPPING = {"SingleStream": 64, "MultiStream": 662}
"""Queries below which LoadGen calls a run not valid: it wants so many to be sure of p90, and of p99."""

_LONGER = 5  # times the duration that a run may take to reach them
_SERVER_SHARE = 0.7
_SERVER_LATENCY_BATCHES = 10
_SERVER_LATENCY_S = 0.02  # at least: two threads of Python hand over in 5 ms where both are busy
_SERVER_HANDING_S = 2e-4  # about what handing one query from LoadGen's thread to ours costs


def check_load(load: Load) -> None:
    """Holds a load against what LoadGen can do.

    Raises:
        InputError: a duration, rate or latency that is not positive, or too many queries.
    """
    given = {
        "duration": load.duration_s,
        "target latency": load.target_latency_s,
        "target qps": load.target_qps,
    }
    for name, value in given.items():
        if value is not None and not (math.isfinite(value) and value > 0):
            raise InputError(f"the {name} is {value:g}", "give a number above 0")
    if load.target_qps is not None and load.target_qps * load.duration_s > _MOST_QUERIES:
        raise InputError(
            f"{load.target_qps:g} queries a second for {load.duration_s:g} s are more than {_MOST_QUERIES:,} queries",
            "lower the target qps or the duration",
        )


def run(name: ScenarioName, subject: Subject, load: Load) -> ScenarioResult:
    """Runs one scenario for about ``load.duration_s``.

    The order of the queries and Server's arrivals are the same for the same seed.

    Raises:
        RouteError: the runtime failed while answering, or LoadGen is not installed.
        InputError: the load is out of range.
    """
    check_load(load)
    return _SCENARIOS[name](subject, load)


def _single_stream(subject: Subject, load: Load) -> ScenarioResult:
    system = System(subject)
    settings = _settings(
        load,
        min_query_count=_fewest("SingleStream", subject.batch_s, load),
        single_stream_expected_latency_ns=_expected_ns(subject.batch_s, load),
    )
    test = loadgen.Test("SingleStream", settings, len(subject.batches))
    report = loadgen.run(test, lambda ids, places: system.answer(ids, places[0]))
    return _result(test, system, report, samples=len(system.spans) * subject.batch)


def _multi_stream(subject: Subject, load: Load) -> ScenarioResult:
    system = System(subject)
    items = max(MULTI_STREAM_ITEMS, subject.batch)
    query_s = math.ceil(items / subject.batch) * subject.batch_s
    settings = _settings(
        load,
        min_query_count=_fewest("MultiStream", query_s, load),
        multi_stream_samples_per_query=items,
        multi_stream_expected_latency_ns=_expected_ns(query_s, load),
    )
    test = loadgen.Test("MultiStream", settings, max(items, len(subject.batches) * subject.batch))
    report = loadgen.run(test, lambda ids, places: system.answer_query(ids))
    result = _result(test, system, report, samples=len(system.spans) * items)
    return _hold_to_target(result, load.target_latency_s)


def _fewest(scenario: str, query_s: float, load: Load) -> int:
    """As many queries as LoadGen needs to call the run valid, where they do not take too long."""
    needed = _EARLY_STOPPING[scenario]
    return needed if needed * query_s <= _LONGER * load.duration_s else _FEWEST_QUERIES


def _offline(subject: Subject, load: Load) -> ScenarioResult:
    """LoadGen makes all queries beforehand; where that was too few, as it went faster than estimated, once more."""
    result = _offline_once(subject, load)
    if result.valid or result.duration_s >= load.duration_s:
        return result
    return _offline_once(subject.faster_or_slower(result.throughput_per_s), load)


def _offline_once(subject: Subject, load: Load) -> ScenarioResult:
    system = System(subject)
    batch, rate = subject.batch, _SLACK * subject.batch / subject.batch_s
    whole_batches = math.ceil(
        min(1.1 * load.duration_s * rate, _MOST_QUERIES) / batch
    )  # 1.1 is LoadGen's own slack
    settings = {
        **_settings(load),
        "min_query_count": max(_FEWEST_QUERIES, whole_batches) * batch,
        "offline_expected_qps": min(rate, _MOST_QUERIES / (1.1 * load.duration_s)),
    }
    test = loadgen.Test("Offline", settings, len(subject.batches) * batch)
    report = loadgen.run(test, lambda ids, places: system.answer_all(ids))
    return _result(test, system, report, samples=len(system.spans) * batch)


def _server(subject: Subject, load: Load) -> ScenarioResult:
    capacity = subject.batch / subject.batch_s
    rate, latency, notes = _server_targets(subject, load)
    most_waiting = max(2 * subject.batch, math.ceil(capacity * max(load.duration_s, latency)))
    settings = _settings(
        load,
        server_target_qps=rate,
        server_target_latency_ns=math.ceil(latency * 1e9),
        server_max_async_queries=most_waiting,  # more load than that would be worked off long after the duration
    )
    test = loadgen.Test("Server", settings, len(subject.batches) * subject.batch, trace=True)
    system = System(subject)
    report = _serve(test, system, subject.batch)
    count = len(report.latencies_s)
    result = _result(test, system, report, samples=count, latencies_s=report.latencies_s)
    return replace(result, target_qps=rate, target_latency_s=latency, reasons=(*result.reasons, *notes))


def _server_targets(subject: Subject, load: Load) -> tuple[float, float, tuple[str, ...]]:
    """Queries a second, the latency allowed in seconds, and what was chosen here because it was not given."""
    capacity = subject.batch / subject.batch_s
    rate, latency, notes = load.target_qps, load.target_latency_s, []
    if rate is None:
        capacity = subject.batch / (subject.batch_s + _SERVER_HANDING_S)
        rate = min(_SERVER_SHARE * capacity, _MOST_QUERIES / load.duration_s)
        notes.append(
            f"no target qps given: {rate:.4g}, {_SERVER_SHARE:.0%} of {capacity:.4g} items a second, was used"
        )
    if latency is None:
        latency = max(_SERVER_LATENCY_BATCHES * subject.batch_s, _SERVER_LATENCY_S)
        notes.append(f"no target latency given: {latency * 1e3:.4g} ms was used")
    return rate, latency, tuple(notes)


def _serve(test: loadgen.Test, system: System, batch: int) -> loadgen.Report:
    """LoadGen issues in a thread of its own; this thread, which opened the session, answers.

    Some runtimes keep state by thread (CUDA graphs of torch.compile), so a session never changes threads.
    """
    waiting: queue.SimpleQueue[int | None] = queue.SimpleQueue()

    def issue(ids: list[int], places: list[int]) -> None:
        for sample in ids:
            waiting.put(sample)

    with ThreadPoolExecutor(max_workers=1) as thread:
        running = thread.submit(loadgen.run, test, issue)
        running.add_done_callback(lambda _: waiting.put(None))
        while ids := _take(waiting, batch):
            system.answer(ids)
        return running.result()


def _take(waiting: queue.SimpleQueue[int | None], most: int) -> list[int]:
    """Waits for one sample and takes along what else is there, up to ``most``; empty at the end."""
    ids: list[int] = []
    sample = waiting.get()
    while sample is not None:
        ids.append(sample)
        if len(ids) == most or waiting.empty():
            return ids
        sample = waiting.get()
    if ids:
        waiting.put(None)
    return ids


def _settings(load: Load, **more: float) -> dict[str, int | float]:
    seed = load.seed % 2**32  # LoadGen seeds a 32-bit Mersenne Twister
    return {
        "min_duration_ms": max(1, round(load.duration_s * 1000)),
        "min_query_count": _FEWEST_QUERIES,
        "qsl_rng_seed": seed,
        "sample_index_rng_seed": seed,
        "schedule_rng_seed": seed,
        **more,
    }


def _expected_ns(query_s: float, load: Load) -> int:
    """The latency that LoadGen plans with: it makes queries for twice the duration, here for four times."""
    return max(1, round(max(query_s / 2, 2 * load.duration_s / _MOST_QUERIES) * 1e9))


def _result(
    test: loadgen.Test,
    system: System,
    report: loadgen.Report,
    samples: int,
    latencies_s: Sequence[float] | None = None,
) -> ScenarioResult:
    """What was measured; raises what a callback had to keep."""
    system.failure.raise_again()
    latencies = system.latencies_s() if latencies_s is None else latencies_s
    return ScenarioResult(
        name=test.scenario,
        queries=int(report.results["result_query_count"]),
        samples=samples,
        duration_s=system.duration_s(),
        throughput_per_s=samples / system.duration_s(),
        latency=percentiles(latencies),
        latencies_s=thin(latencies),
        valid=report.valid,
        reasons=report.reasons,
    )


def _hold_to_target(result: ScenarioResult, target_s: float | None) -> ScenarioResult:
    """LoadGen knows no target latency in MultiStream, so it is held here against the same percentile, the 99th."""
    if target_s is None:
        return result
    reasons = result.reasons
    if result.latency.p99_s > target_s:
        reached, target = (f"{seconds * 1e3:.4g} ms" for seconds in (result.latency.p99_s, target_s))
        reasons = (*reasons, f"the 99th percentile, {reached}, is over the target latency of {target}")
    valid = result.valid and result.latency.p99_s <= target_s
    return replace(result, target_latency_s=target_s, valid=valid, reasons=reasons)


_SCENARIOS: dict[ScenarioName, Callable[[Subject, Load], ScenarioResult]] = {
    "SingleStream": _single_stream,
    "MultiStream": _multi_stream,
    "Offline": _offline,
    "Server": _server,
}
