"""Graphs in int8 for tests: every node that can be, calibrated on those samples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import onnx_ir as ir

from wavefit.model.samples import Samples
from wavefit.precision.int8 import calibrate, histogram, qdq
from wavefit.precision.int8.targets import Target


def target(per_channel: bool = True, weight_bits: int = 8) -> Target:
    """Activations in uint8, weights in int8."""
    operators = frozenset(qdq.OPERATORS)
    return Target("test", "uint8", False, "int8", weight_bits, per_channel, None, operators, "made up")


def calibrated(
    model: ir.Model, samples: Samples, per_channel: bool = True
) -> Mapping[str, calibrate.Quantised]:
    """Parameters of all values by min-max."""
    found = histogram.collect(model, samples, None, lambda _: None)
    return calibrate.parameters(found, "minmax", target(per_channel))


def int8(
    model: ir.Model,
    samples: Samples,
    nodes: Iterable[str] | None = None,
    per_channel: bool = True,
    rounding: Mapping[str, np.ndarray] | None = None,
) -> ir.Model:
    to = target(per_channel)
    chosen = set(qdq.quantisable(model, to) if nodes is None else nodes)
    return qdq.quantize(model, chosen, calibrated(model, samples, per_channel), to, rounding)
