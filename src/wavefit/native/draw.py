"""Random numbers that try an operation out: all that a type holds, and results within what they are stored in."""

from __future__ import annotations

import math

import numpy as np

from wavefit.native.operation import Operation

_BYTES = ("int8", "uint8")
_RMS = 74.0  # of bytes drawn evenly, about their middle
_WANTED = 40.0  # root mean square of requantised results: few are held at the type's ends, and errors show


def numbers(operation: Operation, number: int, count: int, rng: np.random.Generator) -> np.ndarray | None:
    """Elements of one input, flat; None for integers that may be indices.

    Args:
        operation: what is tried.
        number: of the input.
        count: how many elements.
        rng: where they come from.
    """
    dtype = operation.input(number).dtype
    if dtype.startswith("float"):
        drawn = rng.standard_normal(count, np.float32)
        return (drawn * scale(operation) if number >= operation.own else drawn).astype(dtype)
    if dtype == "bool":
        return rng.integers(0, 2, count).astype(np.uint8)
    if dtype in _BYTES:
        held = np.iinfo(dtype)
        return rng.integers(held.min, held.max + 1, count).astype(dtype)
    return None


def scale(operation: Operation) -> np.float32:
    """What brings sums of bytes' products to a byte's size: the epilogue's floats are drawn as scales; else 1."""
    if operation.op not in ("Conv", "MatMul") or operation.input(0).dtype not in _BYTES:
        return np.float32(1)
    x, w = operation.input(0).shape, operation.input(1).shape
    depth = math.prod(w[1:]) if operation.op == "Conv" else x[-1]
    return np.float32(_WANTED / (_RMS * _RMS * math.sqrt(depth)))
