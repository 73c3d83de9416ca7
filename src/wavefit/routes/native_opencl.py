"""wavefit's own engine on OpenCL: any GPU with an OpenCL driver, also those that ROCm, MIGraphX and Triton refuse.

Options of a plan: ``storage=fp16`` keeps an fp32 file's tensors in 16 bits between kernels, which compute in float.
``cpu_nodes=N``: N nodes, which the engine cannot run, are left to ONNX Runtime's CPU provider, as the user allows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from wavefit.device.user_cache import user_cache
from wavefit.errors import InputError, RouteError
from wavefit.model.shapes import bind
from wavefit.routes import _ort, _packages
from wavefit.routes._native_plans import Shapes, frozen, unsupported
from wavefit.routes._tuning import Tuned, Tuning
from wavefit.routes.session import Session
from wavefit.schema import (
    Device,
    Model,
    Plan,
    Precision,
    Prediction,
    Request,
    Unsupported,
)

if TYPE_CHECKING:
    import onnx_ir as ir

    from wavefit.child.main import Reporter
    from wavefit.native.opencl.chooser import Chooser
    from wavefit.native.partition import Partition
    from wavefit.native.program import Program

TUNES = True

_NAME = "native_opencl"
_INSTALL = "pip install 'wavefit[opencl]'"


def plans(devices: Sequence[Device], model: Model, request: Request) -> list[Plan | Unsupported]:
    missing = [name for name in ("pyopencl", "onnx-ir") if _packages.version(name) is None]
    if missing:
        return [_refuse(None, f"{' and '.join(missing)} is not installed", _INSTALL)]
    if not devices:
        return [_refuse(None, "there is no device", "wavefit doctor says what this machine has")]
    return [answer for device in devices for answer in _plans(device, model, request)]


def _plans(device: Device, model: Model, request: Request) -> list[Plan | Unsupported]:
    try:
        cpu_nodes = _cpu_nodes(device, model, request)
    except InputError as error:
        return [_refuse(device, error.what, error.fix or "use another route")]
    if isinstance(cpu_nodes, tuple):
        return [_refuse(device, *cpu_nodes)]
    return [_plan(device, model, request, precision, cpu_nodes) for precision in request.precisions]


def _cpu_nodes(device: Device, model: Model, request: Request) -> int | _ort.Problem:
    """How many nodes go to the CPU; or why the engine cannot be used.

    Raises:
        InputError: the shapes do not go through the graph.
    """
    from wavefit.native.opencl.devices import runtime

    if device.kind == "cpu" and _NAME not in request.routes:
        return (
            "OpenCL on a CPU is for trying the engine, not for speed",
            f"add --route {_NAME} to run it all the same",
        )
    if runtime(device) is None:
        fix = "pip install 'wavefit[pocl]'" if device.kind == "cpu" else "wavefit doctor says what is missing"
        return f"no OpenCL driver shows {device.id}", fix
    shapes = frozen(bind(model, request.batches[0], request.sizes))
    stuck = unsupported(model.path, shapes)
    if not stuck:
        return 0
    if request.allow_cpu:
        return _partitioned(model.path, shapes)
    more = f", and {len(stuck) - 1} more" if len(stuck) > 1 else ""
    first = stuck[0]
    fix = (
        first.fix if request.require_gpu else f"add --allow-cpu to run such nodes on the CPU, or {first.fix}"
    )
    return f"{first.op} node {first.node!r}{more}: {first.reason}", fix


@lru_cache(maxsize=4)
def _partitioned(path: str, shapes: Shapes) -> int | _ort.Problem:
    """The nodes that the CPU runs; or why a partition is not worth it."""
    from wavefit.native.partition import partition

    if not _ort.installed():
        return (
            "the CPU's part of this model needs ONNX Runtime, which is not installed",
            "pip install 'wavefit[cpu]'",
        )
    found = partition(Path(path), dict(shapes))
    return (found, "use another route") if isinstance(found, str) else found.cpu_nodes


def _plan(
    device: Device, model: Model, request: Request, precision: Precision, cpu_nodes: int
) -> Plan | Unsupported:
    options: dict[str, str | int | float | bool] = {"cpu_nodes": cpu_nodes} if cpu_nodes else {}
    if precision != model.precision:
        if (model.precision, precision) != ("fp32", "fp16"):
            reason = f"the engine does not make {precision} of a file in {model.precision}"
            return _refuse(device, reason, f"give a file in {precision}", precision)
        options["storage"] = "fp16"
    return Plan(
        route=_NAME,
        device=device.id,
        precision=precision,
        batch=request.batches[0],
        shapes=bind(model, request.batches[0], request.sizes),
        options=options,
        transfer="zero-copy" if device.integrated or device.kind == "cpu" else "pinned",
    )


def _refuse(device: Device | None, reason: str, fix: str, precision: Precision | None = None) -> Unsupported:
    return Unsupported(
        route=_NAME, device=device.id if device else None, reason=reason, fix=fix, precision=precision
    )


def open(plan: Plan, model: Model, device: Device, workdir: Path) -> Session:
    from wavefit.native.limits import of_opencl
    from wavefit.native.opencl.chooser import Chooser
    from wavefit.native.opencl.devices import find
    from wavefit.native.opencl.executor import Executor
    from wavefit.native.opencl.tuned import known
    from wavefit.routes._native_session import NativeSession, StagedSession

    found = find(device)
    chooser = Chooser(of_opencl(found, device), known(found))
    if "cpu_nodes" not in plan.options:
        program = _program(plan, Path(model.path), plan.shapes, chooser)
        return NativeSession(model, plan, Executor(program, found, user_cache() / "opencl"))
    stages = _stages(plan, model)
    return StagedSession(model, plan, stages, _programs(plan, stages, chooser), found, workdir)


def predict(plan: Plan, model: Model, device: Device, general: Prediction) -> Prediction:
    """The engine's own account of a plan on a GPU: what it allocates, and what its kernels are expected to take.

    Memory is exact: arena, weights, and two sets of inputs and outputs, as in a stream. The time is the sum of the
    chosen templates' costs, with the copies that ``general`` has; where the CPU runs a part, it is general's.
    """
    from wavefit.native.limits import of_device
    from wavefit.native.opencl.chooser import Chooser

    if device.kind == "cpu" or _packages.version("onnx-ir") is None:
        return general
    chooser = Chooser(of_device(device))
    try:
        programs = _compiled(plan, model, chooser)
    except (InputError, RouteError):  # it is told where the plan is asked for, or opened
        return general
    alone = "cpu_nodes" not in plan.options
    costs = [chooser.cost(operation) or 0.0 for program in programs for operation, _ in program.operations]
    known = alone and of_device(device).flops is not None and general.transfer_s is not None
    return msgspec.structs.replace(
        general,
        peak_bytes=sum(each.device_bytes + alone * each.port_bytes for each in programs),
        total_s=sum(costs) + (general.transfer_s or 0.0) if known else general.total_s,
    )


def _compiled(plan: Plan, model: Model, chooser: Chooser) -> list[Program]:
    """All programs of a plan: one, or one for each stage of the engine's."""
    if "cpu_nodes" in plan.options:
        return _programs(plan, _stages(plan, model), chooser)
    return [_program(plan, Path(model.path), plan.shapes, chooser)]


def _stages(plan: Plan, model: Model) -> Partition:
    from wavefit.native.partition import partition

    found = partition(Path(model.path), plan.shapes)
    if isinstance(found, str):
        raise RouteError(found, "use another route")
    return found


def _programs(plan: Plan, stages: Partition, chooser: Chooser) -> list[Program]:
    engines = [stage for stage in stages.stages if stage.kind == "engine"]
    return [_program(plan, stage.model, stage.shapes, chooser) for stage in engines]


def _program(
    plan: Plan, source: Path | ir.Model, shapes: Mapping[str, tuple[int, ...]], chooser: Chooser
) -> Program:
    from wavefit.native import engine

    half = plan.options.get("storage") == "fp16"
    program = engine.prepare(source, shapes, chooser, "float16" if half else None)
    if isinstance(program, tuple):
        said = "; ".join(refusal.reason for refusal in program[:3])
        raise RouteError(
            f"the engine cannot run {len(program)} of the model's nodes: {said}", "use another route"
        )
    return program


def tune(payload: Tuning, say: Reporter) -> Tuned:
    """Tunes the operations of a plan; what was tuned before within as large a budget is left as it is.

    Raises:
        RouteError: OpenCL does not have the device, or the engine cannot run the model.
    """
    from wavefit.native.limits import of_opencl
    from wavefit.native.opencl import tune as tuner
    from wavefit.native.opencl.chooser import Chooser
    from wavefit.native.opencl.devices import find

    found = find(payload.device)
    limits = of_opencl(found, payload.device)
    programs = _compiled(payload.plan, payload.model, Chooser(limits))
    operations = [operation for program in programs for operation, _ in program.operations]
    choices = tuner.tune(operations, found, payload.budget_s, say, limits=limits)
    faster = sum(choice.source == "tuned" for choice in choices.values())
    return Tuned(operations=len(choices), faster=faster)


def versions() -> dict[str, str]:
    """Of pyopencl and of what runs a part on the CPU, and the state of what was tuned on this machine.

    After tuning, a plan is measured again.
    """
    from wavefit.native.opencl.tuned import state

    found = {"pyopencl": _packages.version("pyopencl"), "tuned kernels": state(), **_ort.installed()}
    return {name: version for name, version in found.items() if version}
