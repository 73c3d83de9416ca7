"""Products of words: int8 exactly, as integers add up; halves against float64. Sizes that fit no word or tile."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native.opencl.harness import run
from native.opencl.kernels.test_conv_gemm import image

from wavefit.native import reference
from wavefit.native.opencl import kernels
from wavefit.native.operation import Config, Operation, View
from wavefit.native.specimens import REQUANTISE, rows, turned

pytest.importorskip("pyopencl")

TILE: Config = {"tile_m": 32, "tile_n": 32, "tile_k": 8, "item_m": 2, "item_n": 4, "split": 1, "unroll": 4}


def conv(x: View, weight: tuple[int, ...], y: View, *more: View, **attributes: Any) -> Operation:
    given: dict[str, Any] = {"strides": (1, 1), "pads": (0,) * 4, "dilations": (1, 1), "group": 1}
    dtype = "float16" if x.dtype == "float16" else "int8"
    return Operation(
        op="Conv",
        inputs=(x, rows(*weight, dtype=dtype), *more),
        outputs=(y,),
        attributes={**given, **attributes},
        constant=(False, True, *(False,) * len(more)),
        own=2,
        epilogue=REQUANTISE if more else None,
    )


def matmul(a: View, depth_columns: tuple[int, int], y: View, **attributes: Any) -> Operation:
    dtype = "float16" if a.dtype == "float16" else "int8"
    return Operation(
        op="MatMul",
        inputs=(a, rows(*depth_columns, dtype=dtype)),
        outputs=(y,),
        attributes=attributes,
        constant=(False, True),
        own=2,
    )


def drawn(view: View, rng: np.random.Generator) -> np.ndarray:
    if view.dtype in ("int8", "uint8"):
        low, high = np.iinfo(view.dtype).min, np.iinfo(view.dtype).max
        return rng.integers(low, high + 1, view.shape).astype(view.dtype)
    return rng.standard_normal(view.shape).astype(view.dtype)


def arrays(operation: Operation) -> list[Any]:
    rng = np.random.default_rng(0)
    return [None if view is None else drawn(view, rng) for view in operation.inputs]


def check_exact(template: str, operation: Operation, config: Config) -> None:
    """The exact sums, rounded once to float32."""
    given = arrays(operation)
    (got,) = run(template, operation, config, given)
    np.testing.assert_array_equal(got, reference.compute(operation, given).astype(np.float32))


CONVS: list[tuple[int, int, int, tuple[int, int], dict[str, Any]]] = [
    (16, 16, 3, (7, 9), {"pads": (1, 1, 1, 1)}),
    (32, 33, 1, (5, 7), {}),
    (8, 7, 3, (6, 5), {"pads": (0, 1, 2, 1), "strides": (2, 1)}),
    (5, 20, 3, (8, 8), {"pads": (1, 0, 0, 1), "dilations": (2, 1)}),
    (13, 8, 1, (3, 4), {"pads": (1, 1, 1, 1), "strides": (2, 2)}),
    (3, 8, 7, (15, 13), {"pads": (3, 3, 3, 3), "strides": (2, 2)}),
    (1, 4, 1, (1, 1), {}),
]


def convolution(
    case: tuple[int, int, int, tuple[int, int], dict[str, Any]], dtype: str, **more: Any
) -> Operation:
    channels, outs, kernel, size, attributes = case
    strides, pads = attributes.get("strides", (1, 1)), attributes.get("pads", (0, 0, 0, 0))
    spread = [d * (kernel - 1) + 1 for d in attributes.get("dilations", (1, 1))]
    out = tuple((size[i] + pads[i] + pads[i + 2] - spread[i]) // strides[i] + 1 for i in range(2))
    made = "float32" if dtype != "float16" else dtype
    return conv(
        image((2, channels, *size), dtype=dtype),
        (outs, channels, kernel, kernel),
        image((2, outs, *out), dtype=made),
        **attributes,
        **more,
    )


@pytest.mark.parametrize("case", CONVS)
@pytest.mark.parametrize(("dtype", "zero_point"), [("int8", 0), ("int8", -7), ("uint8", 0), ("uint8", 131)])
def test_int8_convolutions_are_exact(case: Any, dtype: str, zero_point: int) -> None:
    operation = convolution(case, dtype, zero_point=zero_point)
    assert "conv_dot" in kernels.claiming(operation)
    check_exact("conv_dot", operation, {**TILE, "sums": "dot4"})


def test_a_split_depth_is_exact_and_corrected_once() -> None:
    operation = convolution((40, 12, 3, (5, 5), {"pads": (1, 1, 1, 1)}), "uint8", zero_point=9)
    check_exact("conv_dot", operation, {**TILE, "sums": "dot4", "split": 3})


def test_parts_of_a_concat_and_what_follows_in_int8() -> None:
    x, y = image((2, 8, 5, 6), 21, "int8"), image((2, 12, 5, 6), 28, "int8")
    scales = View(shape=(12, 1, 1), strides=(1, 0, 0))
    operation = conv(
        x, (12, 8, 3, 3), y, scales, image((2, 12, 5, 6), 16, "int8"), pads=(1, 1, 1, 1), zero_point=3
    )
    given = arrays(operation)
    given[2] = (np.abs(given[2]) * 1e-3).astype(np.float32)
    for split in (1, 2):
        (got,) = run("conv_dot", operation, {**TILE, "sums": "dot4", "split": split}, given)
        plain = conv(x, (12, 8, 3, 3), image((2, 12, 5, 6)), pads=(1, 1, 1, 1), zero_point=3)
        sums = reference.compute(plain, given[:2])
        want = np.clip(np.rint(sums * given[2].reshape(12, 1, 1) + given[3] * 0.5), -128, 127)
        assert got.dtype == np.int8
        off = np.abs(got - want)
        assert off.max() <= 1  # at a half, fp32 and float64 round apart
        assert (off > 0).mean() < 0.01


@pytest.mark.parametrize(
    ("shape", "columns"),
    [((33, 64), 72), ((31, 37), 5), ((1, 1), 1), ((2, 3, 17, 32), 33), ((65, 129), 31)],
)
@pytest.mark.parametrize(("dtype", "zero_point"), [("int8", 5), ("uint8", 128)])
def test_int8_products_are_exact(shape: tuple[int, ...], columns: int, dtype: str, zero_point: int) -> None:
    operation = matmul(
        rows(*shape, dtype=dtype), (shape[-1], columns), rows(*shape[:-1], columns), zero_point=zero_point
    )
    assert "matmul_dot" in kernels.claiming(operation)
    check_exact("matmul_dot", operation, {**TILE, "sums": "dot4"})
    check_exact("matmul_dot", operation, {**TILE, "sums": "dot4", "split": 2})


def test_a_factor_whose_depths_lie_apart() -> None:
    operation = matmul(turned(rows(36, 33, dtype="int8")), (36, 20), rows(33, 20))
    check_exact("matmul_dot", operation, {**TILE, "sums": "dot4"})


def relative(operation: Operation, config: Config) -> float:
    given = arrays(operation)
    (got,) = run("conv_dot" if operation.op == "Conv" else "matmul_dot", operation, config, given)
    want = reference.compute(operation, given)
    return float(np.linalg.norm(got.astype(np.float64) - want) / np.linalg.norm(want))


@pytest.mark.parametrize("sums", ["dot2", "packed"])
@pytest.mark.parametrize("case", CONVS)
def test_convolutions_of_halves(case: Any, sums: str) -> None:
    """Stored rounded to half: 2^-11 at most for each element; sums of 16 depths in half add about as much."""
    operation = convolution(case, "float16")
    assert "conv_dot" in kernels.claiming(operation)
    assert relative(operation, {**TILE, "sums": sums}) < (5e-4 if sums == "dot2" else 1e-3)


@pytest.mark.parametrize("sums", ["dot2", "packed"])
@pytest.mark.parametrize(
    ("shape", "columns"), [((33, 64), 72), ((31, 37), 5), ((1, 1), 1), ((5, 17, 33), 19)]
)
def test_products_of_halves(shape: tuple[int, ...], columns: int, sums: str) -> None:
    operation = matmul(
        rows(*shape, dtype="float16"), (shape[-1], columns), rows(*shape[:-1], columns, dtype="float16")
    )
    bound = 5e-4 if sums == "dot2" else 1e-3
    assert relative(operation, {**TILE, "sums": sums}) < bound
    assert relative(operation, {**TILE, "sums": sums, "split": 2}) < bound


def test_what_lies_between_channels_is_not_added() -> None:
    """An odd channel's word holds one half; its neighbour in memory is NaN here, and times 0 would stay NaN."""
    operation = conv(image((1, 5, 3, 3), 9, "float16"), (4, 5, 1, 1), image((1, 4, 3, 3), dtype="float16"))
    assert relative(operation, {**TILE, "sums": "dot2"}) < 5e-4


def test_weights_that_are_computed_are_left_to_others() -> None:
    operation = matmul(rows(4, 8, dtype="int8"), (8, 4), rows(4, 4))
    from msgspec.structs import replace

    assert "matmul_dot" not in kernels.claiming(replace(operation, constant=(False, False)))


@pytest.mark.parametrize("case", CONVS)
@pytest.mark.parametrize(("dtype", "zero_point"), [("int8", -7), ("uint8", 131)])
def test_devices_without_a_dot_product_are_exact_too(case: Any, dtype: str, zero_point: int) -> None:
    operation = convolution(case, dtype, zero_point=zero_point)
    config: Config = {**TILE, "tile_k": 16}
    check_exact("conv_gemm", operation, config)


@pytest.mark.parametrize(("group", "channels", "outs"), [(4, 24, 36), (33, 33, 33), (8, 8, 16)])
def test_groups_in_int8(group: int, channels: int, outs: int) -> None:
    x, y = image((2, channels, 9, 7), dtype="uint8"), image((2, outs, 5, 4))
    operation = conv(
        x, (outs, channels // group, 3, 3), y, strides=(2, 2), pads=(1, 1, 1, 1), group=group, zero_point=77
    )
    claiming = kernels.claiming(operation)
    assert "conv_any" in claiming
    for template in claiming:
        from wavefit.native.operation import Limits

        limits = Limits(name="any", kind="cpu")
        check_exact(template, operation, next(iter(kernels.get(template).configurations(operation, limits))))


def test_products_of_int8_without_a_dot_product() -> None:
    operation = matmul(rows(31, 37, dtype="uint8"), (37, 5), rows(31, 5), zero_point=100)
    check_exact("matmul", operation, {**TILE, "tile_k": 16})
    check_exact("matmul", operation, {**TILE, "tile_k": 16, "split": 2})


def test_sums_that_a_float_cannot_hold() -> None:
    """1031 products of 254 or 255 with -127: odd, and past 2^24, where a float knows even numbers alone."""
    depth = 1031
    x = np.where(np.arange(3 * depth) % 7, 255, 254).astype(np.uint8)
    product = matmul(rows(3, depth, dtype="uint8"), (depth, 5), rows(3, 5))
    pixel = conv(image((3, depth, 1, 1), dtype="uint8"), (5, depth, 1, 1), image((3, 5, 1, 1)))
    want = np.repeat(x.reshape(3, depth).astype(np.int64).sum(1)[:, None] * -127, 5, 1)
    assert (np.abs(want) > 2**24).all()
    ways = {"matmul_dot": {"sums": "dot4"}, "matmul": {"tile_k": 16}}
    ways |= {"conv_dot": {"sums": "dot4"}, "conv_gemm": {"tile_k": 16}}
    for template, more in ways.items():
        operation = product if template.startswith("matmul") else pixel
        w = np.full(operation.input(1).shape, -127, np.int8)
        (got,) = run(template, operation, {**TILE, **more}, [x.reshape(operation.input(0).shape), w])
        np.testing.assert_array_equal(got.reshape(3, 5), want.astype(np.float32), template)
    grouped = {"channels": 2, "pixels": 1, "vector": 1, "unroll": 0, "items": 64}
    (got,) = run(
        "conv_any", pixel, grouped, [x.reshape(3, depth, 1, 1), np.full((5, depth, 1, 1), -127, np.int8)]
    )
    np.testing.assert_array_equal(got.reshape(3, 5), want.astype(np.float32))


def test_bytes_are_not_multiplied_by_floats() -> None:
    operation = matmul(rows(4, 8, dtype="int8"), (8, 4), rows(4, 4))
    from msgspec.structs import replace

    assert kernels.claiming(replace(operation, inputs=(rows(4, 8), operation.inputs[1]))) == []
