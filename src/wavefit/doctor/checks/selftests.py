"""Every runtime that is here multiplies two matrices: the last word on whether a GPU can be used."""

from __future__ import annotations

import os
import sys

import msgspec

from wavefit.device.files import temporary
from wavefit.doctor import kernel, selftest
from wavefit.doctor.installed import installed, packages
from wavefit.doctor.machine import Machine
from wavefit.doctor.selftest import LARGEST_ERROR, Order, Outcome, Tested
from wavefit.schema import Failure, Finding, Fix

_NAME = "selftests"
_WORDS = {
    "hip": "HIP",
    "numpy": "NumPy",
    "onnxruntime": "ONNX Runtime",
    "opencl": "OpenCL",
    "torch": "PyTorch",
}
_PROVIDERS = {
    "onnxruntime-migraphx": "MIGraphXExecutionProvider",
    "onnxruntime-rocm": "ROCMExecutionProvider",
    "onnxruntime-webgpu": "WebGpuExecutionProvider",
    "onnxruntime-ep-webgpu": "WebGpuExecutionProvider",
    "onnxruntime-directml": "DmlExecutionProvider",
    "onnxruntime-gpu": "CUDAExecutionProvider",
}
_CPU = "CPUExecutionProvider"


def check(machine: Machine) -> list[Finding]:
    """Nothing is run for a recorded machine."""
    if not machine.live:
        return []
    if not temporary():
        return [_no_room()]
    return _run(orders(machine)) or _run(_on_cpu(machine))


def _run(chosen: list[Order]) -> list[Finding]:
    tested = [(order, selftest.run(order)) for order in chosen]
    return [
        judged(order, end, _copies(order, end))
        for order, end in tested
        if not (isinstance(end, Tested) and end.absent)
    ]


def _copies(order: Order, end: Tested | Failure) -> Tested | Failure | None:
    """HIP's copies alone, where its compiler ended the first child before anything was copied back."""
    if not isinstance(end, Failure) or not end.stage.startswith(selftest.COMPILE):
        return None
    return selftest.run(msgspec.structs.replace(order, compute=False))


def _no_room() -> Finding:
    return Finding(
        check=_NAME,
        layer="environment",
        status="note",
        title="the self-tests were not run: no folder for temporary files can be written",
        evidence=("TMPDIR, /tmp and /var/tmp were tried",),
        cause="The disk is full or mounted read-only.",
        fixes=(Fix(command="export TMPDIR=/PATH/WITH/ROOM"),),
        verify=_again(),
    )


def orders(machine: Machine) -> list[Order]:
    """What there is to try: GPUs where there are any, else what the CPU can do."""
    vendors = {device.vendor for device in machine.devices if device.kind == "gpu"}
    if machine.exists("/dev/dxg"):
        vendors.add("amd")  # WSL names no GPU: HIP and PyTorch may see one
    return _on_gpus(machine, vendors) if vendors else _on_cpu(machine)


def _on_gpus(machine: Machine, vendors: set[str | None]) -> list[Order]:
    build, found = installed(machine).build, packages(machine)
    orders = [Order(runtime="hip")] if _may_run_hip(machine) else []
    if build is not None and (("amd" in vendors and build.hip) or ("nvidia" in vendors and build.cuda)):
        orders.append(Order(runtime="torch"))
    if "pyopencl" in found:
        orders.append(Order(runtime="opencl"))
    providers = [provider for package, provider in _PROVIDERS.items() if package in found]
    for provider in dict.fromkeys(providers):
        if provider != "CUDAExecutionProvider" or "nvidia" in vendors:
            orders.append(Order(runtime="onnxruntime", provider=provider))
    return orders or _on_cpu(machine)


def _may_run_hip(machine: Machine) -> bool:
    """Not where the compute driver leaves every GPU out: kernel_version tells that."""
    if machine.exists("/dev/dxg") or sys.platform == "win32":
        return True
    return any(kernel.computes(machine, gpu) is not False for gpu in machine.amd_gpus)


def _on_cpu(machine: Machine) -> list[Order]:
    found = packages(machine)
    orders = [Order(runtime="numpy", gpu=False)]
    if any(name.startswith("onnxruntime") for name in found):
        orders.append(Order(runtime="onnxruntime", provider=_CPU, gpu=False))
    if "pyopencl" in found:
        orders.append(Order(runtime="opencl", gpu=False))
    return orders


def judged(order: Order, tested: Tested | Failure, copies: Tested | Failure | None = None) -> Finding:
    """What a self-test's end says of a runtime.

    Args:
        copies: how copies alone went, where HIP's compiler failed.
    """
    what = _WORDS[order.runtime] + (f", {order.provider}" if order.provider else "")
    if isinstance(tested, Failure):
        return _failed(order, what, tested, copies)
    if not tested.outcomes:
        return _sees_none(order, what)
    wrong = [outcome for outcome in tested.outcomes if not _is_right(outcome)]
    if wrong:
        return _wrong(what, wrong)
    evidence = tuple(_line(outcome) for outcome in tested.outcomes)
    computed = all(outcome.computed for outcome in tested.outcomes)
    return Finding(
        check=_NAME,
        layer="framework",
        status="ok",
        title=f"{what}: a matmul came back right"
        if computed
        else f"{what}: copies came back right; nothing was computed, as hiprtc is missing",
        evidence=evidence,
    )


def _is_right(outcome: Outcome) -> bool:
    return outcome.same and outcome.error <= LARGEST_ERROR


def _line(outcome: Outcome) -> str:
    copies = "" if outcome.same else ", and the second copy back differs from the first"
    if not outcome.computed:
        came = "as it was sent" if outcome.error == 0 else "changed"
        return f"{outcome.device}: a matrix came back {came}{copies}"
    return f"{outcome.device}: error {outcome.error:.1e} against float64{copies}"


def _wrong(what: str, wrong: list[Outcome]) -> Finding:
    kernels = all(outcome.same and outcome.computed for outcome in wrong)
    return Finding(
        check=_NAME,
        layer="framework",
        status="problem",
        title=f"{what}: a {'matmul' if wrong[0].computed else 'copy'} came back wrong",
        evidence=tuple(map(_line, wrong)),
        cause="The kernels that ran are not right for this GPU."
        if kernels
        else "Copies from the GPU are not reliable.",
        fixes=() if kernels else (_without_sdma(),),
        verify=_again(),
    )


def _sees_none(order: Order, what: str) -> Finding:
    kind = "GPU" if order.gpu else "CPU device"
    return Finding(
        check=_NAME,
        layer="runtime",
        status="note" if order.runtime == "opencl" else "problem",
        title=f"{what} sees no {kind}",
        evidence=(f"{what} was asked for its devices and named none",),
        cause="No OpenCL driver for it is registered in /etc/OpenCL/vendors."
        if order.runtime == "opencl"
        else "See the findings on nodes and drivers, if there are any.",
        verify=_again(),
    )


def _failed(order: Order, what: str, failure: Failure, copies: Tested | Failure | None) -> Finding:
    second = failure.kind == "timeout" and failure.stage == selftest.SECOND_COPY
    amd_copy = second and order.gpu and "HSA_ENABLE_SDMA" not in os.environ
    cause = failure.fix
    if second:
        cause = "The first copy from the GPU worked and the second hangs: the copy engines (SDMA) are the usual cause."
    elif failure.kind == "timeout":
        cause = "The runtime hangs there; the kernel's log (sudo dmesg) says whether the GPU was reset."
    elif failure.stage.startswith(selftest.COMPILE):
        ended = "ended the whole process" if failure.kind == "crash" else "refused"
        cause = (
            f"HIP's run-time compiler (hiprtc) {ended}: this ROCm does not know the GPU's target, or its compiler "
            "library (libamd_comgr) is of another version. Programs that bring compiled kernels are not touched by it."
        )
    return Finding(
        check=_NAME,
        layer="framework",
        status="problem",
        title=f"{what}: the self-test ended at {failure.stage!r}: {failure.kind}",
        evidence=(failure.reason, *_copied(copies)),
        cause=cause,
        fixes=(_without_sdma(),) if amd_copy else (),
        verify=_again(),
    )


def _copied(copies: Tested | Failure | None) -> tuple[str, ...]:
    if isinstance(copies, Failure):
        return (f"copies alone ended at {copies.stage!r}: {copies.reason}",)
    return tuple(map(_line, copies.outcomes)) if copies is not None else ()


def _without_sdma() -> Fix:
    return Fix(command="export HSA_ENABLE_SDMA=0", why="copies with kernels in place of the copy engines")


def _again() -> str:
    return "wavefit doctor --only selftests"
