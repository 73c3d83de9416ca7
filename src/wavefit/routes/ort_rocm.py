"""ONNX Runtime with its ROCm provider, which AMD ended with ROCm 7.0."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from wavefit.device.probe import probe
from wavefit.routes import _ort, _packages, _rocm
from wavefit.routes.session import Session
from wavefit.schema import Device, Model, Plan, Precision, Request, Unsupported

_NAME = "ort_rocm"
_PROVIDER = "ROCMExecutionProvider"
_PACKAGE = "onnxruntime-rocm"
_LAST_ROCM = (7, 0)  # https://onnxruntime.ai/docs/execution-providers/ROCm-ExecutionProvider.html
_TARGETS = ("gfx908", "gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1101", "gfx1200", "gfx1201")
"""What the library of onnxruntime-rocm 1.22.2.post3 holds kernels for (its code objects, read in November 2026)."""

_FILES: tuple[Precision, ...] = ("fp32", "fp16")  # it has no kernels for Q/DQ convolutions
_INSTEAD = "use --route ort_migraphx (pip uninstall -y onnxruntime-rocm && pip install 'wavefit[migraphx]')"


def plans(devices: Sequence[Device], model: Model, request: Request) -> list[Plan | Unsupported]:
    problem = _rocm.no_gpu(devices) or _setup_problem()
    if problem:
        return [Unsupported(route=_NAME, reason=problem[0], fix=problem[1])]
    return [
        _plan(device, model, request, precision)
        for device in _rocm.amd_gpus(devices)
        for precision in request.precisions
    ]


def _plan(device: Device, model: Model, request: Request, precision: Precision) -> Plan | Unsupported:
    problem = _target_problem(device.gfx)
    problem = problem or _ort.precision_problem("the ROCm provider", model, precision, _FILES)
    if problem:
        return _ort.refused(_NAME, device, problem, precision)
    return _ort.plan(_NAME, device, model, request, precision)


def _setup_problem() -> _ort.Problem | None:
    return _version_problem(_rocm.rocm_version()) or _packages.problem(_PACKAGE, "rocm")


def _version_problem(rocm: str | None) -> _ort.Problem | None:
    if rocm is not None and _packages.numbers(rocm)[:2] > _LAST_ROCM:
        return f"AMD ended ONNX Runtime's ROCm provider with ROCm 7.0, this is ROCm {rocm}", _INSTEAD
    return None


def _target_problem(gfx: str | None) -> _ort.Problem | None:
    if gfx is not None and gfx not in _TARGETS:
        return f"onnxruntime-rocm has no kernels for {gfx} (it has {', '.join(_TARGETS)})", _INSTEAD
    return None


def open(plan: Plan, model: Model, device: Device, workdir: Path) -> Session:
    _ort.refuse(_setup_problem())
    options = {"device_id": str(_rocm.hip_index(device, probe()))}
    return _ort.OrtSession(model, _ort.Provider(_PROVIDER, options), workdir)


def versions() -> dict[str, str]:
    return {**_ort.installed(), **_rocm.versions()}
