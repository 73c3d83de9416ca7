"""Scalar functions in Triton, in the interpreter, against numpy's in float64."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from native.triton.harness import run  # type: ignore[import-not-found]

from wavefit.native.opencl.functions import FUNCTIONS as OPENCL
from wavefit.native.pointwise import Apply, Pointwise
from wavefit.native.specimens import pointwise, rows
from wavefit.native.triton.functions import FUNCTIONS

TOLERANCE = 2e-6  # of the value, relative
FINITE = np.concatenate(
    [sign * 10.0 ** np.linspace(-6, 1.9, 120) for sign in (1, -1)] + [np.array([0.0, 0.5, -0.5, 1.0, -1.0])]
)
SPECIAL = np.array([np.inf, -np.inf, np.nan])
ALL = np.concatenate([FINITE, SPECIAL]).astype(np.float32)
UNIT = np.concatenate([np.linspace(-1, 1, 201), 10.0 ** np.linspace(-7, -1, 20)]).astype(np.float32)
UNARY = {
    "exp": np.exp,
    "sqrt": np.sqrt,
    "log": np.log,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "tanh": np.tanh,
    "sign": np.sign,
    "round": np.rint,
    "softplus": lambda x: np.logaddexp(x, 0.0),
    "erf": np.vectorize(math.erf, otypes=[np.float64]),
}
RANGES = {"asin": UNIT, "acos": UNIT, "atanh": UNIT}


def computed(function: str, *arrays: np.ndarray, literal: float | None = None) -> np.ndarray:
    dtype = arrays[0].dtype.name
    arguments = (*range(len(arrays)), *([] if literal is None else [literal]))
    step = Apply(function=function, arguments=arguments, dtype=dtype)
    views = [rows(each.size, dtype=dtype) for each in arrays]
    operation = pointwise(Pointwise(operands=len(arrays), steps=(step,)), views[0], *views)
    (got,) = run("pointwise", operation, {"block": 256, "warps": 1}, arrays)
    return got


def close(got: np.ndarray, want: np.ndarray) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.testing.assert_allclose(got, want.astype(np.float32), rtol=TOLERANCE, atol=1e-37)


def exact(function, *arrays):
    with np.errstate(all="ignore"):
        return function(*(each.astype(np.float64) for each in arrays))


def test_every_function_of_the_opencl_engine_is_there():
    assert set(OPENCL) <= set(FUNCTIONS)


@pytest.mark.parametrize("name", UNARY)
def test_of_one_argument(name):
    x = RANGES.get(name, ALL)
    close(computed(name, x), exact(UNARY[name], x))


def test_elu_near_zero():
    close(computed("elu", ALL, literal=1.0), exact(lambda x: np.where(x < 0, np.expm1(x), x), ALL))


def test_pow_of_any_sign():
    bases = np.array([-3, -2, -1, 0, 0.3, 1, 1.37, 2, 7.5, np.inf, np.nan], np.float32)
    powers = np.array([-7, -2, -1.5, -1, 0, 0.5, 1, 2, 3, 19.3, np.inf, np.nan], np.float32)
    x, y = (each.ravel() for each in np.meshgrid(bases, powers))
    close(computed("pow", x, y), exact(np.power, x, y))


@pytest.mark.parametrize("power", [2.5, -1.0, 4.0])
def test_pow_of_a_known_exponent(power):
    x = np.linspace(-9, 9, 97, dtype=np.float32)
    close(computed("pow", x, literal=power), exact(lambda b: np.power(b, power), x))


def test_fmod_has_the_dividends_sign():
    x, y = np.random.default_rng(1).normal(0, 100, (2, 500)).astype(np.float32)
    x[:3], y[:3] = (5, np.inf, 6), (np.inf, 2, -4)
    close(computed("fmod", x, y), exact(np.fmod, x, y))


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("mod", np.mod),
        ("rem", np.fmod),
        ("div", lambda a, b: (np.abs(a) // np.abs(b)) * np.sign(a) * np.sign(b)),
    ],
)
def test_whole_numbers(name, function, dtype):
    rng = np.random.default_rng(2)
    most = min(np.iinfo(dtype).max, 2**31 - 1)
    a = rng.integers(-most, most, 300).astype(dtype)
    b = rng.integers(1, most, 300).astype(dtype) * rng.choice([1, -1], 300).astype(dtype)
    np.testing.assert_array_equal(computed(name, a, b), function(a.astype(np.int64), b.astype(np.int64)))


def test_shifts():
    a, b = np.arange(200, dtype=np.uint8), np.arange(200, dtype=np.uint8) % 8
    np.testing.assert_array_equal(computed("shift_left", a, b), a << b)
    np.testing.assert_array_equal(computed("shift_right", a, b), a >> b)
