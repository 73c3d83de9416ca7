"""Pooling, reductions and resampling."""

from __future__ import annotations

import math

from wavefit.model.flops.operation import Operation, Rule, UnknownShape, per_input


def _pool(operation: Operation) -> int:
    """One operation for each element under the kernel; padding counts as if it were there."""
    kernel = operation.attributes.get("kernel_shape")
    if not kernel:
        raise UnknownShape
    return operation.out_size() * math.prod(kernel)


def _resize(operation: Operation) -> int:
    """Nothing for nearest; a multiply-add for each of 2^n or 4^n neighbours, n axes that change their size."""
    mode = operation.attributes.get("mode", b"nearest")
    neighbours = {b"nearest": 0, b"linear": 2, b"cubic": 4}.get(mode)
    if neighbours is None:
        raise UnknownShape
    before, after = operation.shape(0), operation.out_shape()
    axes = sum(a != b for a, b in zip(before, after, strict=True))
    return 2 * operation.out_size() * neighbours**axes if neighbours and axes else 0


def _grid_sample(operation: Operation) -> int:
    mode = operation.attributes.get("mode", b"linear")
    neighbours = {b"nearest": 0, b"linear": 2, b"bilinear": 2, b"cubic": 4, b"bicubic": 4}.get(mode)
    if neighbours is None:
        raise UnknownShape
    axes = len(operation.shape(0)) - 2
    return 2 * operation.out_size() * neighbours**axes if neighbours else 0


RULES: dict[str, Rule] = {
    **dict.fromkeys(("AveragePool", "LpPool", "MaxPool"), _pool),
    **dict.fromkeys(("GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool"), per_input(1)),
    **dict.fromkeys(
        (
            "ArgMax",
            "ArgMin",
            "CumProd",
            "CumSum",
            "ReduceL1",
            "ReduceMax",
            "ReduceMean",
            "ReduceMin",
            "ReduceProd",
            "ReduceSum",
        ),
        per_input(1),
    ),
    **dict.fromkeys(("ReduceL2", "ReduceLogSum", "ReduceSumSquare"), per_input(2)),
    "ReduceLogSumExp": per_input(3),
    "Resize": _resize,
    "Upsample": _resize,
    "GridSample": _grid_sample,
}
