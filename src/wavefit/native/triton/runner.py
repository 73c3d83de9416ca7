"""A kernel made a function of tensors: compiled for a GPU, interpreted on the CPU, or a call of PyTorch's library."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from wavefit.native.operation import Kernel
from wavefit.native.triton.compile import Target, compile_kernel, namespace
from wavefit.native.triton.kept import is_kept, load

Call = Callable[..., None]
"""Takes flat tensors, one for each argument; enqueues and does not wait."""


def prepared(kernel: Kernel, target: Target | None, cache: Path) -> Call:
    """What runs a kernel.

    Args:
        kernel: in Triton, or calls of PyTorch.
        target: of the device at hand; None: Triton's interpreter, see :mod:`interpreter`.
        cache: folder of code objects.
    """
    if kernel.language == "torch":
        call: Call = namespace(kernel)[kernel.name]
        return call
    if target is None:
        return _interpreted(kernel)
    kept = is_kept(kernel, target, cache)
    compiled = load(kernel, target, cache) if kept else compile_kernel(kernel, target, cache)
    grid = (*kernel.global_size, 1, 1)[:3]
    launch: Call = compiled[grid]
    return launch


def _interpreted(kernel: Kernel) -> Call:
    made: Any = namespace(kernel)[kernel.name]
    call: Call = made[kernel.global_size]
    return call


def target_of(device: Any) -> Target | None:
    """The target of a ``torch.device``; None for the CPU."""
    import torch

    if device.type == "cpu":
        return None
    properties = torch.cuda.get_device_properties(device)
    if torch.version.hip:
        return Target(backend="hip", arch=properties.gcnArchName.partition(":")[0], wave=properties.warp_size)
    return Target(backend="cuda", arch=f"{properties.major}{properties.minor}", wave=32)
