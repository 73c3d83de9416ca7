"""A GPU, measured with PyTorch: AMD's through HIP, NVIDIA's through CUDA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wavefit.child.main import Reporter
from wavefit.device.measure import on_torch_host
from wavefit.device.measure.order import Order, Reading, Readings
from wavefit.device.measure.timing import bandwidth, launch, mib, product, seconds
from wavefit.errors import RouteError

_COPY_BYTES = 1 << 30  # past any cache: an MI300X has 256 MiB
_TRANSFER_BYTES = 256 << 20
_LARGEST_MATRIX = 8192


def measure(payload: Order, say: Reporter) -> Readings:
    """All peaks.

    Raises:
        RouteError: PyTorch cannot use the GPU.
    """
    say.stage("import PyTorch")
    import torch

    try:
        return _measure(torch, torch.device("cuda", payload.runtime.index), say)
    except RuntimeError as error:  # PyTorch's own errors are of this kind, out of memory included
        raise RouteError(f"PyTorch cannot measure it: {error}") from error


def _measure(torch: Any, gpu: Any, say: Reporter) -> Readings:
    torch.cuda.set_device(gpu)
    torch.set_float32_matmul_precision("highest")  # no TF32: it is another precision
    free, _ = torch.cuda.mem_get_info(gpu)
    say.stage("copy")
    readings = {"bandwidth": _copy(torch, gpu, min(_COPY_BYTES, free // 8))}
    say.stage("transfer")
    readings |= _transfers(torch, gpu, min(_TRANSFER_BYTES, free // 8))
    say.stage("multiply")
    for name, dtype in (("fp32", torch.float32), ("fp16", torch.float16)):
        readings[name] = _product(torch, gpu, dtype, free)
    say.stage("launch")
    small = torch.rand(1, device=gpu)
    readings["launch_s"] = launch(seconds(lambda: small.add_(1), _wait(torch)), "additions of one element")
    say.stage("host")
    readings |= on_torch_host.measure(torch, gpu)
    return Readings(runtime=f"PyTorch {torch.__version__}", readings=readings)


def _wait(torch: Any) -> Callable[[], object]:
    wait: Callable[[], object] = torch.cuda.synchronize
    return wait


def _copy(torch: Any, gpu: Any, nbytes: int) -> Reading:
    source = torch.rand(nbytes // 4, device=gpu)
    target = torch.empty_like(source)
    taken = seconds(lambda: target.copy_(source), _wait(torch))
    return bandwidth(2 * source.nbytes, taken, f"copy of {mib(source.nbytes)}, read and written")


def _transfers(torch: Any, gpu: Any, nbytes: int) -> dict[str, Reading]:
    """Both ways, from memory as it comes and from pinned memory."""
    there = torch.rand(nbytes // 4, device=gpu)
    here = torch.rand(nbytes // 4)
    readings = {}
    for suffix, memory in (("", here), ("_pinned", here.pin_memory())):
        for name, target, source in (("h2d", there, memory), ("d2h", memory, there)):
            taken = seconds(_copier(target, source), _wait(torch))
            how = f"copy of {mib(here.nbytes)}{', pinned' if suffix else ''}"
            readings[name + suffix] = bandwidth(here.nbytes, taken, how)
    return readings


def _copier(target: Any, source: Any) -> Callable[[], object]:
    return lambda: target.copy_(source, non_blocking=True)


def _product(torch: Any, gpu: Any, dtype: Any, free: int) -> Reading:
    """The largest of a few sizes that fits into a quarter of the memory and takes no second."""
    size, taken = 1024, 0.0
    while True:
        first, second = (torch.rand(size, size, device=gpu).to(dtype) for _ in range(2))
        out = torch.empty_like(first)
        taken = seconds(_multiplier(torch, first, second, out), _wait(torch))
        # Twice the size is four times the memory (7 matrices at most, in fp32) and eight times the work.
        if size >= _LARGEST_MATRIX or 4 * size * size * 4 * 7 > free // 4 or 8 * taken > 0.25:
            name = str(dtype).removeprefix("torch.")
            return product(size, taken, f"product of {size}x{size} {name} matrices")
        size *= 2


def _multiplier(torch: Any, first: Any, second: Any, out: Any) -> Callable[[], object]:
    return lambda: torch.mm(first, second, out=out)
