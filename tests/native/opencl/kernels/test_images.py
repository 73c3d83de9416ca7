"""Resize, Pad and LRN against their definitions."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from native.opencl.checks import (  # type: ignore[import-not-found]
    check,
    image,
    numbers,
    operation,
    rows,
    spread,
)

from wavefit.native.operation import View

pytest.importorskip("pyopencl")

WAYS = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric")


def _resize(x: View, out: View, more: View | None = None, **given: Any) -> Any:
    attributes = {
        "mode": "linear",
        "scales": tuple(new / old for new, old in zip(out.shape, x.shape, strict=True)),
        "coordinate_transformation_mode": "half_pixel",
        "nearest_mode": "round_prefer_floor",
        "cubic_coeff_a": -0.75,
        "exclude_outside": False,
        "extrapolation_value": 0.0,
        **given,
    }
    return operation("Resize", [x], out, more, **attributes)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_every_rule_for_places_up_and_down(mode: str, way: str) -> None:
    x = image(1, 3, 5, 7)
    out = image(1, 3, 8, 4)
    check(_resize(x, out, mode=mode, coordinate_transformation_mode=way), [numbers(x)], few=1)


@pytest.mark.parametrize("nearest", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
def test_every_rounding_of_nearest(nearest: str) -> None:
    for size in (2, 14):  # places that are halves
        x = rows(1, 2, 7)
        made = _resize(x, rows(1, 2, size), mode="nearest", nearest_mode=nearest)
        check(made, [numbers(x)], few=1, tolerance=0)


def test_cubic_without_what_is_outside_and_with_another_coefficient() -> None:
    x = rows(1, 2, 4, 5)
    made = _resize(x, rows(1, 2, 9, 3), mode="cubic", cubic_coeff_a=-0.5, exclude_outside=True)
    check(made, [numbers(x)], few=1)


def test_scales_that_give_no_whole_sizes() -> None:
    x = rows(1, 1, 7, 5)
    for mode in ("nearest", "linear"):
        made = _resize(x, rows(1, 1, 4, 8), mode=mode, scales=(1.0, 1.0, 0.6, 1.7))
        check(made, [numbers(x)], few=1)


@pytest.mark.parametrize(("old", "new"), [((1, 1), (5, 3)), ((5, 3), (1, 1)), ((1, 7), (1, 13))])
def test_sizes_of_one(old: tuple[int, int], new: tuple[int, int]) -> None:
    x, out = image(2, 3, *old), image(2, 3, *new)
    for way, mode in itertools.product(("half_pixel", "align_corners"), ("linear", "nearest")):
        check(_resize(x, out, mode=mode, coordinate_transformation_mode=way), [numbers(x)], few=1)


def test_resize_of_halves_volumes_and_strided_views_with_an_epilogue() -> None:
    x, more = spread(1, 2, 3, 5, 4), rows(2, 1, 1, 1)
    out = spread(1, 2, 5, 7, 8)
    check(_resize(x, out, more), [numbers(x), numbers(more, 1)], few=1)
    half = image(1, 4, 5, 7, dtype="float16")
    check(_resize(half, image(1, 4, 10, 14, dtype="float16")), [numbers(half)], few=1)


def test_nearest_takes_integers() -> None:
    x = rows(1, 1, 3, 4, dtype="int32")
    check(_resize(x, rows(1, 1, 6, 8, dtype="int32"), mode="nearest"), [numbers(x)])


# ---- Pad ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
@pytest.mark.parametrize(
    ("x", "pads"),
    [
        (rows(5), (2, 3)),
        (rows(3, 7), (0, 4, 2, 6)),
        (image(2, 5, 7, 9), (0, 0, 1, 3, 0, 0, 2, 0)),
        (spread(4, 3, 5), (1, 0, 2, 0, 2, 4)),
        (rows(2, 5, dtype="float16"), (1, 1, 1, 4)),
        (rows(3, 4, dtype="int64"), (2, 0, 0, 3)),
    ],
)
def test_pad(x: View, pads: tuple[int, ...], mode: str) -> None:
    rank = len(x.shape)
    shape = tuple(size + pads[axis] + pads[rank + axis] for axis, size in enumerate(x.shape))
    made = operation("Pad", [x], spread(*shape, dtype=x.dtype), pads=pads, mode=mode, value=3.0)
    check(made, [numbers(x)], few=1, tolerance=0)


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
def test_pads_longer_than_what_they_repeat(mode: str) -> None:
    for size in (1, 2, 3):
        x = rows(2, size)
        made = operation("Pad", [x], rows(2, size + 12), pads=(0, 5, 0, 7), mode=mode, value=0.0)
        check(made, [numbers(x)], few=1, tolerance=0)


def test_pad_with_an_epilogue() -> None:
    x, more = image(1, 3, 4, 5), rows(3, 1, 1)
    made = operation(
        "Pad", [x], image(1, 3, 6, 5), more, pads=(0, 0, 1, 0, 0, 0, 1, 0), mode="constant", value=-1.5
    )
    check(made, [numbers(x), numbers(more, 1)])


# ---- LRN ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 5, 17])
@pytest.mark.parametrize("x", [image(2, 7, 3, 5), rows(1, 13, 2, 3), spread(1, 5, 3), rows(2, 1, 3, 1)])
def test_lrn(x: View, size: int) -> None:
    made = operation("LRN", [x], rows(*x.shape), size=size, alpha=0.3, beta=0.75, bias=1.1)
    check(made, [numbers(x)], few=1)


def test_lrn_of_halves_with_an_epilogue() -> None:
    x, more = image(1, 9, 4, 5, dtype="float16"), image(1, 9, 4, 5)
    made = operation("LRN", [x], x, more, size=5, alpha=1e-4, beta=0.75, bias=2.0)
    check(made, [numbers(x), numbers(more, 1)])
