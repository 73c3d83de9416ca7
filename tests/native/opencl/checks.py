"""An operation held to its definition in float64, in every way a template computes it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np
from native.interpret import compute  # type: ignore[import-not-found]
from native.opencl.harness import run  # type: ignore[import-not-found]

from wavefit.native.opencl import kernels
from wavefit.native.operation import Limits, Operation, View, channels_last, row_major
from wavefit.native.pointwise import Apply, Pointwise

LIMITS = Limits(name="a GPU", wave=32, work_group=256, local_bytes=32768)
ADD_TWICE = Pointwise(
    operands=2, steps=(Apply(function="add", arguments=(0, 1)), Apply(function="mul", arguments=(2, 2.0)))
)


def rows(*shape: int, dtype: str = "float32") -> View:
    return View(shape=shape, strides=row_major(shape), dtype=dtype)


def image(*shape: int, dtype: str = "float32") -> View:
    return View(shape=shape, strides=channels_last(shape), dtype=dtype)


def spread(*shape: int, dtype: str = "float32") -> View:
    """The axes in reversed order in memory, with gaps between the elements and before the first."""
    steps = row_major(shape[::-1])[::-1]
    return View(shape=shape, strides=tuple(2 * step for step in steps), offset=5, dtype=dtype)


def operation(
    op: str, own: Sequence[View | None], out: View, more: View | None = None, **attributes: Any
) -> Operation:
    """``more`` is added to the result, and the sum doubled: an epilogue."""
    inputs = (*own, *([] if more is None else [more]))
    return Operation(
        op=op,
        inputs=inputs,
        outputs=(out,),
        own=len(own),
        attributes=attributes,
        constant=(False,) * len(inputs),
        epilogue=None if more is None else ADD_TWICE,
    )


def check(made: Operation, arrays: Sequence[Any], few: int = 2, tolerance: float = 2e-6) -> None:
    """Every template that claims it, in its first configurations; integers must be equal."""
    (want,) = compute(made, arrays)
    names = kernels.claiming(made)
    assert names
    tolerance = 1e-3 if made.output.dtype == "float16" else tolerance
    for name in names:
        for config in islice(kernels.get(name).configurations(made, LIMITS), few):
            (got,) = run(name, made, config, arrays)
            if got.dtype.kind != "f":
                np.testing.assert_array_equal(got, want, str(config))
            else:
                off = np.linalg.norm(got.astype(np.float64) - want)
                assert off <= tolerance * np.linalg.norm(want), (name, config)


def numbers(view: View, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if np.dtype(view.dtype).kind == "f":
        return rng.standard_normal(view.shape).astype(view.dtype)
    return rng.integers(0 if view.dtype.startswith("u") else -9, 9, view.shape).astype(view.dtype)
