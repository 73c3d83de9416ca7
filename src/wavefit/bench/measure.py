"""Measures one opened plan: warm-up, the scenarios under the meters, memory, another batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from wavefit.bench import scenarios
from wavefit.bench.memory import host_peak_bytes
from wavefit.bench.system import Subject
from wavefit.bench.warmup import other_batch, warm_up
from wavefit.device.power import Meter
from wavefit.errors import RouteError
from wavefit.routes.session import Arrays, Session
from wavefit.schema import Load, Measurement, Plan, Power, ScenarioResult

Say = Callable[[str], None]

_QUICK_S = 30.0
"""A plan whose first run took longer than this is not compiled a second time for another batch."""


@dataclass(frozen=True)
class Opened:
    """What the caller took down while it opened the session and ran it once.

    Args:
        load_s: opening, in seconds.
        first_run_s: the first run, in seconds.
        host_peak_bytes: :func:`wavefit.bench.memory.host_peak_bytes` right after the first run. None: it is read after
            the warm-up, and then has in it whatever else this process did before, such as checking the answers.
    """

    load_s: float
    first_run_s: float
    host_peak_bytes: int | None = None


def measure(
    session: Session,
    plan: Plan,
    batches: Sequence[Arrays],
    load: Load,
    meters: Sequence[Meter],
    say: Say,
    opened: Opened,
) -> Measurement:
    """Measures a session that is open and has run once.

    The order is: warm-up until the time settles; host memory; the scenarios, with the meters running; device memory;
    last, one run at another batch, because it may make the runtime compile again. Run it in the thread that opened
    the session. The session stays open.

    Args:
        batches: one or more distinct inputs of ``plan.batch`` items each, random or real, never zeros. They are used
            in turn and not copied.
        load: the scenarios and about how long each of them, and at most the warm-up, lasts.
        meters: started before the first scenario and stopped after the last; their joules are for every item inferred.
        say: told of each stage.
        opened: what its caller took down.

    Raises:
        RouteError: the runtime failed, or LoadGen is not installed.
        InputError: the load is out of range.
    """
    scenarios.check_load(load)
    say("warm-up")
    warm = warm_up(session, batches, load.duration_s)
    # Before LoadGen makes its tables of queries: they are not the model's memory.
    host_peak = opened.host_peak_bytes or host_peak_bytes()
    subject = Subject(session, batches, plan.batch, warm.batch_s)
    results, power = _run_metered(subject, load, meters, say)
    return Measurement(
        load_s=opened.load_s,
        compile_s=session.compile_s,
        first_run_s=opened.first_run_s,
        steady_after_runs=warm.runs if warm.settled else None,
        scenarios=results,
        host_peak_bytes=host_peak,
        device_peak_bytes=session.device_peak_bytes(),
        power=power,
        new_shape_s=_new_shape(session, batches[0], opened.first_run_s, say),
    )


def _run_metered(
    subject: Subject, load: Load, meters: Sequence[Meter], say: Say
) -> tuple[tuple[ScenarioResult, ...], tuple[Power, ...]]:
    """The scenarios' results and what the meters read; meters are stopped after a failure as well."""
    results: list[ScenarioResult] = []
    readings: list[Power | None] = []
    for meter in meters:
        meter.start()
    try:
        for name in load.scenarios:
            say(f"{name} {load.duration_s:g} s")
            result = scenarios.run(name, subject, load)
            if name in ("SingleStream", "Offline"):
                subject = subject.faster_or_slower(result.throughput_per_s)
            results.append(result)
    finally:
        inferences = sum(result.samples for result in results)
        readings = [meter.stop(inferences) for meter in meters]
    return tuple(results), tuple(reading for reading in readings if reading is not None)


def _new_shape(session: Session, batch: Arrays, first_run_s: float, say: Say) -> float | None:
    """Seconds of the first run at another batch; None where the batch is fixed or it could not be tried.

    Leaves the session at the plan's own batch, which is the one that a later profile is to show.
    """
    inputs = other_batch(session.inputs, batch)
    if inputs is None:
        return None
    if first_run_s > _QUICK_S:
        say("another batch is not tried, as the first run was slow")
        return None
    say("another batch")
    start = time.perf_counter()
    try:
        session.run(inputs)
    except RouteError as error:
        say(f"another batch failed: {error.reason}")
        return None
    taken = time.perf_counter() - start
    session.run(batch)
    return taken
