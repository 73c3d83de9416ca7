"""Tensors in bfloat16: templates read and store them; the reference is float64 of the same numbers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from msgspec.structs import replace
from native.triton.harness import run  # type: ignore[import-not-found]

from wavefit.native.limits import of_gfx
from wavefit.native.operation import Operation
from wavefit.native.reference import compute
from wavefit.native.specimens import copy, gather, image, layer_norm, odd, pool, reduce, rows, softmax
from wavefit.native.triton import kernels

BRAIN = "bfloat16"
CASES = {
    "softmax": softmax(rows(7, 197, dtype=BRAIN), -1),
    "layer norm": layer_norm(rows(5, 131, dtype=BRAIN)),
    "max pool": pool("MaxPool", image(1, 19, 9, 7, dtype=BRAIN), 3, 2, 1),
    "mean": reduce("mean", rows(13, 101, dtype=BRAIN), 1),
    "turned": copy(rows(2, 33, 9, 7, dtype="float32"), image(2, 33, 9, 7, dtype=BRAIN)),
    "words": gather(rows(31, 37, dtype=BRAIN), rows(3, 5, dtype="int64"), 0),
}
CUT = 2**-7  # Triton's interpreter cuts a float32 off to bfloat16; on GPUs it is rounded to the nearest
LIBRARY = ("pad", "running sum", "lrn", "linear")  # through PyTorch


def brain(operation: Operation) -> Operation:
    """The operation with every tensor in bfloat16."""
    views = [view and replace(view, dtype=BRAIN) for view in operation.inputs]
    return replace(
        operation, inputs=tuple(views), outputs=tuple(replace(v, dtype=BRAIN) for v in operation.outputs)
    )


ALL = {**CASES, **{name: brain(odd()[name]) for name in LIBRARY}}


@pytest.mark.parametrize(
    ("name", "template"), [(name, template) for name in ALL for template in kernels.claiming(ALL[name])]
)
def test_right(name, template):
    operation = ALL[name]
    rng = np.random.default_rng(3)
    given = [
        rng.integers(0, 31, view.shape)
        if view.dtype == "int64"
        else rng.normal(size=view.shape).astype(ml_dtypes.bfloat16 if view.dtype == BRAIN else view.dtype)
        for view in operation.inputs
    ]
    exact = [each if each.dtype == np.int64 else each.astype(np.float64) for each in given]
    config = next(iter(kernels.get(template).configurations(operation, of_gfx("gfx942"))))
    (got,) = run(template, operation, config, given)
    want = compute(operation, exact)
    assert got.dtype == ml_dtypes.bfloat16
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=CUT, atol=CUT * np.abs(want).max() / 16)


def test_each_has_a_template():
    assert all(kernels.claiming(operation) for operation in ALL.values())
