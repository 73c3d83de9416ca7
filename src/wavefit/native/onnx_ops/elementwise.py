"""Arithmetic, comparisons, logic and casts: one step, or a fold of one function over the inputs."""

from __future__ import annotations

import numpy as np

from wavefit.native.graph import Value
from wavefit.native.onnx_ops._call import Call
from wavefit.native.onnx_ops._chain import Chain, is_float, step_type

_UNARY = {
    "Acos": "acos",
    "Acosh": "acosh",
    "Asin": "asin",
    "Asinh": "asinh",
    "Atan": "atan",
    "Atanh": "atanh",
    "BitwiseNot": "bit_not",
    "Ceil": "ceil",
    "Cos": "cos",
    "Cosh": "cosh",
    "Erf": "erf",
    "Exp": "exp",
    "Floor": "floor",
    "IsNaN": "isnan",
    "Log": "log",
    "Neg": "neg",
    "Not": "not",
    "Reciprocal": "reciprocal",
    "Round": "round",
    "Sin": "sin",
    "Sinh": "sinh",
    "Sqrt": "sqrt",
    "Tan": "tan",
}
_BINARY = {
    "Add": "add",
    "And": "and",
    "BitwiseAnd": "bit_and",
    "BitwiseOr": "bit_or",
    "BitwiseXor": "bit_xor",
    "Div": "div",
    "Mul": "mul",
    "Or": "or",
    "Sub": "sub",
    "Xor": "xor",
}
_COMPARISONS = {
    "Equal": "equal",
    "Greater": "greater",
    "GreaterOrEqual": "greater_equal",
    "Less": "less",
    "LessOrEqual": "less_equal",
}
_VARIADIC = {"Max": ("fmax", "max"), "Min": ("fmin", "min"), "Sum": ("add", "add"), "Mean": ("add", "add")}


def _operands(call: Call) -> list[Value]:
    return [call.input(index) for index in range(len(call.inputs))]


def _one_step(function: str, call: Call) -> None:
    chain = Chain(_operands(call))
    chain(function, *chain.arguments, dtype=step_type(call.output().dtype))
    chain.add_to(call, call.output())


def _unary(call: Call) -> None:
    _one_step(_UNARY[call.op], call)


def _binary(call: Call) -> None:
    _one_step(_BINARY[call.op], call)


def _comparison(call: Call) -> None:
    # a literal would be read in the result's type, which is bool
    chain = Chain(_operands(call), literals=False)
    chain(_COMPARISONS[call.op], *chain.arguments, dtype="bool")
    chain.add_to(call, call.output())


def _variadic(call: Call) -> None:
    values, dtype = _operands(call), step_type(call.output().dtype)
    chain = Chain(values)
    number = chain.arguments[0]
    function = _VARIADIC[call.op][not is_float(dtype)]
    for other in chain.arguments[1:]:
        number = chain(function, number, other, dtype=dtype)
    if call.op == "Mean" and len(values) > 1:
        chain("mul", number, 1.0 / len(values), dtype=dtype)
    chain.add_to(call, call.output())


def _abs(call: Call) -> None:
    _one_step("fabs" if is_float(call.input().dtype) else "abs", call)


def _sign(call: Call) -> str | None:
    dtype = call.input().dtype
    if is_float(dtype):
        _one_step("sign", call)
        return None
    chain = Chain([call.input()])
    if dtype.startswith("uint"):
        chain("min", 0, 1.0, dtype=dtype)
    else:
        chain("max", chain("min", 0, 1.0, dtype=dtype), -1.0, dtype=dtype)
    chain.add_to(call, call.output())
    return None


def _pow(call: Call) -> str | None:
    """Small whole exponents are products: exact, and defined for negative numbers on every driver."""
    base, exponent = call.input(0), call.input(1)
    dtype = step_type(base.dtype)
    chain = Chain([base, exponent])
    first, power = chain.arguments
    known = power if isinstance(power, float) else None
    if known in (1, 2, 3) and isinstance(first, int):
        number = first
        for _ in range(int(known or 0) - 1):
            number = chain("mul", number, first, dtype=dtype)
    elif known == 0.5 and is_float(dtype):
        chain("sqrt", first)
    elif not is_float(dtype):
        return f"its base is {base.dtype}: powers of integers are computed for exponents 1, 2 and 3 only"
    else:
        chain("pow", first, power if is_float(exponent.dtype) else _as_float(chain, power))
    chain.add_to(call, call.output())
    return None


def _as_float(chain: Chain, number: int | float) -> int | float:
    return number if isinstance(number, float) else chain("cast", number)


def _mod(call: Call) -> str | None:
    floats = is_float(call.input().dtype)
    if call.attribute("fmod", 0):
        _one_step("fmod" if floats else "rem", call)
    elif floats:
        return "Mod of floats is defined for fmod=1 only"
    else:
        _one_step("mod", call)
    return None


def _shift(call: Call) -> str | None:
    if not call.input().dtype.startswith("u"):
        return "shifts of signed integers are not computed"
    _one_step("shift_left" if call.attribute("direction") == "LEFT" else "shift_right", call)
    return None


def _cast(call: Call) -> str | None:
    """To bool is "differs from 0"; between equal types nothing."""
    source, target = call.input(), call.output()
    if source.dtype == target.dtype:
        call.give(source)
        return None
    chain = Chain([source], literals=False)
    if target.dtype == "bool":
        chain("not", chain("not", 0, dtype="bool"), dtype="bool")
    else:
        chain("cast", 0, dtype=step_type(target.dtype))
    chain.add_to(call, target)
    return None


def _cast_like(call: Call) -> str | None:
    call.inputs = call.inputs[:1]
    return _cast(call)


def _where(call: Call) -> None:
    condition, *values = _operands(call)
    chain = Chain([condition, *values])
    chain("where", *chain.arguments, dtype=step_type(call.output().dtype))
    chain.add_to(call, call.output())


def _is_inf(call: Call) -> None:
    """Infinities of the signs that are asked for. They are operands: see Chain."""
    signs = [np.inf] * call.attribute("detect_positive", 1) + [-np.inf] * call.attribute("detect_negative", 1)
    bounds = [call.value(np.array(sign, np.float32)) for sign in signs]
    chain = Chain([call.input(), *bounds], literals=False)
    found = [chain("equal", 0, number, dtype="bool") for number in chain.arguments[1:]]
    if len(found) == 2:
        chain("or", *found, dtype="bool")
    elif not found:
        chain("and", chain("isnan", 0, dtype="bool"), chain("equal", 0, 0, dtype="bool"), dtype="bool")
    chain.add_to(call, call.output())


def _clip(call: Call) -> str | None:
    """Bounds were attributes before version 11."""
    value, dtype = call.input(), step_type(call.input().dtype)
    low, high = (_bound(call, index, name) for index, name in ((1, "min"), (2, "max")))
    bounds = [bound for bound in (low, high) if bound is not None]
    if not bounds:
        call.give(value)
        return None
    chain = Chain([value, *bounds])
    first, *rest = chain.arguments
    names = ("fmax", "fmin") if is_float(dtype) else ("max", "min")
    if is_float(dtype) and len(rest) == 2:
        chain("clip", first, *rest)
    else:
        number = first
        for bound, name in zip((low, high), names, strict=True):
            if bound is not None:
                number = chain(name, number, rest.pop(0), dtype=dtype)
    chain.add_to(call, call.output())
    return None


def _bound(call: Call, index: int, attribute: str) -> Value | None:
    if call.given(index):
        return call.input(index)
    number = call.attribute(attribute)
    return None if number is None else call.value(np.array(number, call.input().dtype))


OPERATORS = {
    **dict.fromkeys(_UNARY, _unary),
    **dict.fromkeys(_BINARY, _binary),
    **dict.fromkeys(_COMPARISONS, _comparison),
    **dict.fromkeys(_VARIADIC, _variadic),
    "Abs": _abs,
    "BitShift": _shift,
    "Cast": _cast,
    "CastLike": _cast_like,
    "Clip": _clip,
    "IsInf": _is_inf,
    "Mod": _mod,
    "Pow": _pow,
    "Sign": _sign,
    "Where": _where,
}
