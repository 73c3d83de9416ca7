"""Convolutions as operations, their values in float64 by the definition, and the check of a template against them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
from native.opencl.harness import run  # type: ignore[import-not-found]

from wavefit.native.opencl import kernels
from wavefit.native.operation import Config, Limits, Operation, View, channels_last, row_major
from wavefit.native.pointwise import Apply, Pointwise

LIMITS = Limits(name="a small GPU", compute_units=8, wave=32)
ADD_RELU = Pointwise(
    operands=2, steps=(Apply(function="add", arguments=(0, 1)), Apply(function="relu", arguments=(2,)))
)


def image(shape: Sequence[int], pitch: int = 0, offset: int = 0, dtype: str = "float32") -> View:
    """Channels-last, ``pitch`` elements from pixel to pixel where it is a part of a Concat."""
    strides = channels_last((shape[0], pitch or shape[1], *shape[2:]))
    return View(shape=tuple(shape), strides=strides, offset=offset, dtype=dtype)


def picture(shape: Sequence[int]) -> View:
    """As a graph's input lies."""
    return View(shape=tuple(shape), strides=row_major(tuple(shape)))


def conv(
    x: View,
    outs: int,
    kernel: Sequence[int],
    *,
    op: str = "Conv",
    bias: bool = True,
    residual: View | None = None,
    y: dict[str, int] | None = None,
    constant: bool = True,
    **attributes: Any,
) -> Operation:
    """A Conv or ConvTranspose; attributes that are not given are ONNX's defaults.

    Args:
        x: the input.
        outs: output channels.
        kernel: its spatial size.
        op: the operator.
        bias: whether there is one.
        residual: added before a ReLU, as the epilogue.
        y: pitch and offset of the output.
        constant: whether the weights are known.
    """
    rank = len(kernel)
    given: dict[str, Any] = {
        "strides": (1,) * rank,
        "pads": (0,) * 2 * rank,
        "dilations": (1,) * rank,
        "group": 1,
    }
    if op == "ConvTranspose":
        given["output_padding"] = (0,) * rank
    given |= attributes
    pads = [given["pads"][i] + given["pads"][rank + i] for i in range(rank)]
    spread = [(kernel[i] - 1) * given["dilations"][i] + 1 for i in range(rank)]
    if op == "Conv":
        out = [(x.shape[2 + i] + pads[i] - spread[i]) // given["strides"][i] + 1 for i in range(rank)]
        weight = (outs, x.shape[1] // given["group"], *kernel)
    else:
        out = [
            (x.shape[2 + i] - 1) * given["strides"][i] + given["output_padding"][i] + spread[i] - pads[i]
            for i in range(rank)
        ]
        weight = (x.shape[1], outs // given["group"], *kernel)
    w = View(shape=weight, strides=row_major(weight), dtype=x.dtype)
    b = View(shape=(outs,), strides=(1,), dtype=x.dtype) if bias else None
    return Operation(
        op=op,
        inputs=(x, w, b) if residual is None else (x, w, b, residual),
        outputs=(image((x.shape[0], outs, *out), dtype=x.dtype, **(y or {})),),
        attributes=given,
        constant=(False, constant, True, False),
        own=3,
        epilogue=None if residual is None else ADD_RELU,
    )


def check(
    template: str,
    operation: Operation,
    configs: Sequence[Config] = (),
    most: int = 1,
    tolerance: float = 1e-6,
) -> None:
    """Configurations of a template (the first few, where none are given) against the definition, in float64."""
    assert template in kernels.claiming(operation)
    rng = np.random.default_rng(0)
    arrays = [
        None if view is None else rng.standard_normal(view.shape).astype(view.dtype)
        for view in operation.inputs
    ]
    want = definition(operation, arrays)
    found = list(kernels.get(template).configurations(operation, LIMITS))
    assert len(found) > 0
    for config in configs or found[:most]:
        (got,) = run(template, operation, config, arrays)
        assert np.linalg.norm(got - want) <= tolerance * np.linalg.norm(want), config
        assert 0 < kernels.get(template).cost(operation, config, LIMITS) < 1


def definition(operation: Operation, arrays: Sequence[np.ndarray | None]) -> np.ndarray:
    """In float64, tap by tap."""
    x, w, b = (None if array is None else array.astype(np.float64) for array in arrays[:3])
    assert x is not None
    assert w is not None
    y = (_gathered if operation.op == "Conv" else _scattered)(operation, x, w)
    if b is not None:
        y += b.reshape(1, -1, *[1] * (y.ndim - 2))
    if operation.epilogue is not None:
        assert arrays[3] is not None
        y = np.maximum(y + arrays[3], 0)
    return y


def _gathered(operation: Operation, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    given, rank = operation.attributes, x.ndim - 2
    pads, group, out = given["pads"], given["group"], operation.output.shape
    x = np.pad(x, [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)])
    y = np.zeros((out[0], group, out[1] // group, *out[2:]))
    for tap in product(*map(range, w.shape[2:])):
        starts = [k * d for k, d in zip(tap, given["dilations"], strict=True)]
        cut = tuple(
            slice(start, start + (n - 1) * step + 1, step)
            for start, n, step in zip(starts, out[2:], given["strides"], strict=True)
        )
        part = x[(..., *cut)].reshape(out[0], group, -1, *out[2:])
        y += np.einsum("goi,ngi...->ngo...", w[(..., *tap)].reshape(group, -1, w.shape[1]), part)
    return y.reshape(out)


def _scattered(operation: Operation, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    given, rank, out = operation.attributes, x.ndim - 2, operation.output.shape
    group, begins = given["group"], given["pads"][:rank]
    room = [
        max(begins[i] + out[2 + i], (x.shape[2 + i] - 1) * given["strides"][i] + spread)
        for i, spread in enumerate(
            (k - 1) * d + 1 for k, d in zip(w.shape[2:], given["dilations"], strict=True)
        )
    ]
    y = np.zeros((out[0], group, out[1] // group, *room))
    grouped = x.reshape(x.shape[0], group, -1, *x.shape[2:])
    for tap in product(*map(range, w.shape[2:])):
        cut = tuple(
            slice(k * d, k * d + (n - 1) * step + 1, step)
            for k, d, n, step in zip(tap, given["dilations"], x.shape[2:], given["strides"], strict=True)
        )
        y[(..., *cut)] += np.einsum(
            "gio,ngi...->ngo...", w[(..., *tap)].reshape(group, -1, w.shape[1]), grouped
        )
    kept = tuple(slice(begin, begin + n) for begin, n in zip(begins, out[2:], strict=True))
    return y.reshape(out[0], out[1], *room)[(..., *kept)]
