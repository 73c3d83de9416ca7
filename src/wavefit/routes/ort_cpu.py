"""ONNX Runtime on the CPU: always in the table, the one to beat."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from wavefit.model.shapes import bind
from wavefit.routes import _ort
from wavefit.routes.session import Session
from wavefit.schema import Device, Model, Plan, Request, Unsupported

_NAME = "ort_cpu"


def plans(devices: Sequence[Device], model: Model, request: Request) -> list[Plan | Unsupported]:
    """fp32 whatever precisions were asked for: the CPU is always in the table, as what the others are held against."""
    cpu = next((device for device in devices if device.kind == "cpu"), None)
    if cpu is None:
        return [Unsupported(route=_NAME, reason="the CPU was not asked for", fix="add --device cpu")]
    if not _ort.installed():  # every build of ONNX Runtime has the CPU provider
        return [_refuse("ONNX Runtime is not installed", "pip install 'wavefit[cpu]'")]
    batch = request.batches[0]
    plan = Plan(route=_NAME, device=cpu.id, batch=batch, shapes=bind(model, batch, request.sizes))
    # It has hardly any fp16 or bf16 kernels: it inserts casts and runs the graph in fp32.
    others = [precision for precision in request.precisions if precision != "fp32"]
    return [
        plan,
        *(_refuse(f"the CPU provider would run {each} in fp32", "see its fp32 plan") for each in others),
    ]


def _refuse(reason: str, fix: str) -> Unsupported:
    return Unsupported(route=_NAME, device="cpu", reason=reason, fix=fix)


def open(plan: Plan, model: Model, device: Device, workdir: Path) -> Session:
    return _ort.OrtSession(model, _ort.Provider(_ort.CPU), workdir)


def versions() -> dict[str, str]:
    return _ort.installed()
