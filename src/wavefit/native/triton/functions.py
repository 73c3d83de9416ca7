"""The scalar functions of elementwise expressions in Triton, by the names that ``Apply.function`` takes.

Arguments stand as {0}, {1}, {2}. Floats are float32 in registers however they are stored; ``bool`` is int1. Only what
Triton's own language has is used, so that every target and the interpreter run the same text: no device library.
"""

from __future__ import annotations

_ROUND = "tl.where(tl.abs({0}) < 4194304.0, ({0} + 12582912.0) - 12582912.0, {0})"  # to even: 2^23 + 2^22
_SERIES = "{0} * (1.0 + {0} * (0.5 + {0} * (0.16666667 + {0} * 0.041666668)))"  # Taylor's, of exp(x) - 1
_EXPM1 = f"tl.where(tl.abs({{0}}) < 0.02, {_SERIES}, tl.exp({{0}}) - 1.0)"

FUNCTIONS: dict[str, str] = {
    "copy": "{0}",
    "add": "({0} + {1})",
    "sub": "({0} - {1})",
    "mul": "({0} * {1})",
    "div": "({0} / {1})",
    "fma": "({0} * {1} + {2})",
    "neg": "(-{0})",
    "min": "tl.minimum({0}, {1})",
    "max": "tl.maximum({0}, {1})",
    "fmin": "tl.minimum({0}, {1})",
    "fmax": "tl.maximum({0}, {1})",
    "abs": "tl.abs({0})",
    "fabs": "tl.abs({0})",
    "sqrt": "tl.sqrt_rn({0})",
    "reciprocal": "(1.0 / {0})",
    "exp": "tl.exp({0})",
    "log": "tl.log({0})",
    "sin": "tl.sin({0})",
    "cos": "tl.cos({0})",
    "tanh": "(2.0 / (1.0 + tl.exp(-2.0 * {0})) - 1.0)",
    "erf": "tl.erf({0})",
    "sigmoid": "(1.0 / (1.0 + tl.exp(-{0})))",
    "softplus": "(tl.maximum({0}, 0.0) + tl.log(1.0 + tl.exp(-tl.abs({0}))))",
    "relu": "tl.maximum({0}, 0.0)",
    "leaky_relu": "tl.where({0} < 0.0, {1} * {0}, {0})",
    "elu": "tl.where({0} < 0.0, {1} * (" + _EXPM1 + "), {0})",
    "clip": "tl.minimum(tl.maximum({0}, {1}), {2})",
    "floor": "tl.floor({0})",
    "ceil": "tl.ceil({0})",
    "round": _ROUND,
    "equal": "({0} == {1})",
    "less": "({0} < {1})",
    "less_equal": "({0} <= {1})",
    "greater": "({0} > {1})",
    "greater_equal": "({0} >= {1})",
    "and": "(({0} != 0) & ({1} != 0))",
    "or": "(({0} != 0) | ({1} != 0))",
    "xor": "(({0} != 0) ^ ({1} != 0))",
    "not": "({0} == 0)",
    "bit_and": "({0} & {1})",
    "bit_or": "({0} | {1})",
    "bit_xor": "({0} ^ {1})",
    "bit_not": "(~{0})",
    "isnan": "({0} != {0})",
    "where": "tl.where({0} != 0, {1}, {2})",
    "cast": "{0}",
}
