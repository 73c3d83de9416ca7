"""The scalar functions of Pointwise expressions in numpy, as ONNX defines them."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

_erf = np.vectorize(math.erf, otypes=[np.float64])


def _div(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Towards zero where both are integers."""
    if np.asarray(a).dtype.kind in "iu" and np.asarray(b).dtype.kind in "iu":
        magnitude = np.abs(a) // np.abs(b)
        return np.where((a < 0) != (b < 0), -magnitude, magnitude)
    return a / b


FUNCTIONS: dict[str, Callable[..., np.ndarray]] = {
    "copy": lambda a: a,
    "cast": lambda a: a,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _div,
    "fma": lambda a, b, c: a * b + c,
    "neg": np.negative,
    "min": np.minimum,
    "max": np.maximum,
    "fmin": np.fmin,
    "fmax": np.fmax,
    "pow": np.power,
    "abs": np.abs,
    "fabs": np.abs,
    "sqrt": np.sqrt,
    "reciprocal": lambda a: 1.0 / a,
    "exp": np.exp,
    "log": np.log,
    "sin": np.sin,
    "cos": np.cos,
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
    "erf": _erf,
    "sigmoid": lambda a: np.where(a < 0, np.exp(-np.abs(a)), 1.0) / (1.0 + np.exp(-np.abs(a))),
    "softplus": lambda a: np.logaddexp(0.0, a),
    "relu": lambda a: np.maximum(a, 0),
    "leaky_relu": lambda a, b: np.where(a < 0, b * a, a),
    "elu": lambda a, b: np.where(a < 0, b * np.expm1(np.minimum(a, 0)), a),
    "clip": lambda a, low, high: np.minimum(np.maximum(a, low), high),
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "sign": np.sign,
    "fmod": np.fmod,
    "rem": np.fmod,
    "mod": np.mod,
    "equal": np.equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
    "not": np.logical_not,
    "bit_and": np.bitwise_and,
    "bit_or": np.bitwise_or,
    "bit_xor": np.bitwise_xor,
    "bit_not": np.bitwise_not,
    "shift_left": np.left_shift,
    "shift_right": np.right_shift,
    "isnan": np.isnan,
    "where": lambda c, a, b: np.where(np.asarray(c) != 0, a, b),
}
