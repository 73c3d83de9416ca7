"""Products of dequantised factors are made of the integers themselves, and what only moves elements moves integers.

A Conv or MatMul of ``(x - z) * s`` with constant ``w * t`` is the integers' product times ``s * t``: the node then
reads int8, and what follows (scale, bias, activation, quantisation) becomes its epilogue in later passes. A node that
moves elements, or takes the largest of some, between a DequantizeLinear and a QuantizeLinear of the same scale does so
in int8.

It is done whether or not a device has dot products of int8: tensors of 8 bits are a quarter of the memory traffic, and
without dot products kernels multiply and add up in integers, at the speed of floats on AMD's GPUs.
"""

from __future__ import annotations

import numpy as np

from wavefit.native.graph import Graph, Node, Value
from wavefit.native.passes._match import given
from wavefit.native.passes._quantised import BYTES, Dequantised, dequantised, numbers, quantises
from wavefit.native.pointwise import Apply, Pointwise, then

_PRODUCTS = ("Conv", "MatMul")
_MOVES = ("Concat", "Expand", "MaxPool", "Reshape", "Slice", "Transpose")
_SCALED = Pointwise(operands=2, steps=(Apply(function="mul", arguments=(0, 1)),))
_BIASED = Pointwise(
    operands=3,
    steps=(Apply(function="mul", arguments=(0, 1)), Apply(function="add", arguments=(3, 2))),
)


def run(graph: Graph) -> int:
    """Lets products and moves read integers; dequantises the constants that are left.

    Returns:
        How many nodes read integers now.
    """
    moved = sum(_move(graph, node) for node in list(graph.nodes) if node.op in _MOVES)
    _cancel(graph)
    made = sum(_product(graph, node) for node in list(graph.nodes) if node.op in _PRODUCTS)
    _fold(graph)
    graph.prune()
    return moved + made


# ---- Moves ----------------------------------------------------------------------------------------------------------


def _move(graph: Graph, node: Node) -> int:
    """Takes the DequantizeLinear from before a node to behind it."""
    found = [dequantised(graph, value) for value in node.inputs[: node.own]]
    first = found[0] if found else None
    if first is None or node.epilogue is not None or node.output in graph.outputs:
        return 0
    if not all(each is not None and each.like(first) for each in found):
        return 0
    integers = Value(f"{node.output.name}/integers", node.output.shape, first.integers.dtype)
    inputs = [each.integers for each in found if each is not None]
    maker = graph.producer(given(node.inputs[0]))
    assert maker is not None
    moved = Node(
        node.op, f"{node.name}:integers", list(inputs), [integers], node.attributes, source=node.source
    )
    back = Node(
        "Pointwise",
        f"{node.name}:dequantised",
        [integers, *maker.inputs[1:]],
        [node.output],
        {},
        maker.epilogue,
        own=0,
        source=maker.source,
    )
    graph.insert_before(node, moved)
    graph.substitute(node, back)
    return 1


def _cancel(graph: Graph) -> None:
    """Quantising what was dequantised with the same scale gives the integers themselves."""
    for node in list(graph.nodes):
        way = quantises(graph, node.output) if node.op == "Pointwise" else None
        found = dequantised(graph, node.inputs[0]) if way is not None else None
        if way is None or found is None or node.output in graph.outputs:
            continue
        scale, zero = way
        if scale.constant is None or node.output.dtype != found.integers.dtype:
            continue
        same = Dequantised(found.integers, scale, int(zero) if isinstance(zero, float) else None)
        if found.like(same):
            graph.replace(node.output, found.integers)
            graph.remove(node)


# ---- Products -------------------------------------------------------------------------------------------------------


def _product(graph: Graph, node: Node) -> int:
    x = dequantised(graph, node.inputs[0])
    weights = _weights(graph, node.inputs[1])
    if x is None or weights is None or x.integers.dtype not in BYTES or x.zero_point is None:
        return 0
    assert x.scale.constant is not None
    integers, scale = weights
    bias = _bias(graph, node)
    if x.scale.size != 1 or scale is None or isinstance(bias, str):
        return 0
    factor = (scale.astype(np.float64) * float(x.scale.constant.reshape(-1)[0])).astype(np.float32)
    side = () if node.op == "MatMul" else (1,) * (len(node.output.shape) - 2)
    raw = Value(f"{node.output.name}/sums", node.output.shape, "float32")
    attributes = {**node.attributes, "zero_point": x.zero_point}
    held = Value(f"{raw.name}/weights", integers.shape, "int8", np.ascontiguousarray(integers))
    graph.insert_before(
        node,
        Node(node.op, node.name, [x.integers, held], [raw], attributes, source=node.source),
    )
    operands = [raw, Value(f"{raw.name}/scale", (factor.size, *side), "float32", factor.reshape(-1, *side))]
    first = _SCALED
    if bias is not None:
        operands.append(Value(f"{raw.name}/bias", (bias.size, *side), "float32", bias.reshape(-1, *side)))
        first = _BIASED
    own = node.inputs[node.own :]
    epilogue = first if node.epilogue is None else then(first, node.epilogue, 0)
    scaled = Node(
        "Pointwise", f"{node.name}:scaled", [*operands, *own], [], {}, epilogue, own=0, source=node.source
    )
    graph.substitute(node, scaled)
    return 1


def _weights(graph: Graph, value: Value | None) -> tuple[np.ndarray, np.ndarray | None] | None:
    """Constant int8 without a zero point, and a scale for each output channel or column; the scale is None for others.

    A Transpose between (Gemm's) is done to both now.
    """
    maker = None if value is None else graph.producer(value)
    turned = maker is not None and maker.op == "Transpose"
    found = dequantised(graph, maker.inputs[0] if maker is not None and turned else value)
    if found is None or found.integers.dtype != "int8" or found.zero_point != 0:
        return None
    integers, scale = found.integers.constant, found.scale.constant
    if integers is None or scale is None:
        return None
    scale = scale.reshape((1,) * (integers.ndim - scale.ndim) + scale.shape)
    if maker is not None and turned:
        integers, scale = (each.transpose(maker.attributes["perm"]) for each in (integers, scale))
    axis = 1 if integers.ndim == 2 else 0
    alone = all(n == 1 for place, n in enumerate(scale.shape) if place != axis)
    return integers, scale.reshape(-1) if alone else None


def _bias(graph: Graph, node: Node) -> np.ndarray | str | None:
    """A convolution's bias as floats; "computed" where it is not known before running."""
    if node.op != "Conv" or node.own < 3 or node.inputs[2] is None:
        return None
    known = node.constant(2)
    if known is None:
        found = dequantised(graph, node.inputs[2])
        known = None if found is None else numbers(found)
    return "computed" if known is None else known.astype(np.float32).reshape(-1)


def _fold(graph: Graph) -> None:
    """Constants that something reads as floats, and that are stored as integers, are floats from now on."""
    for node in list(graph.nodes):
        found = dequantised(graph, node.output) if node.op == "Pointwise" else None
        array = None if found is None else numbers(found)
        if array is None or node.output in graph.outputs:
            continue
        output = node.output
        graph.replace(output, Value(output.name, output.shape, output.dtype, array.reshape(output.shape)))
        graph.remove(node)
