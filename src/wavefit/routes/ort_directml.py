"""ONNX Runtime with DirectML: any vendor's GPU on Windows, through Direct3D 12."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wavefit.routes import _gpus, _ort, _packages
from wavefit.routes.session import Session
from wavefit.schema import Device, Model, Plan, Precision, Request, Unsupported

_NAME = "ort_directml"
_PROVIDER = "DmlExecutionProvider"
_PACKAGE = "onnxruntime-directml"
_FILES: tuple[Precision, ...] = ("fp32", "fp16", "int8")


def plans(devices: Sequence[Device], model: Model, request: Request) -> list[Plan | Unsupported]:
    problem = _setup_problem() or _gpus.no_gpu(devices)
    if problem:
        return [Unsupported(route=_NAME, reason=problem[0], fix=problem[1])]
    return [
        _plan(device, devices, model, request, precision)
        for device in _gpus.gpus(devices)
        for precision in request.precisions
    ]


def _setup_problem() -> _ort.Problem | None:
    if platform.system() != "Windows":
        return (
            f"DirectML is a part of Windows, this is {platform.system()}",
            "use it on Windows",
        )
    return _packages.problem(_PACKAGE, "directml")


def _plan(
    device: Device, devices: Sequence[Device], model: Model, request: Request, precision: Precision
) -> Plan | Unsupported:
    problem = None if _index(device) is not None else _gpus.hidden(device, devices, "DirectML")
    problem = problem or _ort.precision_problem("DirectML", model, precision, _FILES)
    if problem:
        return _ort.refused(_NAME, device, problem, precision)
    return _ort.plan(_NAME, device, model, request, precision)


def _index(device: Device) -> int | None:
    """The adapter's number in DXGI's list, where it is known."""
    return next((runtime.index for runtime in device.runtimes if runtime.name == "dxgi"), None)


def open(plan: Plan, model: Model, device: Device, workdir: Path) -> Session:
    _ort.refuse(_setup_problem())
    provider = _ort.Provider(_PROVIDER, _options(device), configure=_configure, shapes=plan.shapes)
    return _ort.OrtSession(model, provider, workdir)


def _options(device: Device) -> dict[str, str]:
    """Names as in ONNX Runtime's ``dml_provider_factory.h``."""
    index = _index(device)
    if index is not None:
        return {"device_id": str(index)}
    preference = "minimum_power" if device.integrated else "high_performance"
    return {"performance_preference": preference, "device_filter": "gpu"}


def _configure(options: Any) -> None:
    """DirectML runs neither parallel execution nor memory patterns.

    https://onnxruntime.ai/docs/execution-providers/DirectML-ExecutionProvider.html
    """
    import onnxruntime as ort

    options.enable_mem_pattern = False
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL


def versions() -> dict[str, str]:
    return (
        {**_ort.installed(), "windows": platform.version()}
        if platform.system() == "Windows"
        else _ort.installed()
    )
