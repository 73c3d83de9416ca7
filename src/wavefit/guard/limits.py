"""What a candidate may differ from the reference by: the three-way rule.

Three values of each output are compared: the candidate c, the fp32 reference r and the float64 reference d. To first
order the rounding error of a graph is its unit roundoff u times a constant of the graph (Higham, Accuracy and
Stability of Numerical Algorithms, section 3.1). The constant is measured: it is e_r / u_r, the reference's own error
against float64 over its roundoff. A candidate in precision p may then have an error against float64 of

    allowed = headroom * (u / u_r) * max(e_r, u_r),   u = max(u_p, u_r),

where u_r stands in for e_r where the reference is exact by luck. u is 2^-24 in fp32, 2^-11 in fp16, 2^-8 in bf16
(TF32 has fp16's 2^-11, so TF32 that passes for fp32 is found). The headroom is 32 within the same precision, for
other orders of summation, fused multiply-adds and Winograd convolutions; 4 across precisions, whose errors average
out over long sums. The result never exceeds sqrt(u), half of the digits, and is never below 2 e_r.

Emulated on ResNet-50 with random weights (every tensor rounded to p, sums in double; e_r 6.6e-7), the errors were
1.5e-3 in fp16 (0.021 allowed), 0.012 in bf16 (0.063), and 7.3e-4 with TF32 convolutions (2.1e-5 in fp32: found).

Without float64 the candidate is held to sqrt(u) against the fp32 reference: 2.4e-4 in fp32, 0.022 in fp16, 0.063 in
bf16. int8 has no roundoff of this kind (its steps are as wide as the calibrated range): it is held to 0.15, a cosine
of 0.989; whether that matters is for a task metric to say. Where there is one, the metric decides, and the distance
must only be less than the answer itself (1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from wavefit.schema import Precision

ROUNDOFF: dict[Precision, float] = {"fp32": 2.0**-24, "fp16": 2.0**-11, "bf16": 2.0**-8, "int8": 2.0**-8}
"""Unit roundoff, half the distance of 1 to the next number (IEEE 754; bfloat16 has 8 bits of significand)."""

INT8_BOUND, INT8_BOUND_BESIDE_METRIC = 0.15, 1.0
_HEADROOM_SAME, _HEADROOM_LOWER = 32.0, 4.0


@dataclass(frozen=True)
class Limits:
    """What a candidate may differ by, for one precision and one model.

    Args:
        precision: the plan's.
        reference_roundoff: of the file's own arithmetic: 2^-24 for an fp32 model.
        reference_error: of the fp32 reference against float64, for tensors that have no float64 of their own.
        beside_metric: whether a task metric on labelled data judges the candidate as well.
    """

    precision: Precision
    reference_roundoff: float = ROUNDOFF["fp32"]
    reference_error: float | None = None
    beside_metric: bool = False

    @property
    def roundoff(self) -> float:
        return max(ROUNDOFF[self.precision], self.reference_roundoff)

    @property
    def factor(self) -> float:
        """How many times the reference's own float64 error is allowed."""
        ratio = self.roundoff / self.reference_roundoff
        return _HEADROOM_SAME if ratio == 1 else _HEADROOM_LOWER * ratio

    @property
    def bound(self) -> float:
        """Most relative L2 error against the fp32 reference, where there is no float64."""
        if self.precision == "int8":
            return INT8_BOUND_BESIDE_METRIC if self.beside_metric else INT8_BOUND
        return math.sqrt(self.roundoff)

    def allowed(self, reference_error: float | None) -> float:
        """Most relative L2 error, given the fp32 reference's own against float64."""
        if reference_error is None:
            reference_error = self.reference_error
        if reference_error is None or self.precision == "int8":
            return self.bound
        scaled = self.factor * max(reference_error, self.reference_roundoff)
        return max(2 * reference_error, min(self.bound, scaled))
