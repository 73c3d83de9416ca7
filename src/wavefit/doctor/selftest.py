"""Self-tests of runtimes, each in a child process with a deadline: allocate, copy, multiply, copy back twice, compare.

Two copies back, because on some APUs the first works and the second never returns: the fault is in the copy engines
(SDMA), and HSA_ENABLE_SDMA=0 goes around them (ROCm issue 2781, "hipMemcpy hangs on second calls on 5700G").
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from wavefit import child
from wavefit.child.main import Reporter
from wavefit.errors import RouteError
from wavefit.schema import Failure, Struct

if TYPE_CHECKING:
    import numpy as np

Runtime = Literal["numpy", "onnxruntime", "opencl", "torch", "hip"]

DEADLINE_S = 120.0
SECOND_COPY = "second copy back"
COMPILE = "compile with hiprtc"
SIZE = 256
LARGEST_ERROR = 1e-5
"""Relative L2 error against float64. A sum of 256 products in fp32 is right to about 1e-6; TF32 gives 3e-4."""

_KERNEL = """
__kernel void multiply(__global const float *a, __global const float *b, __global float *c, const int n) {
    const int row = get_global_id(1), column = get_global_id(0);
    float sum = 0.0f;
    for (int k = 0; k < n; k++) sum += a[row * n + k] * b[k * n + column];
    c[row * n + column] = sum;
}
"""


class Order(Struct, frozen=True, kw_only=True):
    """Which runtime is tried, and on what."""

    runtime: Runtime
    provider: str = ""  # ONNX Runtime's
    gpu: bool = True  # on GPUs; else on the CPU
    library: str | None = None  # HIP's, where it is not the one found by itself
    compute: bool = True  # else copies alone: for HIP, whose compiler may end the process


class Outcome(Struct, frozen=True, kw_only=True):
    """What one device made of it."""

    device: str
    error: float  # relative L2, against float64
    same: bool  # both copies back are equal
    computed: bool = True  # else a matrix was copied there and back, and not multiplied


class Tested(Struct, frozen=True, kw_only=True):
    """The devices that were tried; none where the runtime sees none."""

    outcomes: tuple[Outcome, ...] = ()
    absent: bool = False  # the runtime is not installed


def run(order: Order, deadline_s: float = DEADLINE_S) -> Tested | Failure:
    """One runtime's self-test, in a child."""
    with tempfile.TemporaryDirectory(prefix="wavefit-") as folder:
        function = f"{__name__}:_{order.runtime}"
        return child.run(function, order, Tested, deadline_s, Path(folder), lambda text: None)


def matrices() -> tuple[np.ndarray, np.ndarray]:
    """The two factors, float32 [SIZE, SIZE]."""
    import numpy as np

    random = np.random.default_rng(0)
    a, b = (random.standard_normal((SIZE, SIZE)).astype(np.float32) for _ in range(2))
    return a, b


def outcome(device: str, first: np.ndarray, second: np.ndarray) -> Outcome:
    """What two copies of the product say of a device."""
    import numpy as np

    a, b = (matrix.astype(np.float64) for matrix in matrices())
    right = a @ b
    error = float(np.linalg.norm(first - right) / np.linalg.norm(right))
    return Outcome(
        device=device, error=error if np.isfinite(error) else 1e9, same=bool((first == second).all())
    )


def _hip(payload: Order, say: Reporter) -> Tested:
    from wavefit.doctor import selftest_hip

    return selftest_hip.run(payload, say)


def _numpy(payload: Order, say: Reporter) -> Tested:
    import numpy as np

    a, b = matrices()
    say.stage("matmul")
    product = a @ b
    return Tested(outcomes=(outcome(f"CPU, NumPy {np.__version__}", product, product.copy()),))


def _torch(payload: Order, say: Reporter) -> Tested:
    say.stage("import torch")
    import torch

    say.stage("look for devices")
    kinds = [f"cuda:{number}" for number in range(torch.cuda.device_count())] if payload.gpu else ["cpu"]
    return Tested(outcomes=tuple(_torch_on(torch, kind, say) for kind in kinds))


def _torch_on(torch: Any, kind: str, say: Reporter) -> Outcome:
    name = torch.cuda.get_device_name(kind) if kind != "cpu" else f"CPU, PyTorch {torch.__version__}"
    try:
        say.stage("allocate and copy")
        a, b = (torch.from_numpy(matrix).to(kind) for matrix in matrices())
        say.stage("matmul")
        product = torch.matmul(a, b)
        if kind != "cpu":
            torch.cuda.synchronize(kind)
        say.stage("first copy back")
        first = product.cpu().numpy().copy()
        say.stage(SECOND_COPY)
        second = product.cpu().numpy().copy()
    except RuntimeError as error:
        raise RouteError(f"{name}: {_first_line(error)}") from error
    return outcome(name, first, second)


def _opencl(payload: Order, say: Reporter) -> Tested:
    say.stage("look for devices")
    import pyopencl as cl

    kind = cl.device_type.GPU if payload.gpu else cl.device_type.CPU
    try:
        devices = [device for platform in cl.get_platforms() for device in _devices(cl, platform, kind)]
        return Tested(outcomes=tuple(_opencl_on(cl, device, say) for device in devices))
    except cl.Error as error:
        if "PLATFORM_NOT_FOUND" in str(error):
            return Tested()
        raise RouteError(_first_line(error)) from error


def _devices(cl: Any, platform: Any, kind: int) -> list[Any]:
    try:
        return list(platform.get_devices(kind))
    except cl.Error as error:
        if "DEVICE_NOT_FOUND" in str(error):
            return []
        raise


def _opencl_on(cl: Any, device: Any, say: Reporter) -> Outcome:
    import numpy as np

    a, b = matrices()
    say.stage("allocate and copy")
    context = cl.Context([device])
    commands = cl.CommandQueue(context)
    flags = cl.mem_flags
    inputs = [cl.Buffer(context, flags.READ_ONLY | flags.COPY_HOST_PTR, hostbuf=matrix) for matrix in (a, b)]
    output = cl.Buffer(context, flags.WRITE_ONLY, a.nbytes)
    say.stage("compile")
    kernel = cl.Kernel(cl.Program(context, _KERNEL).build(), "multiply")
    say.stage("matmul")
    kernel(commands, (SIZE, SIZE), None, *inputs, output, np.int32(SIZE))
    commands.finish()
    first, second = np.empty_like(a), np.empty_like(a)
    say.stage("first copy back")
    cl.enqueue_copy(commands, first, output)
    say.stage(SECOND_COPY)
    cl.enqueue_copy(commands, second, output)
    return outcome(f"{device.name.strip()} ({device.platform.name})", first, second)


def _onnxruntime(payload: Order, say: Reporter) -> Tested:
    say.stage("import onnxruntime")
    import onnxruntime as ort
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    # ONNX Runtime's errors have no base class of their own.
    own = (each for each in vars(state).values() if isinstance(each, type) and issubclass(each, Exception))
    errors: tuple[type[BaseException], ...] = (RuntimeError, *own)
    a, b = matrices()
    say.stage("open")
    try:
        session = _session(ort, payload)
        if payload.provider not in session.get_providers():
            raise RouteError(f"ONNX Runtime left {payload.provider} out and would run on the CPU")
        say.stage("matmul and first copy back")
        first = session.run(None, {"a": a, "b": b})[0]
        say.stage(SECOND_COPY)
        second = session.run(None, {"a": a, "b": b})[0]
    except errors as error:
        raise RouteError(_first_line(error)) from error
    return Tested(outcomes=(outcome(f"{payload.provider}, {ort.__version__}", first, second),))


def _session(ort: Any, order: Order) -> Any:
    """A session on the provider alone: what it cannot run is an error, not the CPU's."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    if order.gpu:
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    if order.provider in ort.get_available_providers():
        return ort.InferenceSession(_model(), options, providers=[order.provider])
    options.add_provider_for_devices([_plugin_device(ort, order.provider)], {})
    return ort.InferenceSession(_model(), options)


def _plugin_device(ort: Any, provider: str) -> Any:
    """WebGPU comes as a plug-in too; its device "webgpu.virtual" only compiles."""
    try:
        import onnxruntime_ep_webgpu as plugin
    except ImportError:
        raise RouteError(f"ONNX Runtime has no {provider}") from None
    ort.register_execution_provider_library(provider, plugin.get_library_path())
    for device in ort.get_ep_devices():
        virtual = str(dict(device.device.metadata).get("is_virtual", "0")).lower()
        if device.ep_name == provider and virtual not in ("1", "true"):
            return device
    raise RouteError(f"{provider} finds no GPU", "vulkaninfo --summary shows what Vulkan sees")


def _model() -> bytes:
    """One MatMul."""
    from onnx import TensorProto, helper

    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [SIZE, SIZE]) for name in "abc"]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["a", "b"], ["c"])], "matmul", values[:2], values[2:]
    )
    opset = [helper.make_opsetid("", 13)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8)
    return bytes(model.SerializeToString())


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
