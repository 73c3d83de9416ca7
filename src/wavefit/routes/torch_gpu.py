"""PyTorch on a GPU: a ROCm build on AMD. The same file runs a CUDA build on NVIDIA, which is how it is measured.

Options of a plan: ``mode`` (eager, graph, compile), ``layout`` (channels_last) and, where a caller adds it,
``autotune``: torch.compile then searches for minutes.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wavefit.errors import RouteError
from wavefit.model.shapes import bind
from wavefit.routes import _packages, _torch_build, _torch_env
from wavefit.routes._gpus import gpus, no_gpu
from wavefit.routes.session import Session
from wavefit.schema import Device, Model, Plan, Precision, Request, Unsupported

RUNS_EXPORTED_PROGRAM = True

_NAME = "torch_gpu"
_NUMPY_TYPES = (  # of torch.from_numpy and Tensor.numpy
    *("float16", "float32", "float64", "complex64", "complex128", "bool"),
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
)
_MODES = ("eager", "graph", "compile")

# bf16 in the instruction set: CDNA from gfx908, RDNA from gfx11 (LLVM's AMDGPU guide, and AMD's table "Data types and
# precision support"). Elsewhere PyTorch emulates it.
_BF16_MISSING = ("gfx8", "gfx900", "gfx902", "gfx904", "gfx906", "gfx909", "gfx90c", "gfx10")


def plans(devices: Sequence[Device], model: Model, request: Request) -> list[Plan | Unsupported]:
    missing = no_gpu(devices)
    if missing:
        return [Unsupported(route=_NAME, reason=missing[0], fix=missing[1])]
    build = _torch_build.installed()
    return list(itertools.chain.from_iterable(_plans(gpu, build, model, request) for gpu in gpus(devices)))


def _plans(
    gpu: Device, build: _torch_build.Build | None, model: Model, request: Request
) -> list[Plan | Unsupported]:
    refused = _torch_build.refusal(build, gpu) or _model_refusal(model)
    if refused:
        return [_refuse(gpu, refused)]
    found: list[Plan | Unsupported] = []
    compiler = _torch_build.compiler_refusal()
    if compiler:
        found.append(_refuse(gpu, compiler))
    modes = [mode for mode in _MODES if not (compiler and mode == "compile")]
    for precision in _precisions(model, request):
        unable = _precision_refusal(gpu, precision)
        if unable:
            found.append(_refuse(gpu, unable))
            continue
        found += [
            _plan(gpu, model, request, precision, options)
            for options in _options(gpu, model, precision, modes)
        ]
    return found


def _precisions(model: Model, request: Request) -> Sequence[Precision]:
    """Those asked for; of a variant whose program keeps nodes in fp32, the one that its other nodes are for."""
    return (model.precision,) if model.program_fp32 else request.precisions


def _options(
    gpu: Device, model: Model, precision: Precision, modes: Sequence[str]
) -> list[dict[str, str | int | float | bool]]:
    """Half-precision convolutions are offered channels-last as well: matrix units read that layout.

    Where a graph launches the ops, that is; op by op the host sets the pace. On NVIDIA torch.compile chooses that
    layout by itself, on ROCm it does not (torch/_inductor/config.py, layout_optimization).
    """
    found: list[dict[str, str | int | float | bool]] = [{"mode": mode} for mode in modes]
    if precision != "fp32" and _is_convolutional(model):
        left_to_us = [
            mode for mode in modes if mode == "graph" or (mode == "compile" and gpu.vendor == "amd")
        ]
        found += [{"mode": mode, "layout": "channels_last"} for mode in left_to_us]
    return found


def _is_convolutional(model: Model) -> bool:
    has_images = any(spec.shape is not None and len(spec.shape) == 4 for spec in model.inputs)
    return has_images and "Conv" in model.nodes_by_type


def _plan(
    gpu: Device,
    model: Model,
    request: Request,
    precision: Precision,
    options: dict[str, str | int | float | bool],
) -> Plan:
    batch = request.batches[0]
    shapes = bind(model, batch, request.sizes)
    if model.program_fp32:  # how many ops of the program stay in fp32, for people: the names are the model's
        options = {**options, "fp32_ops": len(model.program_fp32)}
    return Plan(
        route=_NAME,
        device=gpu.id,
        precision=precision,
        batch=batch,
        shapes=shapes,
        options=options,
        transfer="pinned",
    )


def _model_refusal(model: Model) -> _torch_build.Refusal | None:
    if model.exported_program is None:
        return _torch_build.Refusal(
            "the model came as an ONNX file, PyTorch runs its own programs only",
            "give the PyTorch module (package.module:factory) or its .pt2 in place of the .onnx",
        )
    for spec in (*model.inputs, *model.outputs):
        if spec.dtype not in _NUMPY_TYPES:
            return _torch_build.Refusal(
                f"PyTorch takes no {spec.dtype} arrays from NumPy, and {spec.name!r} is one",
                "use an ONNX Runtime route",
            )
    return None


def _precision_refusal(gpu: Device, precision: Precision) -> _torch_build.Refusal | None:
    if precision == "int8":
        return _torch_build.Refusal("this route has no int8", "use --precision fp16")
    if precision == "bf16" and (gpu.gfx or "").startswith(_BF16_MISSING):
        return _torch_build.Refusal(f"{gpu.gfx} has no bf16 instructions", "use --precision fp16")
    return None


def _refuse(gpu: Device, refusal: _torch_build.Refusal) -> Unsupported:
    return Unsupported(route=_NAME, device=gpu.id, reason=refusal.reason, fix=refusal.fix)


def open(plan: Plan, model: Model, device: Device, workdir: Path) -> Session:
    build = _torch_build.installed()
    if build is None or model.exported_program is None:
        raise RouteError("PyTorch or the model's exported program has gone since the plan was made")
    channels_last = plan.options.get("layout") == "channels_last"
    _torch_env.prepare(build, workdir, channels_last)
    _torch_env.set_flags()
    from wavefit.routes import _torch, _torch_audit, _torch_device, _torch_program, _torch_shapes

    target = _torch_device.find(device)
    form = _torch_program.Form(plan.precision, channels_last, model.program_fp32)
    program = _torch_program.load(Path(model.exported_program), model, target, form)
    shapes = [plan.shapes[spec.name] for spec in model.inputs]
    _torch_shapes.check_shapes(program, shapes)
    _torch_audit.check_precision(program, _torch_audit.trace(program, shapes))
    mode: Any = plan.options.get("mode", "eager")
    return _torch.TorchSession(model, program, mode, autotune=bool(plan.options.get("autotune")))


def versions() -> dict[str, str]:
    build = _torch_build.installed()
    if build is None:
        return {}
    found = {
        "torch": build.version,
        "torch.hip": build.hip,
        "torch.cuda": build.cuda,
        "triton": _packages.version("triton"),
    }
    return {name: version for name, version in found.items() if version}
