"""Elementwise expressions, copies and transposes against their definitions, in every vector width and tile."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native.opencl.checks import (  # type: ignore[import-not-found]
    LIMITS,
    check,
    image,
    numbers,
    operation,
    rows,
    spread,
)
from native.opencl.harness import run  # type: ignore[import-not-found]

from wavefit.native.opencl import kernels
from wavefit.native.operation import Operation, View
from wavefit.native.pointwise import Apply, Pointwise

pytest.importorskip("pyopencl")

ADD_RELU = Pointwise(
    operands=2, steps=(Apply(function="add", arguments=(0, 1)), Apply(function="relu", arguments=(2,)))
)


def _pointwise(inputs: list[View], out: View, expression: Pointwise) -> Operation:
    return Operation(
        op="Pointwise",
        inputs=tuple(inputs),
        outputs=(out,),
        constant=(False,) * len(inputs),
        epilogue=expression,
    )


def _widest_of_each(template: str, made: Operation) -> list[dict[str, Any]]:
    """One configuration for each vector width or tile that the template may take."""
    found = {}
    for config in kernels.get(template).configurations(made, LIMITS):
        found.setdefault(tuple(value for key, value in config.items() if key != "local"), config)
    return list(found.values())


@pytest.mark.parametrize(
    ("first", "second", "out"),
    [
        (rows(), rows(), rows()),
        (rows(13), rows(1), rows(13)),
        (rows(2, 3, 5, 7), rows(2, 3, 5, 7), rows(2, 3, 5, 7)),
        (image(2, 9, 3, 5), rows(9, 1, 1), image(2, 9, 3, 5)),
        (rows(1, 3, 5, 1), image(4, 1, 5, 6), rows(4, 3, 5, 6)),
        (spread(3, 4, 5), rows(5), spread(3, 4, 5)),
        (View(shape=(11,), strides=(-1,), offset=10), rows(11), rows(11)),
        (
            image(1, 16, 3, 3, dtype="float16"),
            rows(16, 1, 1, dtype="float16"),
            image(1, 16, 3, 3, dtype="float16"),
        ),
    ],
)
def test_any_views_broadcast_at_every_width(first: View, second: View, out: View) -> None:
    made = _pointwise([first, second], out, ADD_RELU)
    x, y = numbers(first), numbers(second, 1)
    want = np.maximum(x.astype(np.float64) + y, 0)
    for config in _widest_of_each("pointwise", made):
        (got,) = run("pointwise", made, config, [x, y])
        np.testing.assert_allclose(got, want, rtol=1e-3 if out.dtype == "float16" else 1e-6, atol=1e-6)


def test_a_channels_slice_leaves_its_neighbours_alone() -> None:
    """What Concat is: a dense image written between the channels of another, from a place that no vector fits."""
    out = View(shape=(2, 10, 3, 3), strides=(9 * 17, 1, 3 * 17, 17), offset=3)
    made = _pointwise([image(2, 10, 3, 3), rows(10, 1, 1)], out, ADD_RELU)
    x, y = numbers(made.input(0)), numbers(made.input(1), 1)
    for config in _widest_of_each("pointwise", made):
        (got,) = run("pointwise", made, config, [x, y])
        np.testing.assert_allclose(got, np.maximum(x + y, 0), rtol=1e-6)


@pytest.mark.parametrize(
    ("expression", "dtypes", "want"),
    [
        (Apply(function="greater", arguments=(0, 0.5), dtype="bool"), ["float32"], lambda x: x > 0.5),
        (Apply(function="equal", arguments=(0, 3.0), dtype="bool"), ["int64"], lambda x: x == 3),
        (Apply(function="cast", arguments=(0,), dtype="bool"), ["float32"], lambda x: x != 0),
        (Apply(function="cast", arguments=(0,), dtype="int32"), ["float32"], lambda x: x.astype("int32")),
        (Apply(function="mul", arguments=(0, 1), dtype="int64"), ["int64", "int64"], lambda x, y: x * y),
        (
            Apply(function="where", arguments=(0, 1, -1.5)),
            ["bool", "float32"],
            lambda x, y: np.where(x, y, -1.5),
        ),
    ],
)
def test_types_are_those_of_each_step(expression: Apply, dtypes: list[str], want: Any) -> None:
    views = [rows(3, 7, dtype=dtype) for dtype in dtypes]
    arrays = [
        numbers(view, seed) / 4 if view.dtype == "float32" else numbers(view)
        for seed, view in enumerate(views)
    ]
    arrays = [array.astype(view.dtype) for array, view in zip(arrays, views, strict=True)]
    made = _pointwise(
        views, rows(3, 7, dtype=expression.dtype), Pointwise(operands=len(views), steps=(expression,))
    )
    for config in _widest_of_each("pointwise", made):
        (got,) = run("pointwise", made, config, arrays)
        np.testing.assert_array_equal(got, want(*arrays))


@pytest.mark.parametrize("size", [(1, 2, 2, 2), (1, 3, 5, 13), (2, 3, 17, 19), (1, 33, 4, 9), (2, 67, 6, 6)])
@pytest.mark.parametrize("back", [False, True])
def test_pictures_to_channels_last_and_back(size: tuple[int, ...], back: bool) -> None:
    one, other = rows(*size), image(*size, dtype="float16")
    x, y = (other, one) if back else (one, other)
    made = operation("Copy", [x], y)
    assert kernels.claiming(made) == ["copy", "transpose"]
    array = numbers(x)
    for name in kernels.claiming(made):
        for config in _widest_of_each(name, made)[:3]:
            (got,) = run(name, made, config, [array])
            np.testing.assert_array_equal(got, array.astype(y.dtype))


def test_a_transpose_with_an_epilogue_and_a_slice_for_its_output() -> None:
    out = View(shape=(2, 6, 3, 5), strides=(15 * 11, 1, 55, 11), offset=4)
    made = operation("Copy", [rows(2, 6, 3, 5)], out, rows(6, 1, 1))
    check(made, [numbers(made.input(0)), numbers(made.input(1), 1)])


@pytest.mark.parametrize(("of", "to"), [("float32", "bool"), ("int64", "int32"), ("bool", "float32")])
def test_copies_cast(of: str, to: str) -> None:
    x = View(shape=(5, 6), strides=(1, 5), dtype=of)
    made = operation("Copy", [x], rows(5, 6, dtype=to))
    check(made, [numbers(x)])


def test_tensors_without_elements_are_refused() -> None:
    empty = rows(0, 3)
    assert not kernels.claiming(_pointwise([empty, empty], empty, ADD_RELU))
    assert not kernels.claiming(operation("Copy", [empty], empty))


def test_dense_tensors_of_one_order_are_walked_as_one_axis() -> None:
    made = _pointwise([image(2, 8, 5, 7), image(2, 8, 5, 7)], image(2, 8, 5, 7), ADD_RELU)
    source = kernels.get("pointwise").build(made, {"vector": 4, "local": 64}).launches[0].kernel.source
    assert "%" not in source
    assert "float4" in source
