"""Operators that work on each element by itself."""

from __future__ import annotations

from wavefit.model.flops.operation import Operation, Rule, per_output

# FLOPs for each output element; sigmoid is negate, exp, add, divide.
_PER_OUTPUT = {
    1: (
        "Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Ceil Cos "
        "Cosh Div Equal Erf Exp Floor Greater GreaterOrEqual IsInf IsNaN Less LessOrEqual Log Mod Mul Neg Not Or "
        "Pow Reciprocal Relu Round Sign Sin Sinh Sqrt Sub Tan Tanh ThresholdedRelu Where Xor"
    ),
    2: "Clip DequantizeLinear LeakyRelu PRelu Shrink Softsign",
    3: "Celu Elu HardSigmoid QuantizeLinear RotaryEmbedding Softplus",
    4: "HardSwish Sigmoid Selu",
    5: "DynamicQuantizeLinear Gelu Swish",
    6: "Mish",
}


def _variadic(operation: Operation) -> int:
    return (len(operation.ins) - 1) * operation.out_size()


def _mean(operation: Operation) -> int:
    return len(operation.ins) * operation.out_size()


RULES: dict[str, Rule] = {
    **{kind: per_output(count) for count, kinds in _PER_OUTPUT.items() for kind in kinds.split()},
    "Max": _variadic,
    "Mean": _mean,
    "Min": _variadic,
    "Sum": _variadic,
}
