"""Matrix products against numpy in float64, at sizes that fit no tile."""

from __future__ import annotations

import numpy as np
import pytest
from native.opencl.harness import run  # type: ignore[import-not-found]

from wavefit.native.limits import of_opencl
from wavefit.native.opencl import kernels
from wavefit.native.operation import Config, Limits, Operation, View, row_major
from wavefit.native.pointwise import Apply, Pointwise
from wavefit.native.specimens import matmul, rows

cl = pytest.importorskip("pyopencl")

LIMITS = Limits(name="a GPU", wave=32, work_group=256, local_bytes=49152, registers=1024)
RELU = Apply(function="relu", arguments=(2,))
BIAS_RELU = Pointwise(operands=2, steps=(Apply(function="add", arguments=(0, 1)), RELU))


def _view(shape: tuple[int, ...], transposed: bool = False, dtype: str = "float32") -> View:
    if not transposed:
        return View(shape=shape, strides=row_major(shape), dtype=dtype)
    *batch, rows, columns = shape
    strides = list(row_major((*batch, columns, rows)))
    strides[-2:] = strides[:-3:-1]
    return View(shape=shape, strides=tuple(strides), dtype=dtype)


def _operation(a: View, b: View, out: View, *more: View, epilogue: Pointwise | None = None) -> Operation:
    return Operation(
        op="MatMul", inputs=(a, b, *more), outputs=(out,), own=2, epilogue=epilogue, constant=(False, True)
    )


def _config(m: int, n: int, k: int, item_m: int, item_n: int, split: int = 1) -> Config:
    return {
        "tile_m": m,
        "tile_n": n,
        "tile_k": k,
        "item_m": item_m,
        "item_n": item_n,
        "split": split,
        "unroll": 4,
    }


def _check(operation: Operation, config: Config, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    arrays = [
        rng.standard_normal(view.shape).astype(view.dtype) for view in operation.inputs if view is not None
    ]
    (got,) = run("matmul", operation, config, arrays)
    want = arrays[0].astype(np.float64) @ arrays[1].astype(np.float64)
    if operation.epilogue is not None:
        want = np.maximum(want + arrays[2], 0)
    tolerance = 2e-3 if operation.output.dtype == "float16" else 2e-6
    assert np.linalg.norm(got - want) <= tolerance * np.linalg.norm(want)


@pytest.mark.parametrize("sizes", [(1, 1, 1), (31, 33, 17), (64, 64, 16), (65, 127, 48), (3, 1000, 67)])
@pytest.mark.parametrize("split", [1, 3])
def test_sizes_that_are_no_multiple_of_a_tile(sizes: tuple[int, int, int], split: int) -> None:
    m, n, k = sizes
    operation = _operation(_view((m, k)), _view((k, n)), _view((m, n)))
    _check(operation, _config(32, 32, 16, 2, 4, split))


@pytest.mark.parametrize("a_turned", [False, True])
@pytest.mark.parametrize("b_turned", [False, True])
def test_transposed_factors(a_turned: bool, b_turned: bool) -> None:
    for m, n, k in ((36, 44, 20), (13, 7, 5)):
        _check(
            _operation(_view((m, k), a_turned), _view((k, n), b_turned), _view((m, n))),
            _config(32, 32, 16, 2, 4),
        )


def test_every_tile_at_a_size_beyond_it() -> None:
    product = _operation(_view((130, 36)), _view((36, 133)), _view((130, 133)))
    shapes = {}
    for config in kernels.get("matmul").configurations(product, LIMITS):
        shapes.setdefault((config["tile_m"], config["tile_n"], config["item_m"], config["item_n"]), config)
    assert len(shapes) > 5
    for config in list(shapes.values())[:8]:
        _check(product, config)


def test_batches_broadcast_and_an_epilogue_follows() -> None:
    a, b, out = _view((2, 3, 9, 20)), _view((3, 20, 11)), _view((2, 3, 9, 11))
    bias = View(shape=(11,), strides=(1,))
    _check(_operation(a, b, out, bias, epilogue=BIAS_RELU), _config(32, 32, 16, 2, 4))
    _check(
        _operation(a, _view((20, 12)), _view((2, 3, 9, 12)), _view((12,)), epilogue=BIAS_RELU),
        _config(32, 32, 16, 2, 4, 2),
    )


def test_heads_of_attention_as_they_lie() -> None:
    """(batch, heads, length, size) as a view of (batch, length, heads * size), and its result written back so."""
    n, heads, length, size = 2, 3, 10, 8
    strides = (length * heads * size, size, heads * size, 1)
    queries = View(shape=(n, heads, length, size), strides=strides)
    keys = View(shape=(n, heads, size, length), strides=(strides[0], size, 1, heads * size))
    _check(_operation(queries, keys, _view((n, heads, length, length))), _config(32, 32, 16, 2, 4))
    scores, values = _view((n, heads, length, length)), View(shape=(n, heads, length, size), strides=strides)
    _check(
        _operation(scores, values, View(shape=(n, heads, length, size), strides=strides)),
        _config(32, 32, 16, 2, 4),
    )


def test_half_storage() -> None:
    a, b, out = (_view(shape, dtype="float16") for shape in ((33, 40), (40, 36), (33, 36)))
    _check(_operation(a, b, out), _config(32, 32, 16, 2, 4))
    _check(_operation(a, b, out), _config(32, 32, 16, 2, 4, 2))


@pytest.mark.parametrize("depth", [1, 2, 3, 5, 7, 9, 15])
def test_short_depths_as_they_are_computed_here(depth: int) -> None:
    """PoCL 3.0 made nonsense of a depth of 7 in a tile of 64 by 32 by 16 whose steps were all written out."""
    device = next(device for platform in cl.get_platforms() for device in platform.get_devices())
    operation = matmul(rows(64, depth), rows(depth, 8))
    config = next(iter(kernels.get("matmul").configurations(operation, of_opencl(device))))
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((64, depth), (depth, 8)))
    (got,) = run("matmul", operation, config, [a, b])
    want = a.astype(np.float64) @ b
    assert np.linalg.norm(got - want) <= 1e-6 * np.linalg.norm(want)
