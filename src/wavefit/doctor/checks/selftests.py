"""Every runtime that is here multiplies two matrices: the last word on whether a GPU can be used."""

from __future__ import annotations

import os

from wavefit.device.files import temporary
from wavefit.doctor import selftest
from wavefit.doctor.installed import installed, packages
from wavefit.doctor.machine import Machine
from wavefit.doctor.selftest import LARGEST_ERROR, Order, Outcome, Tested
from wavefit.schema import Failure, Finding, Fix

_NAME = "selftests"
_WORDS = {"numpy": "NumPy", "onnxruntime": "ONNX Runtime", "opencl": "OpenCL", "torch": "PyTorch"}
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
    return [judged(order, selftest.run(order)) for order in orders(machine)]


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
    return _on_gpus(machine, vendors) if vendors else _on_cpu(machine)


def _on_gpus(machine: Machine, vendors: set[str | None]) -> list[Order]:
    build, found = installed(machine).build, packages(machine)
    orders = []
    if build is not None and (("amd" in vendors and build.hip) or ("nvidia" in vendors and build.cuda)):
        orders.append(Order(runtime="torch"))
    if "pyopencl" in found:
        orders.append(Order(runtime="opencl"))
    providers = [provider for package, provider in _PROVIDERS.items() if package in found]
    for provider in dict.fromkeys(providers):
        if provider != "CUDAExecutionProvider" or "nvidia" in vendors:
            orders.append(Order(runtime="onnxruntime", provider=provider))
    return orders or _on_cpu(machine)


def _on_cpu(machine: Machine) -> list[Order]:
    found = packages(machine)
    orders = [Order(runtime="numpy", gpu=False)]
    if any(name.startswith("onnxruntime") for name in found):
        orders.append(Order(runtime="onnxruntime", provider=_CPU, gpu=False))
    if "pyopencl" in found:
        orders.append(Order(runtime="opencl", gpu=False))
    return orders


def judged(order: Order, tested: Tested | Failure) -> Finding:
    """What a self-test's end says of a runtime."""
    what = _WORDS[order.runtime] + (f", {order.provider}" if order.provider else "")
    if isinstance(tested, Failure):
        return _failed(order, what, tested)
    if not tested.outcomes:
        return _sees_none(order, what)
    wrong = [outcome for outcome in tested.outcomes if not _is_right(outcome)]
    if wrong:
        return _wrong(what, wrong)
    evidence = tuple(_line(outcome) for outcome in tested.outcomes)
    return Finding(
        check=_NAME,
        layer="framework",
        status="ok",
        title=f"{what}: a matmul came back right",
        evidence=evidence,
    )


def _is_right(outcome: Outcome) -> bool:
    return outcome.same and outcome.error <= LARGEST_ERROR


def _line(outcome: Outcome) -> str:
    copies = "" if outcome.same else ", and the second copy back differs from the first"
    return f"{outcome.device}: error {outcome.error:.1e} against float64{copies}"


def _wrong(what: str, wrong: list[Outcome]) -> Finding:
    copies = all(outcome.same for outcome in wrong)
    return Finding(
        check=_NAME,
        layer="framework",
        status="problem",
        title=f"{what}: a matmul came back wrong",
        evidence=tuple(map(_line, wrong)),
        cause="The kernels that ran are not right for this GPU."
        if copies
        else "Copies from the GPU are not reliable.",
        fixes=() if copies else (_without_sdma(),),
        verify=_again(),
    )


def _sees_none(order: Order, what: str) -> Finding:
    kind = "GPU" if order.gpu else "CPU device"
    return Finding(
        check=_NAME,
        layer="runtime",
        status="problem" if order.runtime == "torch" else "note",
        title=f"{what} sees no {kind}",
        evidence=(f"{what} was asked for its devices and named none",),
        cause="See the findings on nodes and drivers, if there are any."
        if order.runtime == "torch"
        else "No OpenCL driver for it is registered in /etc/OpenCL/vendors.",
        verify=_again(),
    )


def _failed(order: Order, what: str, failure: Failure) -> Finding:
    second = failure.kind == "timeout" and failure.stage == selftest.SECOND_COPY
    amd_copy = second and order.gpu and "HSA_ENABLE_SDMA" not in os.environ
    cause = failure.fix
    if second:
        cause = "The first copy from the GPU worked and the second hangs: the copy engines (SDMA) are the usual cause."
    elif failure.kind == "timeout":
        cause = "The runtime hangs there; the kernel's log (sudo dmesg) says whether the GPU was reset."
    return Finding(
        check=_NAME,
        layer="framework",
        status="problem",
        title=f"{what}: the self-test ended at {failure.stage!r}: {failure.kind}",
        evidence=(failure.reason,),
        cause=cause,
        fixes=(_without_sdma(),) if amd_copy else (),
        verify=_again(),
    )


def _without_sdma() -> Fix:
    return Fix(command="export HSA_ENABLE_SDMA=0", why="copies with kernels in place of the copy engines")


def _again() -> str:
    return "wavefit doctor --only selftests"
