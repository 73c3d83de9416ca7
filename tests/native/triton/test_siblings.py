"""Products that read the same become one, whose slices are what they computed."""

from __future__ import annotations

import numpy as np

from wavefit.native.graph import Graph, Node, Value
from wavefit.native.layout import lay_out
from wavefit.native.pointwise import Apply, Pointwise
from wavefit.native.triton import siblings

ADD = Pointwise(operands=2, steps=(Apply(function="add", arguments=(0, 1)),))


def three(rng: np.random.Generator) -> tuple[Graph, list[Node]]:
    x = Value("x", (2, 5, 8), "float32")
    nodes = []
    for name, columns in (("q", 4), ("k", 6), ("v", 4)):
        weights = Value(f"{name}w", (8, columns), "float32", rng.standard_normal((8, columns), np.float32))
        bias = Value(f"{name}b", (columns,), "float32", rng.standard_normal(columns, np.float32))
        made = Value(name, (2, 5, columns), "float32")
        nodes.append(Node("MatMul", name, [x, weights, bias], [made], {}, ADD, own=2))
    total = Value("y", (2, 5, 14), "float32")
    end = Node("Concat", "end", [node.output for node in nodes], [total], {"axis": 2})
    return Graph([*nodes, end], [x], [total]), nodes


def test_one_product_and_its_slices():
    graph, before = three(np.random.default_rng(0))
    x = np.random.default_rng(1).standard_normal((2, 5, 8))
    want = {node.output.name: x @ node.inputs[1].constant + node.inputs[2].constant for node in before}
    assert siblings.run(graph) == 1
    product, *slices, _ = graph.nodes
    assert [node.op for node in graph.nodes] == ["MatMul", "Slice", "Slice", "Slice", "Concat"]
    whole = x @ product.inputs[1].constant + product.inputs[2].constant
    for part in slices:
        start, size = part.attributes["starts"][-1], part.output.shape[-1]
        np.testing.assert_allclose(whole[..., start : start + size], want[part.output.name], rtol=1e-12)
    assert set(product.source) == {"q", "k", "v"}


def test_the_slices_are_views():
    graph, _ = three(np.random.default_rng(0))
    graph.outputs = [
        graph.nodes[1].output
    ]  # one of them alone is wanted: a slice that is given out is copied
    graph.prune()
    assert siblings.run(graph) == 0
    graph, _ = three(np.random.default_rng(0))
    siblings.run(graph)
    layout = lay_out(graph, lambda operation: 1.0)
    storages = {layout.places[node.inputs[0]].storage for node in layout.nodes if node.op == "Copy"}
    assert len(storages) == 1


def test_products_of_other_inputs_or_with_computed_weights_are_left_alone():
    graph, nodes = three(np.random.default_rng(0))
    other = Value("x2", (2, 5, 8), "float32")
    graph.inputs.append(other)
    graph.rewire(nodes[0], [other, *nodes[0].inputs[1:]])
    nodes[1].inputs[1].constant = None
    assert siblings.run(graph) == 0
