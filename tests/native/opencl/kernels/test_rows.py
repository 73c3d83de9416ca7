"""Reductions, softmax, normalisations and gathers against numpy in float64."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest
from native.opencl.harness import run  # type: ignore[import-not-found]

from wavefit.native.opencl import kernels
from wavefit.native.operation import Limits, Operation, View, channels_last, row_major
from wavefit.native.pointwise import Apply, Pointwise

pytest.importorskip("pyopencl")

LIMITS = Limits(name="a GPU", wave=32, work_group=256, local_bytes=32768)
DOUBLE = Pointwise(
    operands=2, steps=(Apply(function="add", arguments=(0, 1)), Apply(function="mul", arguments=(2, 2.0)))
)


def _view(shape: tuple[int, ...], dtype: str = "float32", image: bool = False) -> View:
    return View(shape=shape, strides=channels_last(shape) if image else row_major(shape), dtype=dtype)


def _run(
    operation: Operation, arrays: list[Any], want: np.ndarray, tolerance: float = 2e-6, few: int = 3
) -> None:
    template = kernels.get(kernels.claiming(operation)[0])
    name = kernels.claiming(operation)[0]
    tried = 0
    for config in islice(template.configurations(operation, LIMITS), few):
        (got,) = run(name, operation, config, arrays)
        assert got.shape == want.shape
        assert np.linalg.norm(got - want) <= tolerance * max(np.linalg.norm(want), 1e-30), config
        tried += 1
    assert tried


_KINDS = {
    "sum": np.sum,
    "mean": np.mean,
    "max": np.max,
    "min": np.min,
    "prod": np.prod,
    "l1": lambda x, axis, keepdims: np.abs(x).sum(axis=axis, keepdims=keepdims),
    "l2": lambda x, axis, keepdims: np.sqrt((x * x).sum(axis=axis, keepdims=keepdims)),
    "sumsquare": lambda x, axis, keepdims: (x * x).sum(axis=axis, keepdims=keepdims),
    "logsum": lambda x, axis, keepdims: np.log(x.sum(axis=axis, keepdims=keepdims)),
    "logsumexp": lambda x, axis, keepdims: np.log(np.exp(x).sum(axis=axis, keepdims=keepdims)),
}


@pytest.mark.parametrize("kind", list(_KINDS))
def test_reductions(kind: str) -> None:
    x = np.random.default_rng(0).uniform(0.5, 1.5, (3, 5, 7)).astype(np.float32)
    for axes, keep in (((2,), False), ((0, 2), True), ((0, 1, 2), False)):
        want = np.asarray(_KINDS[kind](x.astype(np.float64), axis=axes, keepdims=keep))
        operation = Operation(
            op="Reduce",
            inputs=(_view(x.shape),),
            outputs=(_view(want.shape),),
            own=1,
            attributes={"kind": kind, "axes": axes},
            constant=(False,),
        )
        _run(operation, [x], want, few=2)


def test_global_pooling_of_a_channels_last_image_with_an_epilogue() -> None:
    rng = np.random.default_rng(1)
    x, more = (
        rng.standard_normal((2, 37, 5, 7)).astype(np.float32),
        rng.standard_normal((37, 1, 1)).astype(np.float32),
    )
    want = 2 * (x.astype(np.float64).mean((2, 3), keepdims=True) + more)
    operation = Operation(
        op="Reduce",
        inputs=(_view(x.shape, image=True), _view(more.shape)),
        outputs=(_view(want.shape, image=True),),
        own=1,
        attributes={"kind": "mean", "axes": (2, 3)},
        constant=(False, True),
        epilogue=DOUBLE,
    )
    _run(operation, [x, more], want, few=5)


def test_integers_keep_every_digit() -> None:
    x = np.array([[2**40, 1, -7], [5, -(2**41), 3]], np.int64)
    operation = Operation(
        op="Reduce",
        inputs=(_view(x.shape, "int64"),),
        outputs=(_view((2,), "int64"),),
        own=1,
        attributes={"kind": "sum", "axes": (1,)},
        constant=(False,),
    )
    _run(operation, [x], x.sum(1), tolerance=0)


@pytest.mark.parametrize(
    ("shape", "axis"), [((3, 1), 1), ((2, 5, 129), 2), ((2, 7, 3, 4), 1), ((1, 1000), -1)]
)
def test_softmax(shape: tuple[int, ...], axis: int) -> None:
    x = (np.random.default_rng(2).standard_normal(shape) * 30).astype(np.float32)
    e = np.exp(x.astype(np.float64) - x.max(axis, keepdims=True))
    want = e / e.sum(axis, keepdims=True)
    for log in (False, True):
        operation = Operation(
            op="Softmax",
            inputs=(_view(shape),),
            outputs=(_view(shape),),
            own=1,
            attributes={"axis": axis, "log": log},
            constant=(False,),
        )
        _run(operation, [x], np.log(want) if log else want, few=2)


@pytest.mark.parametrize("shape", [(2, 3, 96), (3, 7, 1), (1, 65536), (5, 130)])
def test_layer_normalization_with_a_large_mean(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(3)
    x = (rng.standard_normal(shape) + 100).astype(np.float32)
    scale, bias = (rng.standard_normal(shape[-1:]).astype(np.float32) for _ in range(2))
    exact = x.astype(np.float64)
    spread = exact.var(-1, keepdims=True)
    want = (exact - exact.mean(-1, keepdims=True)) / np.sqrt(spread + 1e-5) * scale + bias
    operation = Operation(
        op="LayerNormalization",
        inputs=(_view(shape), _view(scale.shape), _view(bias.shape)),
        outputs=(_view(shape),),
        own=3,
        attributes={"axis": -1, "epsilon": 1e-5},
        constant=(False, True, True),
    )
    _run(operation, [x, scale, bias], want, tolerance=1e-5, few=2)


def test_instance_normalization() -> None:
    rng = np.random.default_rng(4)
    x = rng.standard_normal((2, 6, 5, 7)).astype(np.float32)
    scale, bias = (rng.standard_normal(6).astype(np.float32) for _ in range(2))
    exact = x.astype(np.float64)
    normal = (exact - exact.mean((2, 3), keepdims=True)) / np.sqrt(exact.var((2, 3), keepdims=True) + 1e-5)
    want = normal * scale[:, None, None] + bias[:, None, None]
    operation = Operation(
        op="InstanceNormalization",
        inputs=(_view(x.shape, image=True), _view((6,)), _view((6,))),
        outputs=(_view(x.shape, image=True),),
        own=3,
        attributes={"epsilon": 1e-5},
        constant=(False, True, True),
    )
    _run(operation, [x, scale, bias], want)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("picked", [(), (3,), (2, 5)])
def test_gather_with_indices_from_the_end(axis: int, picked: tuple[int, ...]) -> None:
    rng = np.random.default_rng(5)
    x = rng.standard_normal((5, 6, 12)).astype(np.float32)
    indices = rng.integers(-x.shape[axis], x.shape[axis], picked)
    want = np.take(x, indices, axis)
    operation = Operation(
        op="Gather",
        inputs=(_view(x.shape), _view(picked, "int64")),
        outputs=(_view(want.shape),),
        own=2,
        attributes={"axis": axis},
        constant=(True, False),
    )
    _run(operation, [x, np.asarray(indices, np.int64)], want, tolerance=0, few=2)


def test_gather_elements() -> None:
    rng = np.random.default_rng(6)
    x, indices = rng.standard_normal((4, 6)).astype(np.float32), rng.integers(-4, 4, (3, 5))
    want = np.take_along_axis(x[:, :5], indices % 4, 0)
    operation = Operation(
        op="GatherElements",
        inputs=(_view(x.shape), _view((3, 5), "int64")),
        outputs=(_view((3, 5)),),
        own=2,
        attributes={"axis": 0},
        constant=(False, False),
    )
    _run(operation, [x, indices], want, tolerance=0, few=1)
