"""What finds, adds up, gathers and scatters by index, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native.opencl.checks import (  # type: ignore[import-not-found]
    check,
    image,
    numbers,
    operation,
    rows,
    spread,
)
from native.opencl.harness import run  # type: ignore[import-not-found]

from wavefit.native.opencl import kernels
from wavefit.native.operation import View

pytest.importorskip("pyopencl")


def _index(*shape: int, dtype: str = "int64") -> View:
    return rows(*shape, dtype=dtype)


# ---- ArgMax, ArgMin -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize(
    ("x", "axis", "out"),
    [
        (rows(1), 0, (1,)),
        (rows(67, 5), 0, (5,)),
        (rows(3, 65, 7), 1, (3, 1, 7)),
        (image(2, 21, 5, 3), 1, (2, 1, 5, 3)),
        (spread(5, 13, 3), 2, (5, 13)),
        (rows(4, 33, dtype="float16"), -1, (4, 1)),
        (rows(4, 33, dtype="uint8"), 1, (4,)),
    ],
)
def test_arg(op: str, x: View, axis: int, out: tuple[int, ...]) -> None:
    last = len(out) == len(x.shape)
    made = operation(op, [x], _index(*out), axis=axis, select_last_index=last)
    check(made, [numbers(x).round()], few=1)  # rounded: equal elements are many


def test_the_largest_of_what_is_below_all_floats() -> None:
    x = np.full((3, 5), -np.inf, np.float32)
    x[1, 3] = -3e38
    for last in (False, True):
        check(operation("ArgMax", [rows(3, 5)], _index(3), axis=1, select_last_index=last), [x], few=1)


# ---- CumSum ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "axis", "exclusive", "reverse"),
    [
        (rows(1), 0, False, False),
        (rows(3, 131), 1, True, True),
        (image(1, 19, 5, 3), 1, False, True),
        (spread(5, 63, 2), 1, True, False),
    ],
)
def test_cumsum(x: View, axis: int, exclusive: bool, reverse: bool) -> None:
    made = operation("CumSum", [x], rows(*x.shape), axis=axis, exclusive=exclusive, reverse=reverse)
    check(made, [numbers(x)])


@pytest.mark.parametrize(("across", "down"), [(1, 256), (4, 64), (64, 4), (256, 1)])
@pytest.mark.parametrize("length", [63, 257])
def test_every_shape_of_a_scan_with_an_epilogue(across: int, down: int, length: int) -> None:
    x, more = rows(3, length), rows(3, 1)
    made = operation("CumSum", [x], spread(3, length), more, axis=1, exclusive=True, reverse=False)
    arrays = [numbers(x), numbers(more, 1)]
    sums = np.cumsum(arrays[0].astype(np.float64), 1) - arrays[0]
    (got,) = run("cumsum", made, {"across": across, "down": down}, arrays)
    np.testing.assert_allclose(got, 2 * (sums + arrays[1]), rtol=1e-5, atol=2e-5)


def test_sums_of_integers_keep_every_digit_and_halves_are_summed_as_floats() -> None:
    x = np.array([[2**52, 1, -7], [5, -(2**41), 3]], np.int64)
    view = _index(2, 3)
    check(operation("CumSum", [view], view, axis=1, exclusive=False, reverse=False), [x])
    half = rows(1, 3000, dtype="float16")  # whose ones would stay 2048 if they were added as halves
    made = operation("CumSum", [half], rows(1, 3000), axis=1, exclusive=False, reverse=False)
    check(made, [np.ones((1, 3000), np.float16)], tolerance=0)


def test_sums_of_bytes_are_refused() -> None:
    x = rows(3, dtype="uint8")
    assert not kernels.claiming(operation("CumSum", [x], x, axis=0, exclusive=False, reverse=False))


# ---- GatherND -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "indices", "batch"),
    [
        ((5, 7), (2,), 0),  # one element
        ((5, 7), (11, 2), 0),
        ((5, 7, 12), (3, 2, 1), 0),
        ((2, 5, 7), (2, 3, 1), 1),
        ((2, 3, 5, 7), (2, 3, 4, 2), 2),
        ((1,), (1, 1), 0),
    ],
)
def test_gather_nd(data: tuple[int, ...], indices: tuple[int, ...], batch: int) -> None:
    picked = _picked(data[batch:], indices)
    out = (*indices[:-1], *data[batch + indices[-1] :])
    for view in (rows(*data), spread(*data, dtype="float16")):
        made = operation("GatherND", [view, _index(*indices)], rows(*out, dtype=view.dtype), batch_dims=batch)
        check(made, [numbers(view), picked], few=3)


def test_gather_nd_with_an_epilogue() -> None:
    x, more = rows(5, 7, 13), rows(13)
    made = operation("GatherND", [x, _index(3, 2)], spread(3, 13), more, batch_dims=0)
    check(made, [numbers(x), _picked((5, 7, 13), (3, 2)), numbers(more, 1)], few=3)


def test_places_outside_are_held_to_the_data() -> None:
    x = numbers(rows(5, 3))
    made = operation("GatherND", [rows(5, 3), _index(2, 1)], rows(2, 3), batch_dims=0)
    (got,) = run("gather_nd", made, {"vector": 1, "local": 64}, [x, np.array([[99], [-99]])])
    np.testing.assert_array_equal(got, x[[4, 0]])


# ---- ScatterND ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "indices", "reduction"),
    [
        ((8,), (5, 1), "none"),
        ((5, 7), (11, 2), "none"),
        ((5, 7, 3), (2, 3, 1), "none"),
        ((3, 2), (2,), "none"),
        ((1,), (1, 1), "add"),
        ((2, 3), (65, 2), "add"),
        ((5, 7, 3), (2, 3, 1), "mul"),
        ((2, 3), (11, 2), "min"),
        ((8,), (13, 1), "max"),
    ],
)
def test_scatter_nd(data: tuple[int, ...], indices: tuple[int, ...], reduction: str) -> None:
    """Places that several updates name are among them: the last one stands, as in numpy's loop."""
    x, updates = rows(*data), spread(*indices[:-1], *data[indices[-1] :])
    made = operation("ScatterND", [x, _index(*indices), updates], spread(*data), reduction=reduction)
    check(made, [numbers(x), _picked(data, indices), numbers(updates, 1)], few=1)


def test_scatter_nd_with_an_epilogue_in_half_and_in_integers() -> None:
    picked = _picked((6, 5), (4, 1))
    for dtype in ("float16", "int64"):
        x, updates = rows(6, 5, dtype=dtype), rows(4, 5, dtype=dtype)
        more = rows(5) if dtype == "float16" else None
        made = operation("ScatterND", [x, _index(4, 1, dtype="int32"), updates], x, more, reduction="add")
        arrays = [numbers(x), picked.astype(np.int32), numbers(updates, 1)]
        check(made, [*arrays, *([] if more is None else [numbers(more, 2)])], few=1)


def test_many_joined_updates_are_refused() -> None:
    x, updates = rows(9), rows(10_000)
    for reduction, taken in (("none", True), ("add", False)):
        made = operation("ScatterND", [x, _index(10_000, 1), updates], x, reduction=reduction)
        assert bool(kernels.claiming(made)) is taken


def _picked(sizes: tuple[int, ...], shape: tuple[int, ...]) -> Any:
    """Places, some of them counted from the end."""
    rng = np.random.default_rng(7)
    return np.stack([rng.integers(-size, size, shape[:-1]) for size in sizes[: shape[-1]]], -1)
