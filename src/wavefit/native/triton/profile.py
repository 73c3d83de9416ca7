"""Where a program's time goes on a GPU: every launch beside its floor, and all of them as one graph."""

from __future__ import annotations

import time

from wavefit.child.main import Reporter
from wavefit.model.samples import random_samples
from wavefit.native.operation import Limits
from wavefit.native.profiling import Launched, Profile, Profiling, floor_s
from wavefit.native.program import Step
from wavefit.native.triton.executor import Executor


def profile(payload: Profiling, executor: Executor, limits: Limits, say: Reporter) -> Profile:
    """Runs a program on random inputs.

    Raises:
        RouteError: the driver failed.
    """
    samples = random_samples(payload.model, payload.sizes, payload.batch, seed=0)
    inputs = samples.batch(0, payload.batch)
    say.stage("run")
    executor.run(inputs)
    launches = tuple(_launched(step, seconds, limits) for step, seconds in executor.times())
    ends = []
    for _ in executor.stream([inputs] * payload.batches):
        ends.append(time.perf_counter())
    return Profile(
        device=limits.name,
        launches=launches,
        batch_s=(ends[-1] - ends[0]) / (len(ends) - 1) if len(ends) > 1 else None,
        graph_s=executor.seconds() if limits.kind == "gpu" else None,
    )


def _launched(step: Step, seconds: float, limits: Limits) -> Launched:
    return Launched(
        node=step.node,
        op=step.op,
        kernel=step.kernel.name,
        seconds=seconds,
        flops=step.flops,
        bytes=step.bytes,
        floor_s=floor_s(step.flops, step.bytes, limits, next(iter(step.kernel.types), None)),
    )
