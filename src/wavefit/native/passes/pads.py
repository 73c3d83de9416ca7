"""A Pad is done by the convolution or pool that reads it."""

from __future__ import annotations

from wavefit.native.graph import Graph, Node
from wavefit.native.passes._match import given

_NEVER_NEGATIVE = frozenset(("relu", "sigmoid", "abs", "fabs", "sqrt", "exp"))


def run(graph: Graph) -> int:
    """Adds constant padding of the spatial axes to the pads of the only node that reads it.

    A convolution takes zeros; an average pool zeros that it counts; a max pool what no element is less than.

    Returns:
        How many Pad nodes were taken out.
    """
    return sum(_into_user(graph, node) for node in list(graph.nodes) if node.op == "Pad")


def _into_user(graph: Graph, pad: Node) -> int:
    user = graph.only_user(pad.output)
    if user is None or user.inputs[0] is not pad.output or user.inputs.count(pad.output) > 1:
        return 0
    begins, ends = _spatial(pad)
    if pad.attributes["mode"] != "constant" or pad.epilogue is not None or min(begins + ends, default=-1) < 0:
        return 0
    value = float(pad.attributes["value"])
    taken = {"Conv": _conv, "AveragePool": _average, "MaxPool": _maximum}.get(user.op)
    if taken is None or not taken(graph, pad, user, value):
        return 0
    half = len(begins)
    old = user.attributes["pads"]
    pads = (
        *(a + b for a, b in zip(old[:half], begins, strict=True)),
        *(a + b for a, b in zip(old[half:], ends, strict=True)),
    )
    user.attributes = {**user.attributes, "pads": pads}
    if user.op == "AveragePool":
        user.attributes["count_include_pad"] = 1
    user.source = (*pad.source, *user.source)
    graph.rewire(user, [pad.inputs[0], *user.inputs[1:]])
    graph.remove(pad)
    return 1


def _spatial(pad: Node) -> tuple[list[int], list[int]]:
    """Pads before and after each axis but the first two; empty where those are padded."""
    pads = [int(n) for n in pad.attributes["pads"]]
    half = len(pads) // 2
    begins, ends = pads[:half], pads[half:]
    return ([], []) if any(begins[:2] + ends[:2]) else (begins[2:], ends[2:])


def _conv(graph: Graph, pad: Node, user: Node, value: float) -> bool:
    return value == 0


def _average(graph: Graph, pad: Node, user: Node, value: float) -> bool:
    """What the pool pads itself must be counted too, as the zeros of the Pad are."""
    return value == 0 and (bool(user.attributes["count_include_pad"]) or not any(user.attributes["pads"]))


def _maximum(graph: Graph, pad: Node, user: Node, value: float) -> bool:
    """Padding that is never the maximum: minus infinity, or zeros beside elements that are never negative.

    Every window must have an element of its own, and an index that the pool gives out counts the padding.
    """
    begins, ends = _spatial(pad)
    kernel = [(size - 1) * step for size, step in _windows(user)]
    own = user.attributes["pads"]
    reach = [own[n] + n_pad for n, n_pad in enumerate(begins + ends)]
    inside = all(reach[n] <= kernel[n % len(kernel)] for n in range(len(reach)))
    if not inside or len(user.outputs) > 1:
        return False
    return value == float("-inf") or (value == 0 and _never_negative(graph, pad))


def _windows(user: Node) -> list[tuple[int, int]]:
    return list(zip(user.attributes["kernel_shape"], user.attributes["dilations"], strict=True))


def _never_negative(graph: Graph, pad: Node) -> bool:
    maker = graph.producer(given(pad.inputs[0]))
    if maker is None or maker.epilogue is None or not maker.epilogue.steps:
        return False
    last = maker.epilogue.steps[-1]
    if last.function in _NEVER_NEGATIVE:
        return True
    low = last.arguments[1] if last.function == "clip" else None
    return isinstance(low, float) and low >= 0
