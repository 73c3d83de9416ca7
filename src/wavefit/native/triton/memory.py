"""PyTorch's memory as numpy sees it: flat tensors that hold what a program's buffers hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch

_STORED = {"bool": "int8", "bfloat16": "bfloat16", "uint16": "int16", "uint32": "int32", "uint64": "int64"}
"""PyTorch's type for a numpy type, where they differ; unsigned ones are held as signed bits."""


def torch_type(dtype: str) -> Any:
    """The tensor's type that holds elements of a numpy type."""
    import torch

    return getattr(torch, _STORED.get(dtype, dtype))


def to_torch(array: np.ndarray, device: Any) -> torch.Tensor:
    """A flat tensor on a device with the array's elements, in its order."""
    import torch

    flat = np.ascontiguousarray(array).reshape(-1)
    if flat.dtype.name == "bfloat16":
        return torch.from_numpy(flat.view(np.int16).copy()).view(torch.bfloat16).to(device)
    held = np.dtype(_STORED.get(flat.dtype.name, flat.dtype.name))
    return torch.from_numpy(flat.view(held).copy()).to(device)


def to_numpy(tensor: torch.Tensor, dtype: str) -> np.ndarray:
    """A flat tensor's elements as a numpy type."""
    import torch

    held = tensor.detach().cpu().contiguous()
    if dtype == "bfloat16":
        import ml_dtypes

        return held.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return held.numpy().view(np.dtype(dtype))
