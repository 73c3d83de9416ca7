"""Where a model's time goes on an OpenCL device: every launch beside its floor, and a stream of batches as a trace."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

from wavefit.child.main import Reporter
from wavefit.device.user_cache import user_cache
from wavefit.errors import InputError
from wavefit.model.samples import random_samples
from wavefit.native import engine
from wavefit.native.limits import of_opencl
from wavefit.native.opencl import devices
from wavefit.native.opencl.chooser import Chooser
from wavefit.native.opencl.executor import Executor
from wavefit.native.opencl.timeline import Timeline, overlap_s
from wavefit.native.opencl.tuned import known
from wavefit.native.operation import Limits
from wavefit.native.profiling import Launched, Profile, Profiling, floor_s
from wavefit.native.program import Program, Step

_PASSES = 10


def profile(payload: Profiling, say: Reporter) -> Profile:
    """In a child process: compiles the model, and runs it on random inputs.

    Raises:
        InputError: the engine cannot run the model.
        RouteError: OpenCL does not have the device, or its driver failed.
    """
    found = devices.find(payload.device)
    limits = of_opencl(found, payload.device)
    say.stage("compile")
    program = engine.prepare(
        Path(payload.model.path),
        payload.shapes,
        Chooser(limits, known(found)),
        "float16" if payload.half else None,
    )
    if isinstance(program, tuple):
        first = program[0]
        raise InputError(f"{first.op} node {first.node!r}: {first.reason}", first.fix)
    executor = Executor(program, found, user_cache() / "opencl", profiling=True)
    say.stage("run")
    try:
        return _profile(executor, program, limits, payload)
    finally:
        executor.close()


def _profile(executor: Executor, program: Program, limits: Limits, payload: Profiling) -> Profile:
    samples = random_samples(payload.model, payload.sizes, payload.batch, seed=0)
    inputs = samples.batch(0, payload.batch)
    executor.run(inputs)
    passes = [[seconds for _, seconds in executor.times()] for _ in range(_PASSES)]
    timeline, ends = Timeline(), []
    for _ in executor.stream([inputs] * payload.batches, timeline):
        ends.append(time.perf_counter())
    spans = timeline.spans()
    return Profile(
        device=limits.name,
        launches=tuple(
            _launched(step, median(seconds), limits)
            for step, seconds in zip(program.steps, zip(*passes, strict=True), strict=True)
        ),
        batch_s=(ends[-1] - ends[0]) / (len(ends) - 1) if len(ends) > 1 else None,
        spans=spans,
        overlap_s=overlap_s(spans),
    )


def _launched(step: Step, seconds: float, limits: Limits) -> Launched:
    return Launched(
        node=step.node,
        op=step.op,
        kernel=step.kernel.name,
        seconds=seconds,
        flops=step.flops,
        bytes=step.bytes,
        floor_s=floor_s(step.flops, step.bytes, limits),
    )
