"""The child's side of :mod:`tune`: compiles, checks and times candidates, and writes each result down at once."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from wavefit.child.main import Reporter
from wavefit.native.opencl import compilers
from wavefit.native.opencl.compilers import Compilers, Where
from wavefit.native.opencl.tuned import Store, open_store
from wavefit.native.opencl.tuning_job import Job
from wavefit.native.operation import Limits, Operation
from wavefit.schema import Struct

_LEAST_S = 1.0  # of an operation, once it is begun


class Work(Struct, frozen=True, kw_only=True):
    """An operation to tune."""

    operation: Operation
    weight: float  # its share of the budget, among those of all
    label: str


class Task(Struct, frozen=True, kw_only=True):
    """What the child is told."""

    place: Where
    limits: Limits
    work: tuple[Work, ...]  # the heaviest first
    file: str
    run: str  # names this tuning among others
    until: float  # seconds since the epoch
    budget_s: float
    workers: int
    run_s: float  # that one candidate may take
    seed: int = 0
    done: int = 0  # operations that were tuned before


class Finished(Struct, frozen=True, kw_only=True):
    operations: int


def tune_all(payload: Task, say: Reporter) -> Finished:
    """Tunes one operation after another until the time is over."""
    import pyopencl as cl

    say.stage("open the device")
    context = cl.Context([compilers.find(payload.place)])
    pool = Compilers(payload.place, payload.workers)
    store, done = open_store(Path(payload.file)), 0
    weights = sum(work.weight for work in payload.work)
    for work in payload.work:
        left = payload.until - time.time()
        if left < _LEAST_S:
            break
        share = max(_LEAST_S, left * work.weight / max(weights, 1e-30))
        weights -= work.weight
        done += 1
        say.stage(work.label)
        gain = _tune(payload, context, pool, store, work, time.time() + min(share, left), say)
        say(f"tuning {payload.done + done} of {payload.done + len(payload.work)} {work.label}: {gain}")
    pool.close()
    return Finished(operations=done)


def _tune(
    task: Task, context: Any, pool: Compilers, store: Store, work: Work, until: float, say: Reporter
) -> str:
    """Tunes one operation; says what came of it."""
    import pyopencl as cl

    try:
        job = Job(task, context, pool, store, work.operation)
        try:
            choice = job.run(until, say)
        finally:
            job.close()
    except cl.Error as error:
        return f"left alone, {' '.join(str(error).split())[:100]}"
    return f"{choice.gain:.2f}x of default" if choice is not None else "no time"
