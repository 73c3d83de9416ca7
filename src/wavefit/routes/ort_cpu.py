"""ONNX Runtime on the CPU: always in the table, the one to beat.

It runs int8 (Q/DQ) files in int8, and has hardly any fp16 kernels: a file in half is computed in fp32, with casts put
in. Such a plan is labelled with ``compute=fp32``; its answers say nothing of half arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from wavefit.routes import _ort
from wavefit.routes.session import Session
from wavefit.schema import Device, Model, Plan, Precision, Request, Unsupported

_NAME = "ort_cpu"


def plans(devices: Sequence[Device], model: Model, request: Request) -> list[Plan | Unsupported]:
    """The file as it is, whatever precisions were asked for: the CPU is what the others are held against."""
    cpu = next((device for device in devices if device.kind == "cpu"), None)
    if cpu is None:
        return [Unsupported(route=_NAME, reason="the CPU was not asked for", fix="add --device cpu")]
    if not _ort.installed():  # every build of ONNX Runtime has the CPU provider
        return [_refuse("ONNX Runtime is not installed", "pip install 'wavefit[cpu]'")]
    if model.precision == "bf16":
        problem = (
            "ONNX Runtime's CPU provider has no kernels for bf16",
            "give a file in fp32 or fp16",
        )
        return [_ort.refused(_NAME, cpu, problem, "bf16")]
    plan = _ort.plan(_NAME, cpu, model, request, model.precision)
    if model.precision == "fp16":
        plan = replace(plan, options={"compute": "fp32"})
    others = [precision for precision in request.precisions if precision != model.precision]
    return [plan, *(_ort.refused(_NAME, cpu, _no_switch(model, each), each) for each in others)]


def _no_switch(model: Model, precision: Precision) -> _ort.Problem:
    reason = f"the CPU provider has no switch to {precision}: it runs the file as it is, in {model.precision}"
    return reason, f"give a file in {precision}"


def _refuse(reason: str, fix: str) -> Unsupported:
    return Unsupported(route=_NAME, device="cpu", reason=reason, fix=fix)


def open(plan: Plan, model: Model, device: Device, workdir: Path) -> Session:
    return _ort.OrtSession(model, _ort.Provider(_ort.CPU), workdir)


def versions() -> dict[str, str]:
    return _ort.installed()
