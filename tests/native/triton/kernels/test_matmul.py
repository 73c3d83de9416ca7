"""Matrix products in Triton, against numpy in float64."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from native.triton.harness import run  # type: ignore[import-not-found]

from wavefit.native.draw import numbers
from wavefit.native.operation import Operation
from wavefit.native.reference import compute
from wavefit.native.specimens import matmul, rows, small_matmul, turned
from wavefit.native.triton import kernels

SMALL = {"m": 16, "n": 16, "k": 16, "split": 1, "warps": 2, "stages": 2}
ODD = {
    "bias": matmul(rows(5, 33), rows(33, 19), bias=True),
    "rows of several axes": matmul(rows(2, 3, 40), rows(40, 9), bias=True),
    "one row": matmul(rows(1, 50), rows(50, 21)),
    "two computed": matmul(rows(3, 2, 17, 20), rows(3, 2, 20, 7), constant=False),
    "second one turned": matmul(rows(2, 17, 20), turned(rows(2, 7, 20)), constant=False),
    "first one turned": matmul(turned(rows(20, 17)), rows(20, 7)),
    "broadcast batch": msgspec.structs.replace(
        matmul(rows(3, 1, 5, 20), rows(2, 20, 7), constant=False), outputs=(rows(3, 2, 5, 7),)
    ),
}


def error(operation: Operation, config: dict, runs: int = 1) -> float:
    rng = np.random.default_rng(1)
    given = [
        numbers(operation, n, view.size, rng).reshape(view.shape) for n, view in enumerate(operation.inputs)
    ]
    (got,) = run("matmul", operation, config, given, runs)
    want = compute(operation, given)
    return float(np.linalg.norm(got.astype(np.float64) - want) / np.linalg.norm(want))


@pytest.mark.parametrize("name", ODD)
def test_odd_sizes(name):
    assert kernels.get("matmul").claims(ODD[name])
    assert error(ODD[name], SMALL) <= 1e-6


@pytest.mark.parametrize("name", ["bias", "two computed"])
def test_the_last_program_adds_up_what_several_computed(name):
    assert error(ODD[name], {**SMALL, "split": 2}, runs=2) <= 1e-6


def test_integers_with_a_zero_point_are_summed_exactly():
    assert error(small_matmul(rows(5, 50, dtype="uint8"), 19, zero_point=7), {**SMALL, "k": 32}) == 0


def test_half():
    assert (
        error(matmul(rows(20, 40, dtype="float16"), rows(40, 24, dtype="float16"), bias=True), SMALL) <= 2e-3
    )
