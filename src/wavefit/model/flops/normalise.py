"""Normalisations and softmax."""

from __future__ import annotations

from wavefit.model.flops.operation import Operation, Rule, per_input

SOFTMAX = 5  # maximum, subtract, exp, sum, divide
_STANDARDISE = 7  # sum, subtract, square, sum, divide, scale, shift


def _lrn(operation: Operation) -> int:
    """Squares summed over ``size`` channels, then scale, bias, power, divide."""
    return (int(operation.attributes.get("size", 1)) + 5) * operation.size()


RULES: dict[str, Rule] = {
    "BatchNormalization": per_input(2),  # the statistics are constants: one scale, one shift
    "GroupNormalization": per_input(_STANDARDISE),
    "InstanceNormalization": per_input(_STANDARDISE),
    "LayerNormalization": per_input(_STANDARDISE),
    "MeanVarianceNormalization": per_input(_STANDARDISE - 2),
    "RMSNormalization": per_input(4),  # square, sum, divide, scale
    "LpNormalization": per_input(3),
    "LRN": _lrn,
    "Softmax": per_input(SOFTMAX),
    "LogSoftmax": per_input(SOFTMAX),
    "Hardmax": per_input(1),
}
