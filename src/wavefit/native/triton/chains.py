"""A pass of this engine's own: convolutions with the 1x1 convolutions after them made one node, where that is faster.

Whether it is faster, the caller says: by measurements where there are some. It is asked of operations as layout will
make them, images channels-last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from wavefit.native.graph import Graph, Node, Value
from wavefit.native.operation import Operation, View, channels_last, row_major
from wavefit.native.passes._match import given

Pays = Callable[[Operation, list[Operation]], bool]
"""Whether a chain takes less time than its parts."""


def run(graph: Graph, pays: Pays) -> int:
    """Makes chains, longest first.

    Returns:
        How many were made.
    """
    made = 0
    for nodes in candidates(graph):
        if any(node not in graph.nodes for node in nodes):
            continue
        chain = _chain(graph, nodes)
        if pays(operation(chain), [operation(node) for node in nodes]) and _put(graph, nodes, chain):
            made += 1
    return made


def candidates(graph: Graph) -> Iterator[list[Node]]:
    """Runs of three and of two convolutions, in the graph's order, the longer first at each."""
    for node in list(graph.nodes):
        if not _able(node) or node not in graph.nodes:
            continue
        run_ = [node]
        while len(run_) < 3 and (following := _next(graph, run_)) is not None:
            run_.append(following)
        for length in range(len(run_), 1, -1):
            yield run_[:length]


def operations(graph: Graph) -> list[Operation]:
    """Of every candidate: what a tuner has to measure so that the pass can tell."""
    return [operation(_chain(graph, nodes)) for nodes in candidates(graph)]


def _next(graph: Graph, run_: list[Node]) -> Node | None:
    """The 1x1 convolution that reads what the last one makes; what lies before the last is read by it alone."""
    value = run_[-1].output
    if len(run_) == 1 and graph.only_user(value) is None:
        return None
    for user in graph.users(value):
        if _able(user) and _pointwise(user) and user.inputs[0] is value and user.inputs.count(value) == 1:
            return user
    return None


def _able(node: Node) -> bool:
    attributes = node.attributes
    return (
        node.op == "Conv"
        and len(node.outputs) == 1
        and len(node.output.shape) == 4
        and attributes["group"] == 1
        and "zero_point" not in attributes
        and node.constant(1) is not None
    )


def _pointwise(node: Node) -> bool:
    attributes, weights = node.attributes, given(node.inputs[1])
    return (
        all(size == 1 for size in weights.shape[2:])
        and all(step == 1 for step in attributes["strides"])
        and not any(attributes["pads"])
    )


def _chain(graph: Graph, nodes: list[Node]) -> Node:
    """The node that stands for a run; its outputs are what is read outside of it, the last part's among them."""
    inputs: list[Value | None] = [nodes[0].inputs[0]]
    outputs: list[Value] = []
    parts = []
    for number, node in enumerate(nodes):
        own = [value for value in node.inputs[1 : node.own] if value is not None]
        operands = [given(value) for value in node.inputs[node.own :]]
        places = [_place(inputs, value) for value in (*own, *operands)]
        outside = number == len(nodes) - 1 or _read_outside(graph, node.output, nodes)
        if outside:
            outputs.append(node.output)
        parts.append(
            {
                "weights": places[0],
                "bias": places[1] if len(own) > 1 else -1,
                "operands": places[len(own) :],
                "epilogue": node.epilogue,
                "output": len(outputs) - 1 if outside else -1,
            }
        )
    attributes = {name: nodes[0].attributes[name] for name in ("strides", "pads", "dilations")}
    sources = tuple(dict.fromkeys(name for node in nodes for name in node.source))
    return Node("Chain", nodes[0].name, inputs, outputs, {**attributes, "parts": parts}, source=sources)


def _place(inputs: list[Value | None], value: Value) -> int:
    inputs.append(value)
    return len(inputs) - 1


def _read_outside(graph: Graph, value: Value, nodes: list[Node]) -> bool:
    return value in graph.outputs or any(user not in nodes for user in graph.users(value))


def _put(graph: Graph, nodes: list[Node], chain: Node) -> bool:
    """Puts a chain before the first that reads what it makes; False where something that it reads is made later."""
    places = {id(node): place for place, node in enumerate(graph.nodes)}
    readers = [user for value in chain.outputs for user in graph.users(value) if user not in nodes]
    place = min((nodes[-1], *readers), key=lambda node: places[id(node)])
    makers = [graph.producer(value) for value in chain.inputs if value is not None]
    if any(places[id(maker)] >= places[id(place)] for maker in makers if maker is not None):
        return False
    graph.insert_before(place, chain)
    for node in nodes:
        graph.remove(node)
    return True


def operation(node: Node) -> Operation:
    """A node as layout will make it: images channels-last, weights as they are."""
    return Operation(
        op=node.op,
        inputs=tuple(
            None if value is None else _view(value, node.op == "Conv" and number == 1)
            for number, value in enumerate(node.inputs)
        ),
        outputs=tuple(_view(value) for value in node.outputs),
        attributes=node.attributes,
        constant=tuple(value is not None and value.constant is not None for value in node.inputs),
        own=node.own,
        epilogue=node.epilogue,
    )


def _view(value: Value, weights: bool = False) -> View:
    images = len(value.shape) == 4 and not weights
    strides = channels_last(value.shape) if images else row_major(value.shape)
    return View(shape=value.shape, strides=strides, dtype=value.dtype)
