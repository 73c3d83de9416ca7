"""Elementwise expressions and copies in Triton, against numpy in float64."""

from __future__ import annotations

import numpy as np
from native.triton.harness import run

from wavefit.native.operation import Operation
from wavefit.native.reference import compute
from wavefit.native.specimens import GELU, rows


def test_gelu_of_an_odd_number_of_elements():
    operation = Operation(op="Pointwise", inputs=(rows(7, 45),), outputs=(rows(7, 45),), own=0, epilogue=GELU)
    x = np.random.default_rng(0).standard_normal((7, 45), np.float32)
    (got,) = run("pointwise", operation, {"block": 256, "warps": 2}, [x])
    want = compute(operation, [x])
    assert np.linalg.norm(got - want) <= 1e-6 * np.linalg.norm(want)
