"""Attention as one kernel against its definition in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native.interpret import compute
from native.opencl.harness import run  # type: ignore[import-not-found]

from wavefit.native.operation import Operation, View, row_major
from wavefit.native.pointwise import Apply, Pointwise

pytest.importorskip("pyopencl")

RELU = Pointwise(operands=1, steps=(Apply(function="relu", arguments=(0,)),))


def _view(shape: tuple[int, ...], dtype: str = "float32") -> View:
    return View(shape=shape, strides=row_major(shape), dtype=dtype)


def _heads(n: int, heads: int, length: int, size: int) -> View:
    """(batch, heads, length, size), as it lies in (batch, length, heads * size)."""
    return View(shape=(n, heads, length, size), strides=(length * heads * size, size, heads * size, 1))


def _check(
    views: tuple[View, ...],
    out: View,
    queries: int = 16,
    rows: int = 4,
    masked: Any = None,
    epilogue: Any = None,
) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(view.shape).astype(view.dtype) for view in views]
    if masked is not None:
        arrays[3] = masked
    operation = Operation(
        op="Attention",
        inputs=views,
        outputs=(out,),
        own=len(views),
        constant=(False,) * len(views),
        attributes={"scale": 0.3},
        epilogue=epilogue,
    )
    (want,) = compute(operation, [array.astype(np.float64) for array in arrays])
    (got,) = run("attention", operation, {"queries": queries, "rows": rows}, arrays)
    tolerance = 2e-3 if out.dtype == "float16" else 3e-6
    assert np.linalg.norm(got - want) <= tolerance * np.linalg.norm(want)


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (15, 17), (33, 16), (16, 50)])
def test_lengths_that_fit_no_tile(queries: int, keys: int) -> None:
    q, k, v = _view((2, queries, 32)), _view((2, keys, 32)), _view((2, keys, 32))
    _check((q, k, v), _view((2, queries, 32)))


@pytest.mark.parametrize(("head", "values"), [(1, 3), (7, 20), (64, 65), (80, 128)])
def test_heads_of_any_size(head: int, values: int) -> None:
    _check((_view((1, 9, head)), _view((1, 11, head)), _view((1, 11, values))), _view((1, 9, values)))


@pytest.mark.parametrize("queries", [16, 32, 64])
def test_heads_as_views_and_an_epilogue(queries: int) -> None:
    q = _heads(2, 3, 37, 16)
    _check((q, q, q), _heads(2, 3, 37, 16), queries, 4, epilogue=RELU)
    _check((q, q, q), _heads(2, 3, 37, 16), queries, 2, epilogue=RELU)


def test_masks_broadcast_and_a_row_without_keys_gives_zero() -> None:
    q, k = _heads(2, 2, 9, 8), _heads(2, 2, 21, 8)
    mask = np.zeros((2, 1, 1, 21), np.float32)
    mask[0, ..., 5:] = -np.inf
    _check((q, k, k, _view(mask.shape)), _heads(2, 2, 9, 8), masked=mask)
    rows = np.zeros((9, 21), np.float32)
    rows[4] = -np.inf
    _check((q, k, k, _view(rows.shape)), _heads(2, 2, 9, 8), masked=rows)


def test_transposed_keys_and_half_storage() -> None:
    k = View(shape=(2, 13, 8), strides=(104, 1, 13), dtype="float16")
    q, v = _view((2, 10, 8), "float16"), _view((2, 13, 8), "float16")
    _check((q, k, v), _view((2, 10, 8), "float16"))
