"""Direct, depthwise, grouped, transposed and Winograd convolutions against their definition, at awkward sizes."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from native.opencl.convs import LIMITS, check, conv, image, picture  # type: ignore[import-not-found]

from wavefit.native.opencl import kernels
from wavefit.native.opencl.kernels import _tiles, _winograd, conv_direct, conv_winograd
from wavefit.native.operation import Limits, Operation

pytest.importorskip("pyopencl")

SAME = (1, 1, 1, 1)
TEMPLATES = ("conv_any", "conv_depthwise", "conv_direct", "conv_transpose", "conv_winograd")


# ---- Any convolution, and grouped ones ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "outs", "kernel", "attributes"),
    [
        (picture((2, 3, 7, 9)), 5, (3, 3), {"strides": (2, 1), "pads": (1, 0, 2, 1)}),
        (image((2, 8, 7, 9)), 12, (3, 2), {"pads": (1, 0, 2, 1), "dilations": (1, 2), "group": 4}),
        (image((1, 10, 4, 5)), 6, (1, 1), {"group": 2, "bias": False}),
        (image((2, 6, 11)), 10, (3,), {"strides": (2,), "pads": (1, 0), "group": 2}),
        (
            image((1, 6, 4, 5, 6)),
            4,
            (2, 3, 1),
            {"strides": (1, 2, 1), "pads": (1, 0, 1, 0, 1, 0), "group": 2},
        ),
        (image((1, 1, 1, 1)), 1, (1, 1), {"constant": False}),
        (image((1, 4, 3, 3)), 6, (3, 3), {"pads": SAME, "group": 2, "constant": False}),
    ],
)
def test_any(x: Any, outs: int, kernel: tuple[int, ...], attributes: dict[str, Any]) -> None:
    check("conv_any", conv(x, outs, kernel, **attributes))


# ---- Depthwise ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "outs", "kernel", "attributes"),
    [
        (image((2, 8, 7, 9)), 8, (3, 3), {"pads": SAME}),
        (image((2, 8, 7, 9)), 8, (3, 3), {"strides": (2, 2), "pads": (0, 0, 1, 1)}),
        (image((1, 7, 10, 9)), 7, (5, 3), {"strides": (2, 1), "pads": (2, 1, 1, 3), "dilations": (1, 2)}),
        (image((1, 3, 5, 6)), 6, (3, 3), {"pads": SAME}),
        (image((2, 6, 11)), 6, (3,), {"strides": (2,), "pads": (1, 0)}),
        (image((1, 2, 1, 1)), 2, (1, 1), {"bias": False}),
        (image((1, 4, 5, 5)), 4, (3, 3), {"pads": (5, 5, 5, 5), "dilations": (3, 3)}),
    ],
)
def test_depthwise(x: Any, outs: int, kernel: tuple[int, ...], attributes: dict[str, Any]) -> None:
    operation = conv(x, outs, kernel, group=x.shape[1], **attributes)
    check("conv_depthwise", operation)
    check("conv_depthwise", operation, [{"vector": 1, "rows": 3, "pixels": 2, "items": 64}])


# ---- Few channels ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "outs", "kernel", "attributes"),
    [
        (picture((2, 3, 23, 31)), 16, (7, 7), {"strides": (2, 2), "pads": (3, 3, 3, 3)}),
        (image((1, 3, 17, 13)), 13, (3, 3), {"pads": SAME}),
        (picture((1, 1, 7, 10)), 70, (5, 3), {"strides": (2, 1), "pads": (2, 1, 1, 3), "dilations": (1, 2)}),
        (image((2, 4, 9, 33)), 8, (11, 11), {"strides": (4, 4), "pads": (2, 2, 2, 2), "bias": False}),
        (image((1, 1, 1, 1)), 1, (1, 1), {}),
    ],
)
def test_few_channels(x: Any, outs: int, kernel: tuple[int, ...], attributes: dict[str, Any]) -> None:
    operation = conv(x, outs, kernel, **attributes)
    check("conv_direct", operation)
    check("conv_direct", operation, [{"lanes": 4, "vectors": 2, "pixels": 4, "across": 3, "down": 2}])


# ---- Transposed -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "outs", "kernel", "attributes"),
    [
        (image((2, 8, 5, 3)), 6, (2, 2), {"strides": (2, 2)}),
        (
            image((1, 6, 5, 4)),
            4,
            (3, 5),
            {"strides": (2, 3), "pads": (1, 2, 0, 1), "group": 2, "output_padding": (1, 2)},
        ),
        (image((1, 3, 4, 4)), 5, (3, 3), {"pads": SAME, "bias": False}),
        (
            image((1, 4, 5, 4)),
            4,
            (3, 2),
            {"strides": (2, 3), "pads": (1, 0, 0, 1), "dilations": (2, 3), "group": 2},
        ),
        (image((1, 4, 2, 3)), 4, (3, 3), {"strides": (4, 4), "output_padding": (3, 3)}),
        (image((2, 5, 7)), 3, (4,), {"strides": (3,), "pads": (1, 1)}),
        (image((1, 2, 2, 3, 2)), 3, (2, 2, 3), {"strides": (2, 1, 2), "pads": (0, 1, 0, 1, 0, 1)}),
        (picture((1, 4, 3, 3)), 6, (2, 2), {"strides": (2, 2), "group": 2, "constant": False}),
    ],
)
def test_transposed(x: Any, outs: int, kernel: tuple[int, ...], attributes: dict[str, Any]) -> None:
    check("conv_transpose", conv(x, outs, kernel, op="ConvTranspose", **attributes))


# ---- Winograd -------------------------------------------------------------------------------------------------------

PRODUCT = _tiles.config(_tiles.Tile(32, 32, 16, 2, 4))


@pytest.mark.parametrize("m", [2, 4])
@pytest.mark.parametrize(
    ("x", "outs", "attributes"),
    [
        (image((2, 16, 5, 9)), 8, {"pads": SAME}),
        (image((1, 9, 5, 6)), 11, {"pads": (0, 2, 1, 3), "bias": False}),
        (image((1, 8, 3, 3)), 8, {}),
    ],
)
def test_winograd(m: int, x: Any, outs: int, attributes: dict[str, Any]) -> None:
    operation = conv(x, outs, (3, 3), **attributes)
    vector = 1 if x.shape[1] % 2 else 2
    check("conv_winograd", operation, [{"m": m, "vector": vector, **PRODUCT}], tolerance=2e-6)


def test_winograd_splits_a_deep_product() -> None:
    operation = conv(image((1, 64, 4, 4)), 8, (3, 3), pads=SAME)
    check("conv_winograd", operation, [{"m": 4, "vector": 2, **PRODUCT, "split": 2}], tolerance=2e-6)


@pytest.mark.parametrize("m", [2, 4])
def test_winograds_matrices_filter_exactly(m: int) -> None:
    a, g, b = _winograd.matrices(m)
    data = [Fraction(value) for value in (3, -1, 4, 1, -5, 9)[: m + 2]]
    taps = [Fraction(value) for value in (2, -7, 1)]
    products = [
        sum(x * y for x, y in zip(left, taps, strict=True))
        * sum(x * y for x, y in zip(right, data, strict=True))
        for left, right in zip(g, b, strict=True)
    ]
    got = [sum(x * y for x, y in zip(row, products, strict=True)) for row in a]
    assert got == [sum(taps[k] * data[i + k] for k in range(3)) for i in range(m)]


def test_winograd_keeps_halves_to_small_tiles() -> None:
    operation = conv(image((1, 16, 8, 8), dtype="float16"), 16, (3, 3), pads=SAME)
    assert {config["m"] for config in conv_winograd.configurations(operation, LIMITS)} == {2}


@pytest.mark.parametrize(
    "attributes",
    [{"strides": (2, 2)}, {"dilations": (2, 2)}, {"group": 2}, {"constant": False}],
)
def test_winograd_leaves_other_convolutions_alone(attributes: dict[str, Any]) -> None:
    operation = conv(image((1, 16, 8, 8)), 16, (3, 3), **attributes)
    assert "conv_winograd" not in kernels.claiming(operation)


# ---- All of them ----------------------------------------------------------------------------------------------------

CASES: dict[str, dict[str, Any]] = {
    "conv_any": {"channels": 8, "group": 2},
    "conv_depthwise": {"channels": 8, "group": 8},
    "conv_direct": {"channels": 4},
    "conv_transpose": {"channels": 8, "op": "ConvTranspose"},
    "conv_winograd": {"channels": 8},
}


@pytest.mark.parametrize("template", TEMPLATES)
def test_residual_activation_and_places_in_a_concat(template: str) -> None:
    operation = _case(template, "float32", {"pitch": 20, "offset": 4}, residual=image((1, 8, 5, 6), 13, 3))
    check(template, operation, tolerance=2e-6)


@pytest.mark.parametrize("template", TEMPLATES)
def test_half_storage(template: str) -> None:
    check(template, _case(template, "float16", {}), tolerance=2e-3)


def _case(template: str, dtype: str, place: dict[str, int], **more: Any) -> Operation:
    given = dict(CASES[template])
    x = image((1, given.pop("channels"), 5, 6), dtype=dtype, **place)
    return conv(x, 8, (3, 3), pads=SAME, y=place, **given, **more)


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize(
    "limits",
    [
        Limits(name="GCN", wave=64, compute_units=8, registers=256, local_bytes=32768, work_group=256),
        Limits(name="small", wave=32, registers=256, local_bytes=16384, work_group=128, most_registers=128),
    ],
)
def test_configurations_fit_the_device(template: str, limits: Limits) -> None:
    operation = _case(template, "float32", {})
    configs = list(kernels.get(template).configurations(operation, limits))
    assert configs
    for config in configs:
        for launch in kernels.get(template).build(operation, config).launches:
            kernel = launch.kernel
            assert np.prod(kernel.local_size) <= limits.work_group
            assert kernel.local_bytes <= limits.local_bytes
            assert kernel.registers <= limits.most_registers


def test_few_channels_keep_four_waves_on_gcn() -> None:
    limits = Limits(name="gfx90c", gfx="gfx90c", wave=64, compute_units=8, registers=256, local_bytes=32768)
    operation = conv(picture((1, 3, 224, 224)), 64, (7, 7), strides=(2, 2), pads=(3, 3, 3, 3))
    for config in conv_direct.configurations(operation, limits):
        kernel = conv_direct.build(operation, config).launches[0].kernel
        assert kernel.registers <= 64
