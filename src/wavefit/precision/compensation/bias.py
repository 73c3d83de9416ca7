"""Bias correction: what quantisation shifts in the mean of a layer's outputs is added to its bias.

Nagel et al. 2019 (see :mod:`.equalize`), section 4.2, with the means taken on calibration data, their
appendix D: E[y] = E[y~] + (E[y] - E[y~]) channel by channel, layer by layer in the graph's order, each measured with
the corrected ones before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np

from wavefit.model.samples import Samples
from wavefit.precision.compensation import observed
from wavefit.precision.graph import constant, copy, nodes
from wavefit.precision.linear import Linear, assign, linears

if TYPE_CHECKING:
    import onnx_ir as ir

ITEMS = 32
"""Most calibration items that means are taken over: of a difference on the same items, which varies little."""


def compensate(
    model: ir.Model,
    layers: Iterable[str],
    lower: Callable[[ir.Model], ir.Model],
    samples: Samples,
    say: Callable[[str], None],
    left_s: Callable[[], float] = lambda: math.inf,
) -> ir.Model:
    """The fp32 graph with biases that make the lowered graph right in the mean.

    A MatMul without an Add of a constant vector behind it has no bias, and is left alone.

    Args:
        layers: names of the nodes that ``lower`` quantises; others are left alone.
        lower: fp32 graph to quantised graph, with the values that layers give under the same names.
        samples: calibration data; at most :data:`ITEMS` of it are run.
        say: told what goes on.
        left_s: seconds left; where there are none, the layers still to come stay as they are.

    Raises:
        InputError: ONNX Runtime does not run one of the graphs.
    """
    model, wanted = copy(model), set(layers)
    found = [_with_bias(layer) for layer in linears(model) if layer.name in wanted and layer.can_have_bias]
    few = observed.spread(samples, ITEMS)
    right = _means(model, found, few)
    lowered = lower(model)
    for number, layer in enumerate(found, 1):
        if left_s() <= 0:
            break
        say(f"bias correction: layer {number} of {len(found)}")
        name = str(layer.result.name)
        if name not in _values(lowered):
            continue
        shift = right[name] - _means(lowered, [layer], few)[name]
        _with_bias(layer, shift)
        if not _shift(lowered, layer, shift):
            lowered = lower(model)
    return model


def _with_bias(layer: Linear, more: np.ndarray | float = 0.0) -> Linear:
    """The layer, its bias of zeros where it had none made larger by so much."""
    bias = layer.bias()
    before = np.zeros(layer.outputs, np.float32) if bias is None else bias
    if bias is None or np.any(more):
        layer.set_bias(before + more)
    return layer


def _means(model: ir.Model, layers: list[Linear], samples: Samples) -> dict[str, np.ndarray]:
    """The mean of each output channel, by the name of the layer's result."""
    axes = {str(layer.result.name): 1 if layer.convolves else -1 for layer in layers}
    known = _values(model)
    sums = {name: np.zeros(layer.outputs) for name, layer in zip(axes, layers, strict=True)}
    runs = dict.fromkeys(axes, 0)
    for name, array in observed.values(model, samples, [known[name] for name in axes]):
        weight = len(array)
        sums[name] += weight * observed.channel_means(array, axes[name])
        runs[name] += weight
    return {name: sums[name] / runs[name] for name in axes}


def _values(model: ir.Model) -> dict[str, ir.Value]:
    return {str(value.name): value for node in model.graph for value in node.outputs}


def _shift(lowered: ir.Model, layer: Linear, shift: np.ndarray) -> bool:
    """Adds to the bias of the lowered graph, in place; False where it is not found there."""
    known = nodes(lowered)
    node = known.get(layer.name)
    if node is not None and node.op_type in ("Conv", "ConvTranspose", "Gemm"):
        return len(node.inputs) > 2 and _shift_input(node, 2, shift)
    node = known.get(str(layer.bias_node.name)) if layer.bias_node is not None else None
    if node is None or node.op_type != "Add":
        return False
    return any(_shift_input(node, index, shift) for index in (0, 1))


def _shift_input(node: ir.Node, index: int, shift: np.ndarray) -> bool:
    """Adds to a constant vector, in float or stored in int32 steps behind a DequantizeLinear."""
    value = node.inputs[index]
    array = constant(value)
    if array is not None and array.dtype == np.float32 and node.op_type != "Gemm":
        if array.size not in (1, shift.size):
            return False
        shape = array.shape if array.size == shift.size else (*array.shape[:-1], shift.size)
        assign(node, index, (array + shift.reshape(shape)).astype(np.float32))
        return True
    dequantize = value.producer() if value is not None else None
    if dequantize is None or dequantize.op_type != "DequantizeLinear":
        return False
    stored, scale = constant(dequantize.inputs[0]), constant(dequantize.inputs[1])
    if stored is None or scale is None or stored.dtype != np.int32 or stored.size != shift.size:
        return False
    steps = np.rint(shift.reshape(stored.shape) / scale.astype(np.float64))
    limits = np.iinfo(np.int32)
    assign(dequantize, 0, np.clip(stored + steps, limits.min, limits.max).astype(np.int32))
    return True
