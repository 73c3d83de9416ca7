"""ONNX Runtime with MIGraphX, AMD's graph compiler: Linux and ROCm."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from wavefit.device.probe import probe
from wavefit.routes import _ort, _packages, _rocm
from wavefit.routes._cache import compile_cache
from wavefit.routes.session import Session
from wavefit.schema import Device, Model, Plan, Precision, Request, Unsupported, fingerprint

_NAME = "ort_migraphx"
_PROVIDER = "MIGraphXExecutionProvider"
_PACKAGE = "onnxruntime-migraphx"
_LIBRARY = "onnxruntime_providers_migraphx"
_CACHE_OPTION = "migraphx_model_cache_dir"
_COMPILER_VARIABLES = (
    "MIGRAPHX_",
    "HSA_OVERRIDE_GFX_VERSION",
)  # they change what is compiled, and for which target
_SWITCHES: dict[Precision, str] = {"fp16": "migraphx_fp16_enable", "bf16": "migraphx_bf16_enable"}

_FIRST_ROCM: dict[str, tuple[int, ...] | None] = {
    # AMD's own lists, releases 2.16 to 2.19 of MIGraphX (ROCm 7.14, 10.0, 10.1, 10.2), "Prerequisites" of
    # https://rocm.docs.amd.com/projects/AMDMIGraphX/en/docs-2.19.0/install/install-migraphx.html
    # None: no source says that an older release fails on it, so it is tried.
    **dict.fromkeys(("gfx90a", "gfx942", "gfx950"), None),
    **dict.fromkeys(("gfx1100", "gfx1101", "gfx1102", "gfx1200", "gfx1201"), None),
    **dict.fromkeys(("gfx1150", "gfx1151", "gfx1152", "gfx1153"), None),
    # Before that, rocBLAS had no kernels for it and ended the process: ROCm/legacy-rocm-build issue 6049.
    "gfx1103": (10, 2),
    # In no list of those, and rocBLAS had kernels for them in ROCm 6: ROCm/AMDMIGraphX pull request 3517.
    **dict.fromkeys(("gfx900", "gfx906", "gfx908", "gfx1010", "gfx1012", "gfx1030"), None),
}
"""The first ROCm whose MIGraphX runs a target. A target that is missing here has no rocBLAS kernels either."""

_NO_BF16 = ("gfx900", "gfx906", "gfx1010", "gfx1012", "gfx1030")
"""Vega, RDNA 1 and RDNA 2: AMD's instruction set manuals have bf16 arithmetic from CDNA 1 and RDNA 3 on."""


def plans(devices: Sequence[Device], model: Model, request: Request) -> list[Plan | Unsupported]:
    problem = _rocm.no_gpu(devices) or _setup_problem() or _model_problem(model)
    if problem:
        return [Unsupported(route=_NAME, reason=problem[0], fix=problem[1])]
    return [plan for device in _rocm.amd_gpus(devices) for plan in _plans_on(device, model, request)]


def _setup_problem() -> _ort.Problem | None:
    return _packages.problem(_PACKAGE, "migraphx") or _override_problem(os.environ)


def _plans_on(device: Device, model: Model, request: Request) -> list[Plan | Unsupported]:
    problem = _target_problem(device.gfx, _rocm.rocm_version())
    if problem:
        return [_refuse(device, *problem)]
    return [_plan(device, model, request, precision) for precision in request.precisions]


def _plan(device: Device, model: Model, request: Request, precision: Precision) -> Plan | Unsupported:
    problem = _precision_problem(device, model, precision)
    if problem:
        return _ort.refused(_NAME, device, problem, precision)
    return _ort.plan(_NAME, device, model, request, precision)


def _target_problem(gfx: str | None, rocm: str | None) -> _ort.Problem | None:
    """Why MIGraphX cannot run on a target, as far as a source says so. An unknown target or ROCm is tried."""
    if gfx is None:
        return None
    if gfx not in _FIRST_ROCM:
        reason = f"neither AMD's lists of GPUs for MIGraphX nor rocBLAS, which it needs, have {gfx}"
        return reason, "use --route ort_webgpu or --route torch_gpu"
    since = _FIRST_ROCM[gfx]
    if since and rocm and _packages.numbers(rocm) < since:
        needs = ".".join(map(str, since))
        return (
            f"MIGraphX runs on {gfx} from ROCm {needs} on, this is ROCm {rocm}",
            f"install ROCm {needs} or newer",
        )
    return None


def _precision_problem(device: Device, model: Model, precision: Precision) -> _ort.Problem | None:
    """Why a precision cannot be had, by the file's own types or by a switch of the provider."""
    if precision == "bf16" and device.gfx in _NO_BF16:
        return f"{device.gfx} has no bf16 arithmetic", "use --precision fp16"
    if precision == model.precision:
        return None
    if precision not in _SWITCHES:
        return (
            "MIGraphX's switch to int8 needs a calibration table, and wavefit makes Q/DQ nodes instead",
            "give --data with --precision int8",
        )
    if not _packages.provider_knows(_LIBRARY, _SWITCHES[precision]):
        found = _packages.version(_PACKAGE)
        return f"{_PACKAGE} {found} has no option {_SWITCHES[precision]}", f"pip install --upgrade {_PACKAGE}"
    return None


def _override_problem(environment: Mapping[str, str]) -> _ort.Problem | None:
    """The provider lets these variables win over a session's own options, and says so only in its log."""
    for name in environment:
        if name.startswith("ORT_MIGRAPHX_"):
            return f"the variable {name} would override this plan's own options", f"unset {name}"
    return None


def _model_problem(model: Model) -> _ort.Problem | None:
    for spec in (*model.inputs, *model.outputs):
        if spec.dtype in ("string", "complex64", "complex128"):
            return (
                f"MIGraphX has no {spec.dtype} tensors, and {spec.name!r} is one",
                "cut that part off the model",
            )
    return None


def _refuse(device: Device, reason: str, fix: str) -> Unsupported:
    return Unsupported(route=_NAME, device=device.id, reason=reason, fix=fix)


def open(plan: Plan, model: Model, device: Device, workdir: Path) -> Session:
    """MIGraphX compiles for the plan's shapes alone: the session takes no others."""
    _ort.refuse(_setup_problem())
    options = {"device_id": str(_rocm.hip_index(device, probe()))}
    if plan.precision != model.precision:
        options[_SWITCHES[plan.precision]] = "1"
    if _packages.provider_knows(_LIBRARY, _CACHE_OPTION):
        options[_CACHE_OPTION] = str(_writable_cache(plan, model, device, workdir))
    return _ort.OrtSession(model, _ort.Provider(_PROVIDER, options, shapes=plan.shapes), workdir)


def _writable_cache(plan: Plan, model: Model, device: Device, workdir: Path) -> Path:
    """The user's cache; where that cannot be written, a folder that lasts as long as the session's own files."""
    try:
        return _cache_folder(plan, model, device)
    except OSError:
        return compile_cache("migraphx", "session", base=workdir)


def _cache_folder(plan: Plan, model: Model, device: Device) -> Path:
    """One folder for each compiled program: the provider's own file names leave out what a result depends on.

    The options before ``migraphx_model_cache_dir`` (save and load of one named file) are left alone: releases
    differ in their names (microsoft/onnxruntime issue 25379), and one file cannot hold a partitioned model.
    """
    settings = {name: value for name, value in os.environ.items() if name.startswith(_COMPILER_VARIABLES)}
    key = fingerprint(model.sha256, plan.shapes, plan.precision, device.gfx, versions(), settings)
    return compile_cache("migraphx", key)


def versions() -> dict[str, str]:
    return {**_ort.installed(), **_rocm.versions()}
