"""Implicit-GEMM convolutions against onnx's reference in float64, at sizes that fit no tile."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native.opencl.harness import run  # type: ignore[import-not-found]

from wavefit.native.opencl import kernels
from wavefit.native.operation import Config, Operation, View, channels_last
from wavefit.native.pointwise import Apply, Pointwise

pytest.importorskip("pyopencl")

SMALL: Config = {"tile_m": 32, "tile_n": 32, "tile_k": 16, "item_m": 2, "item_n": 4, "split": 1, "unroll": 16}
ADD_RELU = Pointwise(
    operands=2, steps=(Apply(function="add", arguments=(0, 1)), Apply(function="relu", arguments=(2,)))
)


def image(shape: tuple[int, ...], pitch: int = 0, dtype: str = "float32") -> View:
    """Channels-last, ``pitch`` elements from pixel to pixel where it is a part of a Concat."""
    strides = channels_last((shape[0], pitch or shape[1], *shape[2:]))
    return View(shape=shape, strides=strides, dtype=dtype)


def conv(
    x: View,
    weight: tuple[int, ...],
    y: View,
    residual: View | None = None,
    bias: bool = True,
    **attributes: Any,
) -> Operation:
    rank = len(weight) - 2
    given = {
        "strides": (1,) * rank,
        "pads": (0,) * 2 * rank,
        "dilations": (1,) * rank,
        "group": 1,
        **attributes,
    }
    w = View(
        shape=weight, strides=tuple(int(np.prod(weight[i + 1 :])) for i in range(len(weight))), dtype=x.dtype
    )
    b = View(shape=weight[:1], strides=(1,), dtype=x.dtype) if bias else None
    return Operation(
        op="Conv",
        inputs=(x, w, b) if residual is None else (x, w, b, residual),
        outputs=(y,),
        attributes=given,
        constant=(False, True, True, False),
        own=3,
        epilogue=None if residual is None else ADD_RELU,
    )


def check(template: str, operation: Operation, config: Config, tolerance: float = 2e-6) -> None:
    """One configuration of a template against onnx's reference, in float64."""
    rng = np.random.default_rng(0)
    arrays = [
        None if view is None else rng.standard_normal(view.shape).astype(view.dtype)
        for view in operation.inputs
    ]
    (got,) = run(template, operation, config, arrays)
    want = reference(operation, arrays)
    assert np.linalg.norm(got - want) <= tolerance * np.linalg.norm(want)


def reference(operation: Operation, arrays: list[Any]) -> np.ndarray:
    from onnx import helper
    from onnx.reference import ReferenceEvaluator

    node = helper.make_node(
        "Conv", ["x", "w", "b"][: 2 + (arrays[2] is not None)], ["y"], **operation.attributes
    )
    feeds = {
        name: array.astype(np.float64)
        for name, array in zip("xwb", arrays[:3], strict=True)
        if array is not None
    }
    (want,) = ReferenceEvaluator(node).run(None, feeds)
    return np.maximum(want + arrays[3], 0) if operation.epilogue is not None else want


@pytest.mark.parametrize(
    ("channels", "outs", "kernel", "size", "attributes"),
    [
        (8, 16, 3, (7, 9), {"pads": (1, 1, 1, 1)}),
        (16, 32, 3, (6, 5), {"pads": (0, 1, 2, 1), "strides": (2, 1)}),
        (5, 7, 3, (8, 8), {"pads": (1, 0, 0, 1), "dilations": (2, 1)}),
        (12, 33, 1, (5, 7), {}),
        (12, 20, 1, (9, 7), {"strides": (2, 2)}),
        (4, 8, 1, (3, 4), {"pads": (1, 1, 1, 1)}),
        (3, 8, 7, (15, 13), {"pads": (3, 3, 3, 3), "strides": (2, 2)}),
    ],
)
def test_shapes(
    channels: int, outs: int, kernel: int, size: tuple[int, int], attributes: dict[str, Any]
) -> None:
    strides, pads = attributes.get("strides", (1, 1)), attributes.get("pads", (0, 0, 0, 0))
    spread = [d * (kernel - 1) + 1 for d in attributes.get("dilations", (1, 1))]
    out = tuple((size[i] + pads[i] + pads[i + 2] - spread[i]) // strides[i] + 1 for i in range(2))
    operation = conv(
        image((2, channels, *size)), (outs, channels, kernel, kernel), image((2, outs, *out)), **attributes
    )
    assert "conv_gemm" in kernels.claiming(operation)
    check("conv_gemm", operation, SMALL)
    check("conv_gemm", operation, {**SMALL, "split": 2})


def test_residual_activation_and_places_in_a_concat() -> None:
    shape = (2, 12, 5, 6)
    operation = conv(
        image((2, 8, 5, 6), 20), (12, 8, 3, 3), image(shape, 28), residual=image(shape, 16), pads=(1, 1, 1, 1)
    )
    check("conv_gemm", operation, SMALL)
    check("conv_gemm", operation, {**SMALL, "split": 2})


def test_half_storage() -> None:
    operation = conv(
        image((1, 8, 5, 6), dtype="float16"),
        (12, 8, 3, 3),
        image((1, 12, 5, 6), dtype="float16"),
        pads=(1, 1, 1, 1),
    )
    check("conv_gemm", operation, SMALL, 2e-3)


def test_sequences() -> None:
    x = View(shape=(2, 8, 11), strides=channels_last((2, 8, 11)))
    y = View(shape=(2, 12, 9), strides=channels_last((2, 12, 9)))
    check("conv_gemm", conv(x, (12, 8, 3), y), SMALL)


def test_what_is_not_channels_last_is_left_to_others() -> None:
    rows = View(shape=(1, 8, 4, 4), strides=(128, 16, 4, 1))
    assert "conv_gemm" not in kernels.claiming(conv(rows, (8, 8, 1, 1), image((1, 8, 4, 4))))
