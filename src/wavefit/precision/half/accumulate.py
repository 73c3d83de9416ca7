"""How operators add up their first input: what a sum in half would reach, and what a normalisation divides by.

MatMul, Gemm and Conv are left out: matrix units add halves in fp32 (MFMA and WMMA on AMD, and MIGraphX's GEMMs).
ONNX Runtime's WebGPU provider adds them in half (microsoft/onnxruntime issue 26732, pull request 29599): what overflows
there is found by the check on the device, not by the search.
The formulas are those of the ONNX operator specification.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from wavefit.precision.graph import constant

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir

_SQUARES = {"ReduceL2", "ReduceSumSquare", "RMSNormalization", "SimplifiedLayerNormalization"}
_CENTRED = {"LayerNormalization", "InstanceNormalization", "GroupNormalization", "MeanVarianceNormalization"}
_REDUCE = {"ReduceSum", "ReduceMean", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum"}
_POOLS = {"GlobalAveragePool", "GlobalLpPool"}
_WINDOWS = {"AveragePool", "LpPool"}
_EXPONENTIALS = {"Softmax", "LogSoftmax", "ReduceLogSumExp"}
ACCUMULATING = frozenset(
    _SQUARES | _CENTRED | _REDUCE | _POOLS | _WINDOWS | _EXPONENTIALS | {"CumSum", "LpNormalization"}
)

_EPSILON = 1e-5  # the specification's default of every normalisation


def largest_sum(node: ir.Node, array: np.ndarray) -> float | None:
    """The largest magnitude that a sum inside the node reaches, element after element.

    Args:
        node: its operator is in :data:`ACCUMULATING`.
        array: the node's first input, of any float type; Inf and NaN count as 0.

    Returns:
        None where the node adds nothing up, or along axes that are computed.
    """
    import numpy as np

    if node.op_type in _WINDOWS:
        window = node.attributes.get("kernel_shape")
        size = math.prod(window.as_ints()) if window is not None else 1
        terms = _power(node)(np.abs(_finite(array)))
        return float(terms.max(initial=0.0)) * size
    rows = _rows(node, array)
    if rows is None or not rows.size:
        return None
    if node.op_type in _EXPONENTIALS:
        return float(np.exp(rows - rows.max(axis=1, keepdims=True)).sum(axis=1).max())
    if node.op_type in _CENTRED:
        centred = rows - rows.mean(axis=1, keepdims=True)
        return max(_running(rows), float((centred * centred).sum(axis=1).max()))
    return _running(_terms(node, rows))


def smallest_divisor(node: ir.Node, array: np.ndarray) -> float | None:
    """The smallest variance (mean square where nothing is subtracted) plus epsilon that the node divides by.

    None where the node is no normalisation over its input.
    """
    if node.op_type not in _CENTRED | {"RMSNormalization", "SimplifiedLayerNormalization"}:
        return None
    rows = _rows(node, array)
    if rows is None or not rows.size:
        return None
    if node.op_type in _CENTRED:
        rows = rows - rows.mean(axis=1, keepdims=True)
    epsilon = node.attributes.get("epsilon")
    smallest = float((rows * rows).mean(axis=1).min())
    return smallest + (float(epsilon.as_float()) if epsilon is not None else _EPSILON)


def lowest_peak(node: ir.Node, array: np.ndarray) -> float | None:
    """The smallest of the rows' maxima that a Softmax takes its exponentials from; None of any other node."""
    if node.op_type != "Softmax" or not array.size or not array.ndim:
        return None
    import numpy as np

    return float(np.min(np.max(array.astype(np.float64), axis=_axis(node))))


def _terms(node: ir.Node, rows: np.ndarray) -> np.ndarray:
    import numpy as np

    if node.op_type in _SQUARES:
        return rows * rows
    if node.op_type == "ReduceL1":
        return np.abs(rows)
    return _power(node)(rows)


def _power(node: ir.Node) -> Callable[[np.ndarray], np.ndarray]:
    """What an Lp operator adds up: |x|^p; x itself for every other one."""
    import numpy as np

    if node.op_type not in ("GlobalLpPool", "LpPool", "LpNormalization"):
        return lambda values: values
    p = node.attributes.get("p")
    exponent = float(p.as_int()) if p is not None else 2.0
    return lambda values: np.abs(values) ** exponent


def _running(rows: np.ndarray) -> float:
    """The largest |partial sum| of any row, its elements taken in order."""
    import numpy as np

    return float(np.abs(np.cumsum(rows, axis=1)).max())


def _rows(node: ir.Node, array: np.ndarray) -> np.ndarray | None:
    """The array in float64 as (groups, elements added up in each)."""
    import numpy as np

    if array.ndim == 0:
        return None
    if node.op_type == "GroupNormalization":
        groups = node.attributes["num_groups"].as_int()
        return _finite(array).reshape(array.shape[0] * groups, -1)
    axes = summed_axes(node, array.ndim)
    if axes is None:
        return None
    kept = [axis for axis in range(array.ndim) if axis not in axes]
    size = math.prod(array.shape[axis] for axis in axes)
    return np.transpose(_finite(array), (*kept, *axes)).reshape(-1, size) if size else None


def _finite(array: np.ndarray) -> np.ndarray:
    import numpy as np

    wide = array.astype(np.float64)
    return np.where(np.isfinite(wide), wide, 0.0)


def summed_axes(node: ir.Node, rank: int) -> tuple[int, ...] | None:
    """The axes that are added up, none negative; None where they are not known."""
    kind = node.op_type
    if kind in _POOLS or kind == "InstanceNormalization":
        return tuple(range(2, rank))
    if kind == "MeanVarianceNormalization":
        return _attribute_axes(node, rank) or tuple(axis for axis in (0, 2, 3) if axis < rank)
    if kind in _REDUCE or kind == "ReduceLogSumExp":
        return _reduced(node, rank)
    if kind == "CumSum":
        given = constant(node.inputs[1])
        return None if given is None else (int(given.reshape(-1)[0]) % rank,)
    axis = _axis(node) % rank
    several = kind in ("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization")
    return tuple(range(axis, rank)) if several else (axis,)


def _axis(node: ir.Node) -> int:
    given = node.attributes.get("axis")
    return given.as_int() if given is not None else -1


def _attribute_axes(node: ir.Node, rank: int) -> tuple[int, ...]:
    given = node.attributes.get("axes")
    return tuple(axis % rank for axis in given.as_ints()) if given is not None else ()


def _reduced(node: ir.Node, rank: int) -> tuple[int, ...] | None:
    """Of a Reduce operator: an attribute before opset 13 or 18, an input since."""
    axes = _attribute_axes(node, rank)
    if len(node.inputs) > 1 and node.inputs[1] is not None:
        given = constant(node.inputs[1])
        if given is None:
            return None
        axes = tuple(int(axis) % rank for axis in given.reshape(-1))
    if axes:
        return axes
    untouched = node.attributes.get("noop_with_empty_axes")
    return None if untouched is not None and untouched.as_int() else tuple(range(rank))
