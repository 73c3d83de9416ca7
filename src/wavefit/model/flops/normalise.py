"""Normalisations and softmax."""

from __future__ import annotations

from wavefit.model.flops.operation import Operation, Rule, per_output

SOFTMAX = 5  # maximum, subtract, exp, sum, divide
_STANDARDISE = 7  # sum, subtract, square, sum, divide, scale, shift


def _lrn(operation: Operation) -> int:
    """Squares summed over ``size`` channels, then scale, bias, power, divide."""
    return (int(operation.attributes.get("size", 1)) + 5) * operation.out_size()


RULES: dict[str, Rule] = {
    "BatchNormalization": per_output(2),  # the statistics are constants: one scale, one shift
    "GroupNormalization": per_output(_STANDARDISE),
    "InstanceNormalization": per_output(_STANDARDISE),
    "LayerNormalization": per_output(_STANDARDISE),
    "MeanVarianceNormalization": per_output(_STANDARDISE - 2),
    "RMSNormalization": per_output(4),  # square, sum, divide, scale
    "LpNormalization": per_output(3),
    "LRN": _lrn,
    "Softmax": per_output(SOFTMAX),
    "LogSoftmax": per_output(SOFTMAX),
    "Hardmax": per_output(1),
}
