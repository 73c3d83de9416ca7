"""Chains of convolutions in one launch, against their parts in float64, one after another."""

from __future__ import annotations

import numpy as np
import pytest
from native.triton.harness import run  # type: ignore[import-not-found]

from wavefit.native.graph import Graph, Node, Value
from wavefit.native.pointwise import Apply, Pointwise
from wavefit.native.reference import compute
from wavefit.native.triton import chains, kernels

RELU = Pointwise(operands=1, steps=(Apply(function="relu", arguments=(0,)),))
ADD_RELU = Pointwise(
    operands=2, steps=(Apply(function="add", arguments=(0, 1)), Apply(function="relu", arguments=(2,)))
)
CONFIG = {"m": 16, "k": 16, "n": 16, "warps": 2, "stages": 1}


def bottleneck(
    middle: int, wide: int, following: int, batch: int = 1, size: int = 5, stride: int = 1
) -> Graph:
    """3x3, expand with a residual, and the next block's reduce; the expanded image is read by somebody else too."""
    rng = np.random.default_rng(3)

    def constant(name: str, *shape: int) -> Value:
        return Value(name, shape, "float16", (rng.standard_normal(shape) * 0.2).astype(np.float16))

    def conv(
        name: str, source: Value, outs: int, kernel: int, step: int = 1, more: tuple[Value, ...] = ()
    ) -> Node:
        edge = (source.shape[2] - 1) // step + 1
        made = Value(f"{name}/y", (source.shape[0], outs, edge, edge), "float16")
        inputs = [
            source,
            constant(f"{name}/w", outs, source.shape[1], kernel, kernel),
            constant(f"{name}/b", outs),
        ]
        attributes = {
            "strides": (step,) * 2,
            "pads": (kernel // 2,) * 4,
            "dilations": (1, 1),
            "group": 1,
        }
        return Node("Conv", name, [*inputs, *more], [made], attributes, ADD_RELU if more else RELU, own=3)

    x = Value("x", (batch, middle, size, size), "float16")
    edge = (size - 1) // stride + 1
    residual = Value("residual", (batch, wide, edge, edge), "float16")
    first = conv("first", x, middle, 3, stride)
    expand = conv("expand", first.output, wide, 1, more=(residual,))
    reduce = conv("reduce", expand.output, following, 1)
    other = conv("other", expand.output, 16, 1, 2)
    return Graph([first, expand, reduce, other], [x, residual], [reduce.output, other.output])


def parts_of(graph: Graph, given: dict[Value, np.ndarray]) -> dict[Value, np.ndarray]:
    """Every value, in float64, rounded to half where the engine stores it."""
    values = dict(given)
    for node in graph.nodes:
        arrays = [values.get(v, v.constant) for v in node.inputs if v is not None]
        values[node.output] = compute(chains.operation(node), arrays).astype(np.float16)
    return values


@pytest.mark.parametrize("sizes", [(16, 32, 16), (32, 48, 16), (16, 64, 32)])
@pytest.mark.parametrize("length", [2, 3])
def test_what_the_parts_compute(sizes, length):
    graph = bottleneck(*sizes, batch=2)
    x, residual = graph.inputs
    rng = np.random.default_rng(1)
    given = {value: rng.standard_normal(value.shape).astype(np.float16) for value in (x, residual)}
    want = parts_of(graph, given)
    nodes = next(nodes for nodes in chains.candidates(graph) if len(nodes) == length)
    kept = list(nodes)
    assert chains.run(graph, lambda chain, apart: len(apart) == length) == 1
    (chain,) = (node for node in graph.nodes if node.op == "Chain")
    operation = chains.operation(chain)
    assert kernels.get("chain").claims(operation)
    arrays = [
        given.get(value, value.constant) if value in given else value.constant for value in chain.inputs
    ]
    got = run("chain", operation, CONFIG, arrays)
    for value, array in zip(chain.outputs, got, strict=True):
        exact = want[value].astype(np.float64)
        assert np.linalg.norm(array - exact) <= 3e-3 * np.linalg.norm(exact), value.name
    assert kept[-1].output in chain.outputs


def test_a_chain_is_put_before_whoever_reads_what_it_makes():
    graph = bottleneck(16, 32, 16)
    other = graph.nodes.pop()
    graph.nodes.insert(2, other)  # reads the expanded image before the last part does
    graph.changed()
    assert chains.run(graph, lambda chain, apart: len(apart) == 3) == 1
    assert [node.op for node in graph.nodes] == ["Chain", "Conv"]


def test_nothing_is_chained_that_does_not_pay():
    graph = bottleneck(16, 32, 16)
    assert chains.run(graph, lambda chain, apart: False) == 0
    assert [node.op for node in graph.nodes] == ["Conv"] * 4
