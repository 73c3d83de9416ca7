"""Which constants become literals."""

from __future__ import annotations

import numpy as np
import pytest
from native.passes.build import Builder, same_after

from wavefit.native.passes import scalars


@pytest.mark.parametrize(
    ("array", "literal"),
    [
        (np.full((2, 3), 0.1, np.float32), True),
        (np.float32(0.1), False),  # left as the importer left it
        (np.array([0.1, 0.1, 0.2], np.float32), False),
        (np.full(3, np.inf, np.float32), False),  # no key could hold it
    ],
)
def test_constants_of_one_number(array, literal):
    build = Builder()
    graph = build.graph(build.apply("add", build.input(2, 3), build.constant(array, "float32")))
    same_after(scalars.run, graph, build.feeds())
    node = graph.nodes[0]
    assert len(node.inputs) == (1 if literal else 2)
    assert (float(np.float32(0.1)) in node.epilogue.steps[0].arguments) == literal


def test_an_epilogue_takes_them_too():
    build = Builder()
    x = build.input(1, 2, 3, 3)
    y = build.conv(x, 4)
    y = build.apply("sub", y, build.constant(np.full((4, 1, 1), 2.0), "float32"))
    graph = build.graph(y)
    conv, sub = graph.nodes
    conv.epilogue, conv.inputs = sub.epilogue, [*conv.inputs, sub.inputs[1]]
    graph.substitute(sub, conv)
    same_after(scalars.run, graph, build.feeds())
    assert conv.epilogue.steps[0].arguments == (0, 2.0)


def test_the_last_operand_stays():
    build = Builder()
    graph = build.graph(build.apply("exp", build.constant(np.zeros(3))))
    scalars.run(graph)
    assert len(graph.nodes[0].inputs) == 1


def test_a_condition_is_no_number():
    build = Builder()
    condition = build.constant(np.ones(3), "bool")
    graph = build.graph(build.apply("where", condition, build.input(3), 0.0))
    scalars.run(graph)
    assert len(graph.nodes[0].inputs) == 2
