"""Scale and shift of each channel, as by BatchNormalization, become part of the weights beside them.

After a Conv or ConvTranspose they go into its weights and bias, after a MatMul the scale does. Before a Conv they do
where nothing lies between: the shift only where no pads are, which it would not reach.
"""

from __future__ import annotations

import numpy as np

from wavefit.native.graph import Graph, Node, Value
from wavefit.native.passes import elementwise
from wavefit.native.passes._linear import Affine, affine, per_channel
from wavefit.native.passes._match import given
from wavefit.native.pointwise import Apply, Pointwise

_SHIFT = Pointwise(operands=2, steps=(Apply(function="add", arguments=(0, 1)),))


def run(graph: Graph) -> int:
    """Merges affine functions with each other, then folds each into the node before it, or the Conv after it.

    Returns:
        How many were folded.
    """
    _compose(graph)
    folded = sum(_into_producer(graph, node) for node in list(graph.nodes) if node.op == "Pointwise")
    return folded + sum(
        _into_user(graph, node) for node in reversed(list(graph.nodes)) if node.op == "Pointwise"
    )


def _compose(graph: Graph) -> None:
    for node in reversed(list(graph.nodes)):
        user = graph.only_user(node.output) if node.op == "Pointwise" else None
        if user is not None and user.op == "Pointwise" and affine(node) and affine(user):
            elementwise.merge(graph, node)


def _into_producer(graph: Graph, pointwise: Node) -> int:
    form = affine(pointwise)
    node = None if form is None else graph.producer(form.source)
    if form is None or node is None or node.op not in _AFTER or node.epilogue is not None:
        return 0
    weight = node.constant(1)
    if graph.only_user(form.source) is not pointwise or weight is None or weight.dtype.kind != "f":
        return 0
    return int(_AFTER[node.op](graph, node, pointwise, form))


def _after_conv(graph: Graph, node: Node, pointwise: Node, form: Affine) -> bool:
    channels = node.output.shape[1]
    scale, shift = (
        per_channel(each, len(node.output.shape), 1, channels) for each in (form.scale, form.shift)
    )
    weight, bias = node.constant(1), node.constant(2)
    if scale is None or shift is None or weight is None or (bias is None and _has_bias(node)):
        return False
    scaled = weight * _along_outputs(scale, node, weight)
    shifted = shift if bias is None else bias.astype(np.float64) * scale + shift
    return _fold(graph, node, scaled, shifted, pointwise)


def _along_outputs(scale: np.ndarray, node: Node, weight: np.ndarray) -> np.ndarray:
    """The scale of each output channel, shaped to multiply the weight: (O, I/g, ...), or (I, O/g, ...) transposed."""
    ones = (1,) * (weight.ndim - 2)
    if node.op == "Conv":
        return scale.reshape(-1, 1, *ones)
    group = int(node.attributes["group"])
    rows = np.repeat(scale.reshape(group, -1), weight.shape[0] // group, axis=0)
    return rows.reshape(*rows.shape, *ones)


def _after_matmul(graph: Graph, node: Node, pointwise: Node, form: Affine) -> bool:
    """The scale goes into the weight; the shift stays, for the epilogue."""
    rank, columns = len(node.output.shape), node.output.shape[-1]
    scale, shift = (per_channel(each, rank, rank - 1, columns) for each in (form.scale, form.shift))
    weight = node.constant(1)
    if scale is None or shift is None or weight is None or (scale == 1).all():
        return False
    scaled = _constant(node, 1, weight * scale, pointwise)
    addend = _constant(node, 1, shift, pointwise, "shift")
    if scaled is None or addend is None:
        return False
    graph.rewire(node, [node.inputs[0], scaled])
    if not shift.any():
        graph.substitute(pointwise, node)
        return True
    pointwise.epilogue = _SHIFT
    graph.rewire(pointwise, [node.output, addend])
    return True


_AFTER = {"Conv": _after_conv, "ConvTranspose": _after_conv, "MatMul": _after_matmul}


def _into_user(graph: Graph, pointwise: Node) -> int:
    """Into the weights of the Conv that alone reads it."""
    form, node = affine(pointwise), graph.only_user(pointwise.output)
    if form is None or node is None or node.op != "Conv" or node.inputs.count(pointwise.output) > 1:
        return 0
    if given(node.inputs[0]).dtype not in ("float32", "float16"):
        return 0
    if node.inputs[0] is not pointwise.output or form.source.shape != pointwise.output.shape:
        return 0
    shape = form.source.shape
    scale, shift = (per_channel(each, len(shape), 1, shape[1]) for each in (form.scale, form.shift))
    weight, bias = node.constant(1), node.constant(2)
    if scale is None or shift is None or weight is None or (bias is None and _has_bias(node)):
        return 0
    if shift.any() and any(node.attributes["pads"]):
        return 0
    shifted = np.zeros(weight.shape[0]) if bias is None else bias.astype(np.float64)
    shifted = shifted + (weight * _along_inputs(shift, node, weight)).sum(axis=tuple(range(1, weight.ndim)))
    if not _fold(graph, node, weight * _along_inputs(scale, node, weight), shifted, None):
        return 0
    graph.rewire(node, [form.source, *node.inputs[1:]])
    node.source = (*pointwise.source, *node.source)
    graph.remove(pointwise)
    return 1


def _along_inputs(scale: np.ndarray, node: Node, weight: np.ndarray) -> np.ndarray:
    """The scale of each input channel, shaped to multiply a weight (O, I/g, ...)."""
    group = int(node.attributes["group"])
    rows = np.repeat(scale.reshape(group, -1), weight.shape[0] // group, axis=0)
    return rows.reshape(*rows.shape, *(1,) * (weight.ndim - 2))


def _has_bias(node: Node) -> bool:
    return len(node.inputs) > 2 and node.own > 2 and node.inputs[2] is not None


def _fold(graph: Graph, node: Node, weight: np.ndarray, bias: np.ndarray, instead: Node | None) -> bool:
    """Gives a convolution its new weights, in the place of the Pointwise that they do the work of."""
    place = instead or node
    new_weight = _constant(node, 1, weight, place)
    new_bias = _constant(node, 1, bias, place, "bias")
    if new_weight is None or new_bias is None:
        return False
    if bias.any() or _has_bias(node):
        rest = node.inputs[3 if node.own > 2 else 2 :]
        node.own = 3
        graph.rewire(node, [node.inputs[0], new_weight, new_bias, *rest])
    else:
        graph.rewire(node, [node.inputs[0], new_weight, *node.inputs[2:]])
    if instead is not None:
        graph.substitute(instead, node)
    return True


def _constant(node: Node, index: int, array: np.ndarray, place: Node, what: str = "weight") -> Value | None:
    """An array as a constant of an input's type; None where it is out of that type's range."""
    dtype = given(node.inputs[index]).dtype
    with np.errstate(over="ignore"):
        rounded = np.ascontiguousarray(array).astype(dtype)
    if not np.isfinite(rounded).all():
        return None
    return Value(f"{place.output.name}/{what}", rounded.shape, dtype, rounded)
