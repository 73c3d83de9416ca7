"""High-bias absorption: what an activation never goes below is no part of its range in int8.

Nagel et al. 2019 (see :mod:`.equalize`), section 4.1.3: equalisation may leave large biases behind.
Where r = relu(W x + b) stays above c in a channel, relu(W x + b - c) + c is the same, and the next layer takes c in:

    b1 -= c,   b2 += W2 c,   c = max(0, mean - 3 standard deviations)

of the channel before the Relu. The paper takes both from BatchNormalization; here they are measured on calibration
data, and c is no more than the least value seen, so that the answers to those data stay. Data that go below change
answers, so this is for who judges on held-out data. A convolution with padding reads zeros that are no r, and is left
alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from wavefit.model.samples import Samples
from wavefit.precision.compensation import observed
from wavefit.precision.graph import copy, infer
from wavefit.precision.linear import Linear, attribute, linear, linears, only_user

if TYPE_CHECKING:
    import onnx_ir as ir

_DEVIATIONS = 3.0
_ITEMS = 256  # of calibration data, at most


def compensate(model: ir.Model, samples: Samples, say: Callable[[str], None]) -> ir.Model:
    """A graph with smaller activations, and the same fp32 answers where no channel goes below what was seen.

    Raises:
        InputError: ONNX Runtime does not run the graph.
    """
    model = copy(model)
    pairs = [(layer, users) for layer in linears(model) if (users := _users(layer))]
    if not pairs:
        return model
    say(f"high-bias absorption: {len(pairs)} layers")
    floors = _floors(model, [layer for layer, _ in pairs], observed.spread(samples, _ITEMS))
    for layer, users in pairs:
        floor = floors[str(layer.result.name)]
        bias = layer.bias()
        if bias is None or not floor.any():
            continue
        layer.set_bias(bias - floor)
        for user in users:
            matrix = user.matrix().astype(np.float64)
            added = (matrix.sum(3) * floor.reshape(user.groups, 1, -1)).sum(2).ravel()
            alpha = float(attribute(user.node, "alpha", 1.0)) if user.node.op_type == "Gemm" else 1.0
            old = user.bias()
            user.set_bias((0.0 if old is None else old) + alpha * added)
    return infer(model)


def floor(low: np.ndarray, mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """c of every channel: the paper's, and no more than the least value that was seen."""
    return np.maximum(0.0, np.minimum(low, mean - _DEVIATIONS * deviation))


def _users(layer: Linear) -> list[Linear]:
    """The layers behind a layer's Relu, if all that reads it are such as can take c in."""
    relu = only_user(layer.result)
    if relu is None or relu.op_type != "Relu" or relu.graph is not layer.node.graph or layer.bias() is None:
        return []
    value = relu.outputs[0]
    if value.is_graph_output():
        return []
    users = [
        linear(use.node) if use.idx == 0 and use.node.graph is relu.graph else None for use in value.uses()
    ]
    found = [user for user in users if user is not None and _takes_constants(user, layer)]
    return found if len(found) == len(users) else []


def _takes_constants(user: Linear, layer: Linear) -> bool:
    """Whether W c is one number for each output channel, at every position.

    Channels of a convolution lie on axis 1, those of a product on the last: one that reads the other's sums over
    positions.
    """
    if user.convolves != layer.convolves or not user.can_have_bias or user.node.op_type == "ConvTranspose":
        return False
    padded = any(attribute(user.node, "pads", ())) or attribute(user.node, "auto_pad", "NOTSET") not in (
        "NOTSET",
        "VALID",
    )
    return not padded


def _floors(model: ir.Model, layers: list[Linear], samples: Samples) -> dict[str, np.ndarray]:
    axes = {str(layer.result.name): 1 if layer.convolves else -1 for layer in layers}
    low: dict[str, np.ndarray] = {}
    sums: dict[str, np.ndarray] = {}  # elements, sum, sum of squares, by channel
    for name, array in observed.values(model, samples, [layer.result for layer in layers]):
        flat = np.moveaxis(array, axes[name], 0).reshape(array.shape[axes[name]], -1).astype(np.float64)
        low[name] = np.minimum(low.get(name, np.inf), flat.min(1))
        part = np.stack([np.full(len(flat), flat.shape[1]), flat.sum(1), np.square(flat).sum(1)])
        sums[name] = sums.get(name, np.zeros(part.shape)) + part
    return {name: _floor(low[name], sums[name]) for name in axes}


def _floor(low: np.ndarray, sums: np.ndarray) -> np.ndarray:
    mean, square = sums[1] / sums[0], sums[2] / sums[0]
    return floor(low, mean, np.sqrt(np.maximum(square - mean**2, 0)))
