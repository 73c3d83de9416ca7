"""wavefit's own engine in Triton: GPUs with matrix units, through a ROCm build of PyTorch.

The same file runs a CUDA build on NVIDIA, which is how it is measured. Options of a plan: ``storage=fp16`` or ``bf16``
keeps an fp32 file's tensors in 16 bits between kernels; matrix units multiply those and add up in float32.

A bundle carries the code objects of its programs below ``kernels/``, by target and Triton's version, and what chose
them: where it is opened with the same, nothing is compiled.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from wavefit.device.user_cache import user_cache
from wavefit.errors import InputError, RouteError
from wavefit.model.shapes import bind
from wavefit.routes import _packages, _torch_build
from wavefit.routes._gpus import no_gpu
from wavefit.routes._native_plans import frozen, unsupported
from wavefit.routes._tuning import Tuned, Tuning
from wavefit.routes.session import Session
from wavefit.schema import Device, Model, Plan, Precision, Prediction, Request, Unsupported, fingerprint

if TYPE_CHECKING:
    from wavefit.child.main import Reporter
    from wavefit.native.operation import Limits
    from wavefit.native.program import Program
    from wavefit.native.triton.chooser import Chooser
    from wavefit.native.triton.executor import Executor

TUNES = True
_CDNA = ("gfx90a", "gfx942", "gfx950")
_RDNA = ("gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1200", "gfx1201", "gfx1250")
TARGETS = (*_CDNA, *_RDNA)
"""AMD targets with matrix units that Triton compiles for: tried with 3.9, which refuses gfx90c and gfx1030."""

_NAME = "native_hip"
_PROVIDER = "native HIP"
_INSTALL = "pip install 'wavefit[hip]'"
_STORAGE = {"fp16": "float16", "bf16": "bfloat16"}
_Problem = tuple[str, str]
Say = Callable[[str], None]


def plans(devices: Sequence[Device], model: Model, request: Request) -> list[Plan | Unsupported]:
    asked = _NAME in request.routes
    wanted = [device for device in devices if device.kind == "gpu" or asked]
    missing = no_gpu(devices) if not wanted else _missing()
    if missing:
        return [_refuse(None, *missing)]
    return [answer for device in wanted for answer in _plans(device, model, request)]


def refusal(device: Device) -> _Problem | None:
    """Why the engine does not run on a device, and the fix."""
    return _missing() or _device_problem(device)


def _missing() -> _Problem | None:
    if importlib.util.find_spec("torch") is None or importlib.util.find_spec("triton") is None:
        return "PyTorch or Triton is not installed", _INSTALL
    return None if _packages.version("onnx-ir") else ("onnx-ir is not installed", _INSTALL)


def _plans(device: Device, model: Model, request: Request) -> list[Plan | Unsupported]:
    problem = _device_problem(device) or _model_problem(model, request)
    if problem:
        return [_refuse(device, *problem)]
    return [_plan(device, model, request, precision) for precision in request.precisions]


def _device_problem(device: Device) -> _Problem | None:
    if device.kind == "cpu":
        return None  # Triton's interpreter, asked for by name
    build = _torch_build.installed()
    refused = _torch_build.refusal(build, device) or _torch_build.compiler_refusal()
    if device.vendor == "amd" and (device.gfx is None or device.gfx not in TARGETS):
        what = device.gfx or "a GPU of unknown target"
        return (
            f"Triton has no code for {what}",
            "use --route native_opencl, which runs on any GPU with OpenCL",
        )
    return None if refused is None else (refused.reason, refused.fix)


def _model_problem(model: Model, request: Request) -> _Problem | None:
    try:
        stuck = unsupported(model.path, frozen(bind(model, request.batches[0], request.sizes)))
    except InputError as error:
        return error.what, error.fix or "use another route"
    if not stuck:
        return None
    more = f", and {len(stuck) - 1} more" if len(stuck) > 1 else ""
    return f"{stuck[0].op} node {stuck[0].node!r}{more}: {stuck[0].reason}", stuck[0].fix


def _plan(device: Device, model: Model, request: Request, precision: Precision) -> Plan | Unsupported:
    options: dict[str, str | int | float | bool] = {}
    if precision != model.precision:
        if model.precision != "fp32" or precision not in _STORAGE:
            reason = f"the engine does not make {precision} of a file in {model.precision}"
            return _refuse(device, reason, f"give a file in {precision}", precision)
        options["storage"] = precision
    if (
        device.kind == "cpu" and precision == "bf16"
    ):  # 3.9: runtime/interpreter.py, create_dot multiplies the bits
        reason = "Triton's interpreter has no products of bf16"
        return _refuse(device, reason, "use --precision fp16 there", precision)
    return Plan(
        route=_NAME,
        device=device.id,
        precision=precision,
        batch=request.batches[0],
        shapes=bind(model, request.batches[0], request.sizes),
        options=options,
        transfer="pinned",
    )


def _refuse(device: Device | None, reason: str, fix: str, precision: Precision | None = None) -> Unsupported:
    return Unsupported(
        route=_NAME, device=device.id if device else None, reason=reason, fix=fix, precision=precision
    )


def open(plan: Plan, model: Model, device: Device, workdir: Path) -> Session:
    return open_told(plan, model, device, workdir, _silent)


def open_told(
    plan: Plan, model: Model, device: Device, workdir: Path, say: Say, bundle: Path | None = None
) -> Session:
    """Opens a plan and says how far compiling is.

    Args:
        bundle: whose code objects are taken. Where it has none for this GPU and Triton, they are compiled once, and
            the session's notes say so.

    Raises:
        RouteError: PyTorch does not have the device, a kernel does not compile, or memory is too small.
    """
    from wavefit.routes._native_session import NativeSession

    notes: tuple[str, ...] = ()
    made = None if bundle is None else _carried(plan, model, device, bundle)
    if made is None:
        if bundle is not None and device.kind == "gpu":
            name = _folder_name(device)
            notes = (f"the bundle carries no kernels for {name}: they are compiled here, once",)
            say(notes[0])
        made, _ = executor(plan, model, device, say)
    session = NativeSession(model, plan, made, _PROVIDER)
    session.compile_s, session.notes = made.compiled.seconds, notes
    return session


def _carried(plan: Plan, model: Model, device: Device, bundle: Path) -> Executor | None:
    """A plan's program with the code objects of its bundle; None where that does not carry them all."""
    found = _find(device)
    from wavefit.native.triton.executor import Executor

    program = _carried_program(plan, model, device, found, bundle)
    return None if program is None else Executor(program, found, bundle / _inside(plan, model, device))


def _carried_program(plan: Plan, model: Model, device: Device, found: Any, bundle: Path) -> Program | None:
    """The program that a bundle has all kernels of."""
    from wavefit.native.triton import kept, recipe
    from wavefit.native.triton.runner import target_of

    folder, target = bundle / _inside(plan, model, device), target_of(found)
    chooser = recipe.chooser(folder)
    if chooser is None or target is None:
        return None
    program = _program(plan, model, chooser)
    kernels = [step.kernel for step in program.steps if step.kernel.language == "triton"]
    return program if all(kept.is_kept(each, target, folder) for each in kernels) else None


def executor(plan: Plan, model: Model, device: Device, say: Say) -> tuple[Executor, Limits]:
    """A plan's program compiled on this machine, and what it was chosen by.

    Raises:
        RouteError: as :func:`open_told`.
    """
    found = _find(device)
    from wavefit.native.triton import recipe, tune
    from wavefit.native.triton.executor import Executor

    chooser = tune.chooser(found, None if device.kind == "cpu" else device)
    program = _program(plan, model, chooser)
    folder = compiled_folder(plan, model, device)
    recipe.save(chooser, folder)
    return Executor(program, found, folder, say), chooser.limits


def carried(plan: Plan, model: Model, device: Device) -> dict[str, Path]:
    """The files that a bundle takes along, by their names in it: code objects, and what chose them."""
    if device.kind == "cpu":
        return {}
    folder = compiled_folder(plan, model, device)
    found = [folder / "recipe.json", *sorted((folder / "kept").glob("*/kernel.*"))]
    inside = _inside(plan, model, device)
    return {str(inside / path.relative_to(folder)): path for path in found if path.is_file()}


def compiled_folder(plan: Plan, model: Model, device: Device) -> Path:
    """Where the code objects of a plan's program lie on this machine."""
    return user_cache() / "triton" / _folder_name(device) / _key(plan, model)


def _inside(plan: Plan, model: Model, device: Device) -> Path:
    """Where they lie in a bundle."""
    return Path("kernels") / _folder_name(device) / _key(plan, model)


def _key(plan: Plan, model: Model) -> str:
    return fingerprint(model.sha256, plan.precision, plan.shapes, plan.options)


def _folder_name(device: Device) -> str:
    from wavefit.native.triton.versions import triton_version

    return f"{device.gfx or device.name or device.id}-triton{triton_version()}".replace(" ", "-").lower()


def _silent(_: str) -> None:
    return None


def _find(device: Device) -> Any:
    """PyTorch's device; for the CPU this process becomes one in which Triton interprets."""
    if device.kind == "cpu":
        from wavefit.native.triton.interpreter import activate

        activate()
        import torch

        return torch.device("cpu")
    from wavefit.routes import _torch_device

    return _torch_device.find(device)


def _program(plan: Plan, model: Model, chooser: Chooser) -> Program:
    from wavefit.native import engine

    program = engine.prepare(Path(model.path), plan.shapes, chooser, _storage(plan))
    if isinstance(program, tuple):
        said = "; ".join(refusal.reason for refusal in program[:3])
        reason = f"the engine cannot run {len(program)} of the model's nodes: {said}"
        raise RouteError(reason, "use another route")
    return program


def _storage(plan: Plan) -> str | None:
    return _STORAGE.get(str(plan.options.get("storage")))


def predict(plan: Plan, model: Model, device: Device, general: Prediction) -> Prediction:
    """The engine's own account of a plan on a GPU: what it allocates, and what its kernels are expected to take."""
    from wavefit.native.limits import for_matrix, of_device
    from wavefit.native.triton.chooser import Chooser

    if device.kind == "cpu" or _packages.version("onnx-ir") is None:
        return general
    chooser = Chooser(for_matrix(of_device(device), device))
    try:
        program = _program(plan, model, chooser)
    except (InputError, RouteError):  # it is told where the plan is asked for, or opened
        return general
    costs = [chooser.cost(operation) or 0.0 for operation, _ in program.operations]
    known = of_device(device).flops is not None and general.transfer_s is not None
    return replace(
        general,
        peak_bytes=program.device_bytes + program.port_bytes,
        total_s=sum(costs) + (general.transfer_s or 0.0) if known else general.total_s,
    )


def tune(payload: Tuning, say: Reporter) -> Tuned:
    """Tunes the operations of a plan; what was tuned before within as large a budget is left as it is.

    Raises:
        RouteError: PyTorch does not have the device, or the engine cannot run the model.
    """
    found = _find(payload.device)
    from wavefit.native.limits import of_torch
    from wavefit.native.triton import tune as tuner
    from wavefit.native.triton.chooser import Chooser

    limits = of_torch(found, None if payload.device.kind == "cpu" else payload.device)
    path, plan = Path(payload.model.path), payload.plan
    operations = tuner.of_model(path, plan.shapes, Chooser(limits), _storage(plan))
    cache = user_cache() / "triton" / "tuning"
    choices = tuner.tune(operations, found, cache, payload.budget_s, say, limits=limits)
    faster = sum(choice.source == "tuned" for choice in choices.values())
    return Tuned(operations=len(choices), faster=faster)


def versions() -> dict[str, str]:
    """Of PyTorch and Triton, and the state of what was tuned here: after tuning, a plan is measured again."""
    from wavefit.native import tuned
    from wavefit.native.triton.kernels import TEMPLATES
    from wavefit.native.triton.versions import triton_version

    build = _torch_build.installed()
    found = {
        "torch": None if build is None else build.version,
        "torch.hip": None if build is None else build.hip,
        "torch.cuda": None if build is None else build.cuda,
        "triton": triton_version(),
        "tuned kernels": tuned.state(TEMPLATES),
    }
    return {name: version for name, version in found.items() if version}
