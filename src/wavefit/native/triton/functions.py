"""The scalar functions of elementwise expressions in Triton, by the names that ``Apply.function`` takes.

Arguments stand as {0}, {1}, {2}: names or numbers, so that repeating one costs nothing. Floats are float32 in registers
however they are stored; ``bool`` is int1. Only what Triton's own language has is used, so that every target and the
interpreter run the same text: no device library. Polynomials of arcs are Cephes' (asinf, atanf); those about 0 are
Taylor's.
"""

from __future__ import annotations


def _of(form: str, argument: str) -> str:
    """A function of one argument, of another expression."""
    return form.replace("{0}", argument)


def _series(variable: str, *coefficients: float) -> str:
    """A polynomial by Horner's rule, the constant first."""
    text = repr(coefficients[-1])
    for each in reversed(coefficients[:-1]):
        text = f"({each!r} + {variable} * {text})"
    return text


def _odd(positive: str) -> str:
    """An odd function by its values at |x|."""
    return f"tl.where({{0}} < 0.0, -1.0, 1.0) * {_of(positive, 'tl.abs({0})')}"


_HALF_PI = 1.5707963267948966
_LN2 = 0.6931471805599453
_ROUND = "tl.where(tl.abs({0}) < 4194304.0, ({0} + 12582912.0) - 12582912.0, {0})"  # to even: 2^23 + 2^22
_EXPM1_SERIES = _series("{0}", 1.0, 1 / 2, 1 / 6, 1 / 24, 1 / 120, 1 / 720, 1 / 5040)
_EXPM1 = f"tl.where(tl.abs({{0}}) < 0.35, {{0}} * {_EXPM1_SERIES}, tl.exp({{0}}) - 1.0)"
_LOG1P = (  # Kahan's: what 1 + x rounds off is divided out
    "tl.where({0} + 1.0 == 1.0, {0}, tl.where({0} > 1e8, tl.log({0}), "
    "tl.log({0} + 1.0) * ({0} / (({0} + 1.0) - 1.0))))"
)
_TANH_SERIES = _series("({0} * {0})", 1.0, -1 / 3, 2 / 15, -17 / 315, 62 / 2835)
_ATAN_PART = (
    "tl.where({0} > 2.414213562373095, -1.0 / {0}, tl.where({0} > 0.4142135623730951, "
    "({0} - 1.0) / ({0} + 1.0), {0}))"
)
_ATAN_FROM = (
    f"tl.where({{0}} > 2.414213562373095, {_HALF_PI!r}, "
    f"tl.where({{0}} > 0.4142135623730951, {_HALF_PI / 2!r}, 0.0))"
)
_ATAN_SERIES = _series(
    "({0} * {0})", 1.0, -3.33329491539e-1, 1.99777106478e-1, -1.38776856032e-1, 8.05374449538e-2
)
_ATAN = _odd(f"({_ATAN_FROM} + {_of(f'({{0}}) * {_ATAN_SERIES}', _ATAN_PART)})")
_ASIN_SERIES = _series(
    "({0} * {0})", 1.0, 1.6666752422e-1, 7.4953002686e-2, 4.5470025998e-2, 2.4181311049e-2, 4.2163199048e-2
)
_ASIN_SMALL = f"{{0}} * {_ASIN_SERIES}"  # up to 0.5
_ASIN_ROOT = _of(_ASIN_SMALL, "tl.sqrt_rn(0.5 - 0.5 * tl.abs({0}))")  # half of acos |x|
_ASIN = (
    f"tl.where(tl.abs({{0}}) <= 0.5, {_ASIN_SMALL}, "
    f"tl.where({{0}} < 0.0, -1.0, 1.0) * ({_HALF_PI!r} - 2.0 * {_ASIN_ROOT}))"
)
_ACOS = (
    f"tl.where(tl.abs({{0}}) <= 0.5, {_HALF_PI!r} - {_ASIN_SMALL}, "
    f"tl.where({{0}} < 0.0, {2 * _HALF_PI!r} - 2.0 * {_ASIN_ROOT}, 2.0 * {_ASIN_ROOT}))"
)
_SINH = _odd(  # two halves, as exp(x) overflows before sinh does
    f"tl.where({{0}} > 20.0, (0.5 * tl.exp(0.5 * {{0}})) * tl.exp(0.5 * {{0}}), "
    f"0.5 * ({_EXPM1} + ({_EXPM1}) / ({_EXPM1} + 1.0)))"
)
_COSH = "((0.5 * tl.exp(0.5 * tl.abs({0}))) * tl.exp(0.5 * tl.abs({0})) + 0.5 * tl.exp(-tl.abs({0})))"
_LOG1P_OF_ASINH = _of(_LOG1P, "({0} + {0} * {0} / (1.0 + tl.sqrt_rn({0} * {0} + 1.0)))")
_ASINH = _odd(f"tl.where({{0}} > 1e9, tl.log({{0}}) + {_LN2!r}, {_LOG1P_OF_ASINH})")
_LOG1P_OF_ACOSH = _of(_LOG1P, "(({0} - 1.0) + tl.sqrt_rn(({0} - 1.0) * ({0} + 1.0)))")
_ACOSH = f"tl.where({{0}} > 1e9, tl.log({{0}}) + {_LN2!r}, {_LOG1P_OF_ACOSH})"
_ATANH = _odd("(0.5 * " + _of(_LOG1P, "(2.0 * {0} / (1.0 - {0}))") + ")")

_WIDE = ("tl.cast({0}, tl.float64)", "tl.cast({1}, tl.float64)")
_SIZE = f"tl.exp2({_WIDE[1]} * tl.log2(tl.abs({_WIDE[0]})))"  # in float64: exponents multiply the logarithm's error
_SIGN = (
    "tl.where({0} < 0, tl.where({1} != tl.floor({1}), float('nan'), "
    "tl.where({1} - 2.0 * tl.floor(0.5 * {1}) == 1.0, -1.0, 1.0)), 1.0)"
)
_POW = f"tl.where(({{1}} == 0) | ({{0}} == 1), 1.0, {_SIGN} * tl.where(tl.abs({{0}}) == 1, 1.0, {_SIZE}))"
_TIMES = f"({_WIDE[0]} / {_WIDE[1]})"
_FMOD = (  # in float64 the multiple is exact up to quotients of 2^29
    f"tl.where(tl.abs({{1}}) == float('inf'), {{0}} + 0.0 * {{0}}, {_WIDE[0]} - "
    f"tl.where({_TIMES} < 0, tl.ceil({_TIMES}), tl.floor({_TIMES})) * {_WIDE[1]})"
)
_REM = "({0} % {1})"  # C's, of the dividend's sign
_MOD = f"tl.where(({_REM} != 0) & (({_REM} < 0) != ({{1}} < 0)), {_REM} + {{1}}, {_REM})"  # of the divisor's

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
    "pow": _POW,
    "abs": "tl.abs({0})",
    "fabs": "tl.abs({0})",
    "sqrt": "tl.sqrt_rn({0})",
    "reciprocal": "(1.0 / {0})",
    "exp": "tl.exp({0})",
    "log": "tl.log({0})",
    "sin": "tl.sin({0})",
    "cos": "tl.cos({0})",
    "tan": "(tl.sin({0}) / tl.cos({0}))",
    "asin": _ASIN,
    "acos": _ACOS,
    "atan": _ATAN,
    "sinh": _SINH,
    "cosh": _COSH,
    "asinh": _ASINH,
    "acosh": _ACOSH,
    "atanh": _ATANH,
    "tanh": f"tl.where(tl.abs({{0}}) < 0.25, {{0}} * {_TANH_SERIES}, 2.0 / (1.0 + tl.exp(-2.0 * {{0}})) - 1.0)",
    "erf": "tl.erf({0})",
    "sigmoid": "(1.0 / (1.0 + tl.exp(-{0})))",
    "softplus": "(tl.maximum({0}, 0.0) + " + _of(_LOG1P, "tl.exp(-tl.abs({0}))") + ")",
    "relu": "tl.maximum({0}, 0.0)",
    "leaky_relu": "tl.where({0} < 0.0, {1} * {0}, {0})",
    "elu": "tl.where({0} < 0.0, {1} * (" + _EXPM1 + "), {0})",
    "clip": "tl.minimum(tl.maximum({0}, {1}), {2})",
    "floor": "tl.floor({0})",
    "ceil": "tl.ceil({0})",
    "round": _ROUND,
    "sign": "tl.where({0} > 0.0, 1.0, tl.where({0} < 0.0, -1.0, {0}))",
    "fmod": _FMOD,
    "rem": "({0} % {1})",
    "mod": _MOD,
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
    "shift_left": "({0} << {1})",
    "shift_right": "({0} >> {1})",
    "isnan": "({0} != {0})",
    "where": "tl.where({0} != 0, {1}, {2})",
    "cast": "{0}",
}

INTEGERS: dict[str, str] = {"div": "({0} // {1})"}
"""Those that are written otherwise where the step's type is an integer: towards 0, as C divides."""
