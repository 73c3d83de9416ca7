"""Follows channels through a graph, node by node: by what each operator does to its channels.

See :mod:`wavefit.precision.compensation.channels`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from wavefit.precision.compensation.channels import Channels, Trace, Vector, rank_of
from wavefit.precision.graph import constant
from wavefit.precision.linear import Linear, attribute, linear

if TYPE_CHECKING:
    import onnx_ir as ir

# Mathematics, not precision: f(s x) = s f(x) for s > 0, channel by channel.
_SAME = ("Relu", "LeakyRelu", "PRelu", "Identity", "Dropout", "Neg", "Abs")
_POOLS = ("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LpPool", "GlobalLpPool")
_TOGETHER = ("Add", "Sub", "Sum", "Max", "Min", "Mean")
_NORMS = ("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization")


def trace(model: ir.Model) -> Trace:
    """Follows the channels through the main graph."""
    found = Trace()
    for node in model.graph:
        made = _follow(found, node)
        if made is None:
            for value in node.inputs:
                found.fix(value)
        elif node.outputs[0].name:
            found.at[str(node.outputs[0].name)] = made
        for value in node.inputs:
            if value is not None and any(use.node.graph is not model.graph for use in value.uses()):
                found.fix(value)  # a subgraph reads it
    for value in model.graph.outputs:
        found.fix(value)
    return found


def _follow(found: Trace, node: ir.Node) -> Channels | None:
    """The channels of a node's output; None where it is nothing that this module knows, and its inputs are fixed."""
    if any(attribute_.type.name in ("GRAPH", "GRAPHS") for attribute_ in node.attributes.values()):
        return None
    if node.op_type in _NORMS and node.domain in ("", "ai.onnx", "com.microsoft"):
        return _norm(found, node)
    if node.domain not in ("", "ai.onnx"):
        return None
    layer = linear(node)
    if layer is not None:
        return _layer(found, layer)
    given = [found.at.get(str(value.name)) if value is not None else None for value in node.inputs]
    if node.op_type in ("Mul", "Div", "Add", "Sub") and _vector_index(node) is not None:
        return _with_vector(found, node, given)
    if not given or given[0] is None:
        return None
    if node.op_type in _TOGETHER:
        return _together(found, node, given)
    if node.op_type == "Concat":
        return _concat(node, given)
    return _unary(found, node, given[0])


def _layer(found: Trace, layer: Linear) -> Channels | None:
    rank = rank_of(layer.node.outputs[0])
    if rank is None:
        return None
    axis = 1 if layer.convolves else rank - 1
    groups, outputs, inputs, _ = layer.matrix().shape
    data = layer.node.inputs[0]
    given = found.at.get(str(data.name)) if data is not None else None
    if given is not None and given.axis == axis and len(given.ids) == groups * inputs:
        found.users.append((layer, given.ids))
    else:
        found.fix(data)
    ids = found.new(groups * outputs)
    found.makers.append((layer, ids))
    made = Channels(axis, ids)
    if layer.bias_node is None and layer.has_foreign_bias:
        found.fix_ids(ids)
        for value in layer.node.inputs[2:]:
            found.fix(value)
    return made


def _norm(found: Trace, node: ir.Node) -> Channels | None:
    """A normalisation over the last axis makes channels of the size of its weight."""
    rank = rank_of(node.outputs[0])
    weight = constant(node.inputs[1]) if len(node.inputs) > 1 else None
    if rank is None or weight is None or weight.ndim != 1 or weight.size < 2:
        return None
    if attribute(node, "axis", -1) not in (-1, rank - 1):
        return None
    biased = len(node.inputs) > 2 and node.inputs[2] is not None
    if biased and getattr(constant(node.inputs[2]), "shape", None) != weight.shape:
        return None
    found.fix(node.inputs[0])
    made = Channels(rank - 1, found.new(weight.size))
    found.vectors.append(Vector(node, 1, made, True))
    if biased:
        found.vectors.append(Vector(node, 2, made, False))
    return made


def _with_vector(found: Trace, node: ir.Node, given: list[Channels | None]) -> Channels | None:
    """A value and a constant that has one number a channel, or one for all."""
    index = _vector_index(node)
    assert index is not None
    rank, array, data = rank_of(node.outputs[0]), constant(node.inputs[index]), given[1 - index]
    if rank is None or array is None or rank != rank_of(node.inputs[1 - index]):
        return None
    if node.op_type in ("Mul", "Div"):
        if node.op_type == "Div" and index == 0:
            return None
        if data is not None:
            shape = (1,) * (rank - array.ndim) + array.shape
            return data if shape[data.axis] in (1, len(data.ids)) else None
        return _gain(found, node, index, rank) if node.op_type == "Mul" else None
    if data is None:
        return None
    if not _is_vector(array, rank, data):
        return None
    found.vectors.append(Vector(node, index, data, False))
    return data


def _gain(found: Trace, node: ir.Node, index: int, rank: int) -> Channels | None:
    """A product with a constant vector makes channels, as a normalisation's weight does where it is decomposed."""
    array = constant(node.inputs[index])
    assert array is not None
    wide = [axis for axis, size in enumerate(array.shape) if size > 1]
    if len(wide) != 1 or array.dtype != np.float32:
        return None
    axis = rank - array.ndim + wide[0]
    data = node.inputs[1 - index]
    if data is None or data.shape is None or data.shape[axis] != array.size:
        return None
    found.fix(data)
    made = Channels(axis, found.new(array.size))
    found.vectors.append(Vector(node, index, made, True))
    return made


def _is_vector(array: np.ndarray, rank: int, data: Channels) -> bool:
    """Whether a constant has one number a channel, or one for all."""
    full = (1,) * (rank - array.ndim) + array.shape
    wide = [axis for axis, size in enumerate(full) if size != 1]
    return array.dtype == np.float32 and (not wide or (wide == [data.axis] and array.size == len(data.ids)))


def _vector_index(node: ir.Node) -> int | None:
    for index in (1, 0):
        if len(node.inputs) == 2 and constant(node.inputs[index]) is not None:
            return index
    return None


def _together(found: Trace, node: ir.Node, given: list[Channels | None]) -> Channels | None:
    first = given[0]
    ranks = {rank_of(value) for value in node.inputs}
    if first is None or len(ranks) != 1 or None in ranks:
        return None
    for other in given[1:]:
        if other is None or other.axis != first.axis or len(other.ids) != len(first.ids):
            return None
    for other in given[1:]:
        assert other is not None
        found.join(first.ids, other.ids)
    return first


def _concat(node: ir.Node, given: list[Channels | None]) -> Channels | None:
    rank = rank_of(node.outputs[0])
    known = [each for each in given if each is not None]
    if rank is None or len(known) != len(given) or len({each.axis for each in known}) != 1:
        return None
    axis = attribute(node, "axis", 0) % rank
    if axis == known[0].axis:
        return Channels(axis, np.concatenate([each.ids for each in known]))
    return None


def _unary(found: Trace, node: ir.Node, data: Channels) -> Channels | None:
    op, rank = node.op_type, rank_of(node.inputs[0])
    if op in _SAME:
        if op == "PRelu" and constant(node.inputs[1]) is None:
            return None
        return data if all(not list(value.uses()) for value in node.outputs[1:]) else None
    if op in _POOLS:
        indices_used = any(list(value.uses()) for value in node.outputs[1:])
        return data if data.axis == 1 and not indices_used else None
    if rank is None:
        return None
    if op == "Clip":
        return _clip(found, node, data)
    if op == "Transpose":
        perm = attribute(node, "perm", list(range(rank))[::-1])
        return Channels(list(perm).index(data.axis), data.ids)
    if op == "ReduceMean":
        return _reduced(node, data, rank)
    if op in ("Flatten", "Reshape", "Squeeze"):
        return _flat(node, data)
    return None


def _clip(found: Trace, node: ir.Node, data: Channels) -> Channels | None:
    """Clip from 0 up: the upper end, if there is one, is scaled with its channel."""
    low, high = clip_ends(node)
    if low != 0 or high is None or high <= 0:
        return None
    if math.isfinite(high):
        found.ceilings.append((node, data))
    return data


def clip_ends(node: ir.Node) -> tuple[float | None, float | None]:
    """The constant ends of a Clip, infinite where left out; None for a computed one."""
    ends: list[float | None] = []
    for index, (name, default) in enumerate((("min", -math.inf), ("max", math.inf)), 1):
        value = node.inputs[index] if index < len(node.inputs) else None
        array = constant(value)
        if value is None:
            ends.append(float(attribute(node, name, default)))
        else:
            ends.append(float(array.reshape(())) if array is not None and array.size == 1 else None)
    return ends[0], ends[1]


def _reduced(node: ir.Node, data: Channels, rank: int) -> Channels | None:
    axes = attribute(node, "axes", None)
    if axes is None and len(node.inputs) > 1:
        array = constant(node.inputs[1])
        axes = array.tolist() if array is not None else None
    if not axes:
        return None
    gone = {int(axis) % rank for axis in axes}
    if data.axis in gone:
        return None
    before = 0 if attribute(node, "keepdims", 1) else sum(axis < data.axis for axis in gone)
    return Channels(data.axis - before, data.ids)


def _flat(node: ir.Node, data: Channels) -> Channels | None:
    """A reshape of N x C x ... to N x C*..., where every channel becomes a block of that many."""
    before, after = node.inputs[0].shape if node.inputs[0] else None, node.outputs[0].shape
    if before is None or after is None or data.axis != 1 or len(after) != 2:
        return None
    inner = [size for size in list(before)[2:] if isinstance(size, int)]
    block = math.prod(inner)
    if len(inner) != len(before) - 2 or after[1] != len(data.ids) * block:
        return None
    return Channels(1, np.repeat(data.ids, block))
