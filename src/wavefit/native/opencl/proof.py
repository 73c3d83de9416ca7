"""Whether a configuration is right, beyond agreeing with the others: against numpy, and on odd sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from wavefit.native import reference
from wavefit.native.edges import edges
from wavefit.native.opencl import kernels
from wavefit.native.opencl.selftest import data
from wavefit.native.operation import Config, Limits, Operation

_OPS = ("Conv", "MatMul", "Softmax", "LayerNormalization")
_MOST = 5e8  # operations that numpy does in less than a second


def exact(operation: Operation, arrays: Sequence[np.ndarray | None]) -> np.ndarray | None:
    """The output in float64 by numpy; None where that would take long, or there is no reference.

    Args:
        operation: what is computed.
        arrays: one for each input, of the view's shape.
    """
    if not _has_reference(operation) or _work(operation) > _MOST:
        return None
    return reference.compute(operation, arrays)


def flaw(
    context: Any, operation: Operation, template: str, config: Config, limits: Limits, tolerance: float
) -> str:
    """What a configuration does wrong on operations of the same kind with other sizes; "" where nothing.

    Args:
        context: a ``pyopencl.Context`` of one device.
        operation: the one that was tuned.
        template: the file's name in opencl/kernels/.
        config: of the template; is tried where the template would on that size.
        limits: of the device.
        tolerance: most relative L2 to numpy in float64.
    """
    from wavefit.native.opencl import bench

    if not _has_reference(operation):
        return ""
    for edge in edges(operation):
        if _work(edge) > _MOST or not _tries(edge, template, config, limits):
            continue
        arrays = data(edge)
        got = bench.run(context.devices[0], template, edge, config, arrays, context)
        want = reference.compute(edge, arrays)
        off = float(np.linalg.norm(got.output.astype(np.float64) - want)) / (float(np.linalg.norm(want)) or 1)
        shape = "x".join(map(str, edge.output.shape))
        if not off <= tolerance:
            return f"its answer is off by {off:.2g} for an output of {shape}"
        if got.trespasses:
            return f"it wrote {got.trespasses[0]} for an output of {shape}"
    return ""


def _has_reference(operation: Operation) -> bool:
    steps = operation.epilogue.steps if operation.epilogue is not None else ()
    return operation.op in _OPS and all(step.function in reference.FUNCTIONS for step in steps)


def _tries(operation: Operation, template: str, config: Config, limits: Limits) -> bool:
    return template in kernels.claiming(operation, limits) and any(
        each == config for each in kernels.get(template).configurations(operation, limits)
    )


def _work(operation: Operation) -> float:
    """About what numpy computes."""
    size = 2.0 * operation.output.size
    if operation.op == "MatMul":
        return size * operation.input(0).shape[-1]
    if operation.op == "Conv":
        return size * float(np.prod(operation.input(1).shape[1:]))
    return 10 * size
