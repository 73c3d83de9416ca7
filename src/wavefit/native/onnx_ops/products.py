"""Matrix products."""

from __future__ import annotations

from wavefit.native.graph import Value
from wavefit.native.onnx_ops._call import Call
from wavefit.native.pointwise import Apply, Argument, Pointwise


def _matmul(call: Call) -> str | None:
    """A vector is a matrix of one row, or of one column, whose axis of size 1 goes from the result."""
    first, second = call.input(0), call.input(1)
    if first.dtype not in ("float32", "float16"):
        return f"its inputs are {first.dtype}: products of floats are computed"
    product(call, first, second, call.output())
    return None


def product(call: Call, first: Value, second: Value, to: Value) -> None:
    """A MatMul of any two values as numpy has it."""
    a = call.reshape(first, (1, *first.shape)) if len(first.shape) == 1 else first
    b = call.reshape(second, (*second.shape, 1)) if len(second.shape) == 1 else second
    if a is first and b is second:
        call.add("MatMul", [a, b], to)
        return
    shape = to.shape
    if a is not first:
        shape = (*shape[: len(shape) - (b is second)], 1, *shape[len(shape) - (b is second) :])
    if b is not second:
        shape = (*shape, 1)
    call.reshape(call.add("MatMul", [a, b], shape), to)


def _gemm(call: Call) -> str | None:
    first, second = call.input(0), call.input(1)
    if first.dtype not in ("float32", "float16"):
        return f"its inputs are {first.dtype}: products of floats are computed"
    a = call.transpose(first, (1, 0)) if call.attribute("transA", 0) else first
    b = call.transpose(second, (1, 0)) if call.attribute("transB", 0) else second
    alpha, beta = float(call.attribute("alpha", 1.0)), float(call.attribute("beta", 1.0))
    bias = call.optional(2) if beta else None
    steps = _scaled_sum(alpha, beta, bias is not None)
    inputs = [a, b] if bias is None else [a, b, bias]
    epilogue = Pointwise(operands=1 + (bias is not None), steps=tuple(steps)) if steps else None
    call.add("MatMul", inputs, call.output(), epilogue, own=2)
    return None


def _scaled_sum(alpha: float, beta: float, has_bias: bool) -> list[Apply]:
    """Steps of alpha * (operand 0) + beta * (operand 1)."""
    steps: list[Apply] = []
    result: Argument = 0
    bias: Argument = 1
    if alpha != 1:
        steps.append(Apply(function="mul", arguments=(result, alpha)))
        result = 1 + has_bias
    if has_bias and beta != 1:
        steps.append(Apply(function="mul", arguments=(bias, beta)))
        bias = 1 + has_bias + len(steps) - 1
    if has_bias:
        steps.append(Apply(function="add", arguments=(result, bias)))
    return steps


OPERATORS = {"Gemm": _gemm, "MatMul": _matmul}
