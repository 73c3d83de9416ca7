"""Adaptive rounding: int8 weights that are right together, where the nearest ones are only right each by itself.

Nagel, Amjad, van Baalen, Louizos and Blankevoort, Up or Down? Adaptive Rounding for Post-Training Quantization, 2020,
choose the rounding of a layer's weights W by its output, with what it reads in fp32 (X) and in the quantised graph
(X~): the least |X W - X~ W~|^2. That is a quadratic form in W~ with H = X~'X~ around W* = (H + d)^-1 (X~'X + d) W. It
is minimised as Frantar, Ashkboos, Hoefler and Alistarh do in GPTQ, 2022: column by column, each rounded to the nearest
and its error carried over to the columns still to come through the Cholesky factor of H^-1; those with the largest
H_jj first; d is 1 % of H's mean diagonal.

Both were tried on the depthwise classifier of digits in tests/precision/cases, with the same H and W*: AdaRound's soft
rounding by Adam in 1,500 steps brought the error of the scores from 0.081 to 0.057 with a scale for each tensor and
from 0.079 to 0.073 with one for each channel, this way from 0.081 to 0.062 and from 0.079 to 0.060, 15 to 60 times as
fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from wavefit.model.samples import Samples
from wavefit.precision.compensation import observed
from wavefit.precision.compensation.im2col import patches
from wavefit.precision.graph import constant, copy, nodes
from wavefit.precision.linear import Linear, assign, linears, only_user

if TYPE_CHECKING:
    import onnx_ir as ir

_ITEMS = 64  # of calibration data, at most
_ROWS_A_BATCH = 512
_LARGEST = 4608  # columns of a layer's weights: a 3 x 3 convolution of 512 channels; H has as many squared
_DAMPING = 0.01
_CHECKED = 4  # every fourth row is not looked at, and says whether the rounding is better than the nearest
_HELPS = 0.98  # of the error on those
_BLOCK = 128


@dataclass(frozen=True)
class _Stored:
    """A layer's weights as the quantised graph has them: real = stored * scale."""

    dequantize: ir.Node
    stored: np.ndarray
    scale: np.ndarray  # broadcasts to the weight's shape
    limit: int


def compensate(
    folded: ir.Model,
    lowered: ir.Model,
    layers: Iterable[str],
    samples: Samples,
    say: Callable[[str], None],
    left_s: Callable[[], float] = lambda: float("inf"),
) -> dict[str, np.ndarray]:
    """Weights in int8 by initializer name, of those layers whose output is nearer to fp32 with them.

    Layers go in the graph's order, each with what it reads once those before it are rounded.

    Args:
        folded: the fp32 graph that ``lowered`` quantises, with the same node names: what
            :func:`wavefit.precision.int8.fold.folded` gives.
        lowered: with weights behind a DequantizeLinear.
        layers: names of the quantised nodes. Transposed convolutions and weights of several layers are left out.
        samples: calibration data.
        say: told what goes on.
        left_s: seconds left; no further layer is begun where there are none.

    Raises:
        InputError: ONNX Runtime does not run one of the graphs.
    """
    lowered, wanted = copy(lowered), set(layers)
    there = nodes(lowered)
    few = observed.spread(samples, _ITEMS)
    result: dict[str, np.ndarray] = {}
    chosen = [layer for layer in linears(folded) if layer.name in wanted and layer.name in there]
    for number, layer in enumerate(chosen, 1):
        stored = _stored(there[layer.name])
        if left_s() <= 0:
            break
        if stored is None or layer.matrix()[0, 0].size > _LARGEST or only_user(_weight(layer)) is None:
            continue
        say(f"adaptive rounding: layer {number} of {len(chosen)}")
        better = _better(folded, lowered, layer, stored, few)
        if better is not None:
            result[str(_weight(layer).name)] = better
            assign(stored.dequantize, 0, better)
    return result


def _better(
    folded: ir.Model, lowered: ir.Model, layer: Linear, stored: _Stored, samples: Samples
) -> np.ndarray | None:
    """The layer's weights in int8, where they bring its output nearer to fp32's."""
    right = _rows(folded, layer, layer.node.inputs[0], samples)
    seen = _rows(lowered, layer, nodes(lowered)[layer.name].inputs[0], samples)
    if right is None or seen is None or right.shape != seen.shape:
        return None
    return _round(layer, stored, right, seen)


def _weight(layer: Linear) -> ir.Value:
    value = layer.node.inputs[1]
    assert value is not None
    return value


def _stored(node: ir.Node) -> _Stored | None:
    dequantize = node.inputs[1].producer() if len(node.inputs) > 1 and node.inputs[1] is not None else None
    if dequantize is None or dequantize.op_type != "DequantizeLinear":
        return None
    stored, scale = constant(dequantize.inputs[0]), constant(dequantize.inputs[1])
    if stored is None or scale is None or stored.dtype != np.int8:
        return None
    if scale.ndim:
        axis = dequantize.attributes["axis"].as_int() if "axis" in dequantize.attributes else 1
        scale = scale.reshape([-1 if each == axis else 1 for each in range(stored.ndim)])
    return _Stored(dequantize, stored, scale.astype(np.float64), int(np.abs(stored.astype(np.int16)).max()))


def _rows(model: ir.Model, layer: Linear, value: ir.Value | None, samples: Samples) -> np.ndarray | None:
    """What the layer reads, (groups, rows, columns); the same rows of every graph."""
    assert value is not None
    random, found = np.random.default_rng(0), []
    for _, array in observed.values(model, samples, [value]):
        rows = patches(layer, array, _ROWS_A_BATCH, random)
        if rows is None:
            return None
        found.append(rows)
    return np.concatenate(found, 1)


def _round(layer: Linear, stored: _Stored, right: np.ndarray, seen: np.ndarray) -> np.ndarray | None:
    """The weights in the layout of the operator; None where they are no better than the nearest."""
    matrix = layer.matrix()
    flat = matrix.reshape(*matrix.shape[:2], -1).astype(np.float64)  # groups x outputs x columns
    scale = layer.arranged(np.broadcast_to(stored.scale, stored.stored.shape)).reshape(flat.shape)
    nearest = layer.arranged(stored.stored).reshape(flat.shape)
    check = np.arange(right.shape[1]) % _CHECKED == _CHECKED - 1
    found = np.empty(flat.shape)
    for group in range(len(flat)):
        found[group] = nearest_together(
            flat[group], scale[group], right[group, ~check], seen[group, ~check], stored.limit
        )

    def error(weights: np.ndarray) -> float:
        wanted = right[:, check] @ flat.swapaxes(1, 2)
        return float(np.square(wanted - seen[:, check] @ (weights * scale).swapaxes(1, 2)).sum())

    if error(found) >= _HELPS * error(nearest.astype(np.float64)):
        return None
    return np.ascontiguousarray(layer.restored(found.astype(np.int8).reshape(matrix.shape)))


def nearest_together(
    weights: np.ndarray, scale: np.ndarray, right: np.ndarray, seen: np.ndarray, limit: int
) -> np.ndarray:
    """Integers q for which ``seen @ (q * scale).T`` is near ``right @ weights.T``.

    Args:
        weights, scale: outputs x columns; the scale is the same along a row.
        right, seen: rows x columns.
        limit: greatest magnitude of an integer.

    Returns:
        float64 of whole numbers, outputs x columns.
    """
    gram = seen.T @ seen
    damping = _DAMPING * float(np.diag(gram).mean()) or 1.0
    gram[np.diag_indices_from(gram)] += damping
    crossed = weights @ (right.T @ seen) + damping * weights
    target = np.linalg.solve(gram, crossed.T).T
    order = np.argsort(-np.diag(gram), kind="stable")
    inverse = np.linalg.inv(gram[np.ix_(order, order)])
    upper = np.linalg.cholesky((inverse + inverse.T) / 2).T
    left, steps = target[:, order].copy(), scale[:, order]
    found = np.empty_like(left)
    for start in range(0, len(order), _BLOCK):
        block = slice(start, min(start + _BLOCK, len(order)))
        errors = np.empty((len(left), block.stop - block.start))
        for column in range(block.start, block.stop):
            found[:, column] = np.clip(np.rint(left[:, column] / steps[:, column]), -limit, limit)
            missed = (left[:, column] - found[:, column] * steps[:, column]) / upper[column, column]
            left[:, column : block.stop] -= np.outer(missed, upper[column, column : block.stop])
            errors[:, column - start] = missed
        left[:, block.stop :] -= errors @ upper[block, block.stop :]
    result = np.empty_like(found)
    result[:, order] = found
    return result
