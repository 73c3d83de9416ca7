"""Attention in Triton, against numpy in float64."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from native.triton.harness import run  # type: ignore[import-not-found]

from wavefit.native.operation import Operation, View
from wavefit.native.reference import compute
from wavefit.native.specimens import attention, rows

SMALL = {"queries": 16, "keys": 16, "warps": 2, "stages": 2}


def error(operation: Operation, given: list) -> float:
    (got,) = run("attention", operation, SMALL, given)
    want = compute(operation, given)
    return float(np.linalg.norm(got.astype(np.float64) - want) / np.linalg.norm(want))


def drawn(view: View, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(view.shape).astype(view.dtype)


@pytest.mark.parametrize("sizes", [(3, 17, 33, 20), (1, 1, 5, 64), (2, 32, 32, 16)])
def test_odd_sizes(sizes):
    operation = attention(*sizes)
    given = [drawn(operation.input(n), n) for n in range(3)]
    assert error(operation, [*given, None]) <= 1e-6


def test_a_mask_that_broadcasts_over_heads_and_queries():
    plain = attention(2, 7, 19, 16)
    operation = msgspec.structs.replace(plain, inputs=(*plain.inputs[:3], rows(1, 1, 19)))
    mask = np.where(np.arange(19) < 12, 0.0, -1e30).astype(np.float32).reshape(1, 1, 19)
    given = [drawn(operation.input(n), n) for n in range(3)]
    assert error(operation, [*given, mask]) <= 1e-6


def test_half():
    plain = attention(2, 20, 20, 32)
    half = tuple(
        None if view is None else msgspec.structs.replace(view, dtype="float16") for view in plain.inputs
    )
    operation = msgspec.structs.replace(plain, inputs=half, outputs=(half[0],))
    given = [drawn(operation.input(n), n) for n in range(3)]
    assert error(operation, [*given, None]) <= 2e-3
