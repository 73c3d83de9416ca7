"""Where a model's time goes on an OpenCL device: every launch beside its floor, and a stream of batches as a trace."""

from __future__ import annotations

import time
from collections.abc import Sequence
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
from wavefit.native.opencl.timeline import Span, Timeline, overlap_s
from wavefit.native.opencl.tuned import known
from wavefit.native.operation import Limits
from wavefit.native.program import Program, Step
from wavefit.schema import Device, Model, Struct

_PASSES = 10


class Profiling(Struct, frozen=True, kw_only=True):
    """What a child is told.

    Args:
        shapes: of every input, a whole batch.
        sizes: of symbolic dimensions other than the batch.
        half: keep tensors in 16 bits.
        batches: of the stream.
    """

    model: Model
    device: Device
    batch: int
    shapes: dict[str, tuple[int, ...]]
    sizes: dict[str, int]
    half: bool = False
    batches: int = 8


class Launched(Struct, frozen=True, kw_only=True):
    """One launch.

    Args:
        node: of the model.
        kernel: the function.
        seconds: on the device, the median of some passes.
        flops, bytes: of the whole node, on its first launch.
        floor_s: the least that those could take at the device's peaks; None where a peak is unknown.
    """

    node: str
    op: str
    kernel: str
    seconds: float
    flops: int
    bytes: int
    floor_s: float | None = None


class Profile(Struct, frozen=True, kw_only=True):
    """What was measured.

    Args:
        launches: in the order in which they run.
        batch_s: host to host, for a batch of a stream of them; the first one is not counted.
        spans: of the stream.
        overlap_s: of it, while kernels ran, in which data moved too.
    """

    device: str
    launches: tuple[Launched, ...]
    batch_s: float | None
    spans: tuple[Span, ...]
    overlap_s: float

    @property
    def seconds(self) -> float:
        """Of all launches."""
        return sum(each.seconds for each in self.launches)


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


def floor_s(flops: int, moved: int, limits: Limits) -> float | None:
    """The roofline: work over the peak of fp32, or bytes over the bandwidth, whichever takes longer.

    Williams, Waterman, Patterson: "Roofline", Communications of the ACM 52 (2009).
    """
    if limits.flops is None or limits.bandwidth is None or not (flops or moved):
        return None
    return max(flops / limits.flops, moved / limits.bandwidth)


def total_floor_s(launches: Sequence[Launched]) -> float | None:
    """Of all; None where none is known."""
    found = [each.floor_s for each in launches if each.floor_s is not None]
    return sum(found) if found else None
