"""PyTorch through DirectML on Windows, and in WSL. Microsoft's last release pins PyTorch 2.4.1 and Python up to 3.12.

PyTorch 2.4.1 saves exported programs as pickles, which wavefit does not open, so with that release this route says so
and names ort_directml. It runs with a release for PyTorch 2.9 or newer, should there be one.

Source: the package torch-directml 0.2.5.dev240914 (September 2024) and
https://learn.microsoft.com/windows/ai/directml/pytorch-windows.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from wavefit.errors import RouteError
from wavefit.model.shapes import bind
from wavefit.routes import _torch_build
from wavefit.routes._gpus import gpus, no_gpu
from wavefit.routes._packages import numbers, version
from wavefit.routes.session import Session
from wavefit.schema import Device, Model, Plan, Request, Unsupported

RUNS_EXPORTED_PROGRAM = True

_NAME = "torch_directml"
_LAST_PYTHON = (3, 12)
_SAFE_FILES = (2, 9)  # the first PyTorch whose .pt2 files hold no pickles: see wavefit.model.pt2
_WSL_GPU = Path("/dev/dxg")


def plans(devices: Sequence[Device], model: Model, request: Request) -> list[Plan | Unsupported]:
    refused = no_gpu(devices) or _refusal(model)
    if refused:
        return [Unsupported(route=_NAME, reason=refused[0], fix=refused[1])]
    return [
        _plan(gpu, model, request, precision) for gpu in gpus(devices) for precision in request.precisions
    ]


def _refusal(model: Model) -> tuple[str, str] | None:
    if sys.platform != "win32" and not _WSL_GPU.exists():
        return "DirectML is a part of Windows", "on Linux use torch_gpu, or ort_webgpu"
    if sys.version_info[:2] > _LAST_PYTHON:
        running = ".".join(map(str, sys.version_info[:2]))
        return (
            f"torch-directml has no wheels for Python {running}, only up to 3.12",
            "use Python 3.12, or the ort_directml route",
        )
    if version("torch-directml") is None:
        return (
            "torch-directml is not installed",
            "pip install torch-directml, in an environment of its own: it pins PyTorch 2.4.1",
        )
    build = _torch_build.installed()
    if build is None or numbers(build.version) < _SAFE_FILES:
        return (
            f"PyTorch {build.version if build else '2.4.1'}, which torch-directml pins, keeps exported programs as "
            "pickles, and wavefit opens none",
            "use the ort_directml route",
        )
    if model.exported_program is None:
        return (
            "the model came as an ONNX file, PyTorch runs its own programs only",
            "give the PyTorch module (package.module:factory) or its .pt2, or use the ort_directml route",
        )
    return None


def _plan(gpu: Device, model: Model, request: Request, precision: str) -> Plan | Unsupported:
    if precision != "fp32":
        # torch-directml has no autocast.
        return Unsupported(
            route=_NAME,
            device=gpu.id,
            reason=f"torch-directml cannot run a model in {precision} without changing it",
            fix="use --precision fp32, or the ort_directml route",
        )
    batch = request.batches[0]
    shapes = bind(model, batch, request.sizes)
    return Plan(route=_NAME, device=gpu.id, batch=batch, shapes=shapes, options={"mode": "eager"})


def open(plan: Plan, model: Model, device: Device, workdir: Path) -> Session:
    if model.exported_program is None:
        raise RouteError("the model's exported program has gone since the plan was made")
    try:
        import torch_directml
    except (ImportError, OSError) as error:
        raise RouteError(f"torch-directml does not load: {error}") from error
    from wavefit.routes import _torch, _torch_program, _torch_shapes

    target = torch_directml.device(_index(device, torch_directml))
    program = _torch_program.load(Path(model.exported_program), model, target, _torch_program.Form())
    _torch_shapes.check_shapes(program, [plan.shapes[spec.name] for spec in model.inputs])
    return _torch.TorchSession(model, program, "eager")


def _index(device: Device, torch_directml: object) -> int:
    """DirectML counts adapters in its own order and tells their names only."""
    count: int = torch_directml.device_count()  # type: ignore[attr-defined]
    names = [torch_directml.device_name(index).strip() for index in range(count)]  # type: ignore[attr-defined]
    matching = [index for index, name in enumerate(names) if device.name and device.name in name]
    if len(matching) == 1 or count == 1:
        return matching[0] if matching else 0
    raise RouteError(f"DirectML sees {', '.join(names) or 'no adapter'}: none can be told to be {device.id}")


def versions() -> dict[str, str]:
    found = {name: version(name) for name in ("torch", "torch-directml")}
    return {name: known for name, known in found.items() if known}
