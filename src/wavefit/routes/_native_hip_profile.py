"""The profile of a model's program in Triton: the work of one child process."""

from __future__ import annotations

from wavefit.child.main import Reporter
from wavefit.native.profiling import Profile, Profiling
from wavefit.routes import native_hip
from wavefit.schema import Plan


def profile(payload: Profiling, say: Reporter) -> Profile:
    """Compiles a model as the route does, and times its launches.

    Raises:
        InputError: the model cannot be read.
        RouteError: PyTorch does not have the device, the engine cannot run the model, or the driver failed.
    """
    model, device = payload.model, payload.device
    plan = Plan(
        route="native_hip",
        device=device.id,
        precision="fp16" if payload.half else model.precision,
        batch=payload.batch,
        shapes=payload.shapes,
        options={"storage": "fp16"} if payload.half else {},
    )
    say.stage("compile")
    executor, limits = native_hip.executor(plan, model, device, say)
    from wavefit.native.triton.profile import profile as timed

    try:
        return timed(payload, executor, limits, say)
    finally:
        executor.close()
