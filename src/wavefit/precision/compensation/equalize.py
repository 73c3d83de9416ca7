"""Cross-layer equalisation: channels of very different size get steps of int8 that fit all of them.

Nagel, van Baalen, Blankevoort and Welling, Data-Free Quantization Through Weight Equalization and Bias Correction,
2019, section 4.1: between two layers with a positively homogeneous function, f(s x) = s f(x), row i of the first may
be divided and column i of the second multiplied by s_i. The product of both layers' channel precisions is largest at

    s_i = sqrt(r1_i r2_i) / r2_i,    r1_i, r2_i the largest |weight| of row i before and of column i behind,

after which both are sqrt(r1_i r2_i). Pairs of a chain are equalised in turn until nothing moves. Where a value has
several makers or users (a residual sum, branches), r1 and r2 are the largest over all of them.

Clip(0, c), as Relu6, is not homogeneous. Where calibration data never reaches c it becomes Relu, as in the paper;
elsewhere it becomes Relu and a Min with c / s_i for each channel, which is exact.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from wavefit.precision.compensation.channel_trace import clip_ends, trace
from wavefit.precision.compensation.channels import Channels, Trace, apply
from wavefit.precision.compensation.fold_batchnorm import fold
from wavefit.precision.graph import infer
from wavefit.precision.linear import free_name, new_constant

if TYPE_CHECKING:
    import onnx_ir as ir

_SWEEPS = 30
_STILL = 0.02  # largest relative change of a scale that ends the sweeps
_DEAD = 1e-6  # of a layer's largest weight: a row below has nothing to be scaled by


@dataclass(frozen=True)
class _Layer:
    """The largest weights over taps, groups x outputs x inputs, and the channels on both sides; None: fixed."""

    size: np.ndarray
    made: np.ndarray
    read: np.ndarray | None

    def rows(self, scale: np.ndarray) -> np.ndarray:
        """The largest weight of each channel made, with these scales; shape of ``made``."""
        if self.read is None:
            return self.size.max(2).ravel() / scale[self.made]
        by = scale[self.read].astype(np.float32).reshape(len(self.size), 1, -1)
        return (self.size * by).max(2).ravel() / scale[self.made]

    def columns(self, scale: np.ndarray) -> np.ndarray:
        """The largest weight of each channel read, with these scales; shape of ``read``."""
        by = (1 / scale[self.made]).astype(np.float32).reshape(*self.size.shape[:2], 1)
        assert self.read is not None
        return (self.size * by).max(1).ravel() * scale[self.read]


def compensate(model: ir.Model, largest: Mapping[str, float] | None = None) -> ir.Model:
    """A graph that gives the same fp32 answers, with channels equalised between its layers.

    BatchNormalization is folded first.

    Args:
        largest: the largest value of activations over calibration data, by value name. A Clip from 0 whose input
            stays below its upper end becomes Relu.

    Raises:
        InputError: the graph's types do not fit together.
    """
    model = fold(model)
    _drop_ceilings(model, largest or {})
    found = trace(model)
    scale = scales(found)
    for node, channels in found.ceilings:
        by = scale[channels.ids]
        if (by != 1).any():
            _per_channel_ceiling(node, channels, by)
    apply(found, scale)
    return infer(model)


def scales(found: Trace) -> np.ndarray:
    """The scale of every channel of a traced graph, 1 where it is fixed; shape (count,), float64."""
    roots = found.roots(np.arange(found.count))
    free = found.free()
    for vector in found.vectors:
        if vector.gain:  # a normalisation's output is no weight's: SmoothQuant's to move
            free &= ~np.isin(roots, roots[vector.channels.ids])
    layers = _layers(found, roots)
    scale = np.ones(found.count)
    groups: dict[bytes, tuple[np.ndarray, _Touching]] = {}  # makers of a residual sum make the same channels
    for layer in layers:
        members = np.unique(layer.made[free[layer.made]])
        if len(members):
            groups.setdefault(members.tobytes(), (members, _touching(layers, members)))
    for _ in range(_SWEEPS):
        moved = 0.0
        for members, touching in groups.values():
            moved = max(moved, _equalise(scale, members, touching))
        if moved < _STILL:
            break
    return scale[roots]


def _layers(found: Trace, roots: np.ndarray) -> list[_Layer]:
    read = {layer.name: roots[ids] for layer, ids in found.users}
    return [
        _Layer(np.abs(layer.matrix()).max(-1), roots[ids], read.get(layer.name))
        for layer, ids in found.makers
    ]


@dataclass(frozen=True)
class _Touching:
    """The layers that make some of the same channels, and those that read some."""

    makers: tuple[_Layer, ...]
    readers: tuple[_Layer, ...]


def _touching(layers: list[_Layer], members: np.ndarray) -> _Touching:
    return _Touching(
        tuple(layer for layer in layers if np.isin(layer.made, members).any()),
        tuple(layer for layer in layers if layer.read is not None and np.isin(layer.read, members).any()),
    )


def _equalise(scale: np.ndarray, members: np.ndarray, touching: _Touching) -> float:
    """One step for these channels, in place; the largest change of a logarithm."""
    before, behind = np.zeros(len(scale)), np.zeros(len(scale))
    for layer in touching.makers:
        rows = layer.rows(scale)
        np.maximum.at(before, layer.made, np.where(rows > _DEAD * rows.max(initial=0.0), rows, 0.0))
    for layer in touching.readers:
        assert layer.read is not None
        np.maximum.at(behind, layer.read, layer.columns(scale))
    first, second = before[members], behind[members]
    alive = (first > 0) & (second > 0)
    factor = np.ones(len(members))
    factor[alive] = np.sqrt(first[alive] / second[alive])
    scale[members] *= factor
    return float(np.abs(np.log(factor)).max(initial=0.0))


def _drop_ceilings(model: ir.Model, largest: Mapping[str, float]) -> None:
    """Relu in place of every Clip from 0 whose upper end calibration data never reaches."""
    for node in tuple(model.graph):
        if node.op_type != "Clip" or node.domain not in ("", "ai.onnx"):
            continue
        low, high = clip_ends(node)
        reached = largest.get(str(node.inputs[0].name), math.inf) if node.inputs[0] is not None else math.inf
        if low == 0 and high is not None and reached < high < math.inf:
            _replace(node, _relu(node))


def _per_channel_ceiling(node: ir.Node, channels: Channels, by: np.ndarray) -> None:
    """Relu and a Min with one ceiling a channel in place of a Clip."""
    import onnx_ir as ir

    _, high = clip_ends(node)
    graph, shape = node.graph, node.outputs[0].shape
    assert isinstance(graph, ir.Graph)
    assert high is not None
    assert shape is not None
    relu = _relu(node)
    node.append(relu)
    ends = (high / by).astype(np.float32).reshape(-1, *(1,) * (len(shape) - 1 - channels.axis))
    ceiling = new_constant(graph, f"{node.name}_ceiling", ends)
    relu.name = free_name(graph, f"{node.name}_relu")
    relu.outputs[0].name = free_name(graph, f"{node.outputs[0].name}_relu")
    _replace(node, ir.Node("", "Min", [relu.outputs[0], ceiling], name=node.name, num_outputs=1), relu)


def _relu(node: ir.Node) -> ir.Node:
    import onnx_ir as ir

    return ir.Node("", "Relu", [node.inputs[0]], name=node.name, num_outputs=1)


def _replace(node: ir.Node, new: ir.Node, behind: ir.Node | None = None) -> None:
    """Puts a node of one output in another's place; the value keeps its name, type and shape."""
    import onnx_ir as ir

    graph = node.graph
    assert isinstance(graph, ir.Graph)
    (behind or node).append(new)
    ir.convenience.replace_nodes_and_values(graph, new, [node], [new], node.outputs, new.outputs)
