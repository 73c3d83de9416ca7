"""FLOPs of ONNX operators, one family a file. A multiply-add counts as 2, an elementary function (exp, tanh) as 1.

The counts are those of the textbook algorithm on dense data: no Winograd, no causal saving, no fusion.
"""

from __future__ import annotations

from wavefit.model.flops import attention, elementwise, linear, movement, normalise, pooling, recurrent
from wavefit.model.flops.operation import Operation, Rule, UnknownShape

RULES: dict[str, Rule] = {
    **elementwise.RULES,
    **linear.RULES,
    **attention.RULES,
    **movement.RULES,
    **normalise.RULES,
    **pooling.RULES,
    **recurrent.RULES,
}
"""Operator of the default domain -> what counts it."""


def flops(operation: Operation) -> int | None:
    """FLOPs of one node; None where the operator has no rule, or a shape that the rule needs is unknown."""
    rule = RULES.get(operation.kind)
    if rule is None:
        return None
    try:
        return rule(operation)
    except UnknownShape:
        return None
