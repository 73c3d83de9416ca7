"""Variants that the small odd operations lack, through PyTorch; wanted values by numpy's loops."""

from __future__ import annotations

import numpy as np
import pytest
from native.triton.harness import run  # type: ignore[import-not-found]

from wavefit.native.specimens import rows, several

CALLS = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


@pytest.mark.parametrize("kind", CALLS)
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_scatter_joins_repeated_rows(kind, dtype):
    places, out = rows(7, 2, dtype="int64"), rows(4, 3, 5, dtype=dtype)
    operation = several("ScatterND", (out, places, rows(7, 5, dtype=dtype)), out, reduction=kind)
    rng = np.random.default_rng(4)
    x, updates = (rng.integers(-5, 6, shape).astype(dtype) for shape in ((4, 3, 5), (7, 5)))
    index = np.array([[0, 0], [3, 2], [0, 0], [-1, -1], [1, 2], [2, 0], [0, 0]])
    want = x.copy()
    for (i, j), update in zip(index, updates, strict=True):
        want[i, j] = CALLS[kind](want[i, j], update)
    (got,) = run("library", operation, {"call": "ScatterND"}, [x, index, updates])
    np.testing.assert_array_equal(got, want)


def test_gather_in_a_batch():
    operation = several(
        "GatherND", (rows(4, 5, 3), rows(4, 7, 1, dtype="int64")), rows(4, 7, 3), batch_dims=1
    )
    rng = np.random.default_rng(6)
    x, index = rng.normal(size=(4, 5, 3)).astype(np.float32), rng.integers(-5, 5, (4, 7, 1))
    (got,) = run("library", operation, {"call": "GatherND"}, [x, index])
    np.testing.assert_array_equal(got, np.stack([x[n][index[n, :, 0]] for n in range(4)]))
