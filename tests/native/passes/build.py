"""Small graphs by hand, and what is the same before and after a pass."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable

import numpy as np
from native.interpret import evaluate

from wavefit.native.graph import Graph, Node, Value
from wavefit.native.pointwise import Apply, Pointwise


class Builder:
    """Adds nodes one by one; each method returns the value that was made.

    Weights are float64 unless a test says otherwise, so that folding rounds no more than the evaluation does.
    """

    def __init__(self, seed: int = 0, dtype: str = "float64") -> None:
        self.dtype = dtype
        self.rng = np.random.default_rng(seed)
        self.nodes: list[Node] = []
        self.inputs: list[Value] = []

    def input(self, *shape: int, dtype: str = "float32") -> Value:
        value = Value(f"in{len(self.inputs)}", shape, dtype)
        self.inputs.append(value)
        return value

    def constant(self, array: object, dtype: str | None = None) -> Value:
        made = np.asarray(array, dtype or self.dtype)
        return Value(f"c{self.rng.integers(1 << 40)}", made.shape, made.dtype.name, made)

    def weights(self, *shape: int, low: float = -1.0, high: float = 1.0) -> Value:
        return self.constant(self.rng.uniform(low, high, shape))

    def node(
        self, op: str, inputs: list[Value | None], shape: tuple[int, ...], **attributes: object
    ) -> Value:
        name = f"{op}{len(self.nodes)}"
        dtype = str(attributes.pop("dtype", "float32"))
        output = Value(f"{name}:out", shape, dtype)
        self.nodes.append(Node(op, name, inputs, [output], attributes))
        return output

    def apply(self, function: str, *arguments: Value | float, dtype: str = "float32") -> Value:
        """One elementwise function."""
        values = [a for a in arguments if isinstance(a, Value)]
        numbers = iter(range(len(values)))
        step = Apply(
            function=function,
            arguments=tuple(next(numbers) if isinstance(a, Value) else a for a in arguments),
            dtype=dtype,
        )
        shape = np.broadcast_shapes(*(value.shape for value in values))
        output = self.node("Pointwise", list(values), shape, dtype=dtype)
        self.nodes[-1].epilogue = Pointwise(operands=len(values), steps=(step,))
        self.nodes[-1].own = 0
        return output

    def conv(
        self, x: Value, channels: int, kernel: int = 1, group: int = 1, bias: bool = False, pad: int = -1
    ) -> Value:
        pad = kernel // 2 if pad < 0 else pad
        weight = self.weights(channels, x.shape[1] // group, kernel, kernel)
        space = tuple(n + 2 * pad - kernel + 1 for n in x.shape[2:])
        return self.node(
            "Conv",
            [x, weight, self.weights(channels) if bias else None],
            (x.shape[0], channels, *space),
            strides=(1, 1),
            pads=(pad,) * 4,
            dilations=(1, 1),
            group=group,
        )

    def batch_norm(self, x: Value) -> Value:
        ones = (1,) * (len(x.shape) - 2)
        scaled = self.apply("mul", x, self.weights(x.shape[1], *ones, low=0.5, high=2.0))
        return self.apply("add", scaled, self.weights(x.shape[1], *ones))

    def matmul(self, a: Value, b: Value) -> Value:
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        return self.node("MatMul", [a, b], (*batch, a.shape[-2], b.shape[-1]))

    def reshape(self, x: Value, *shape: int) -> Value:
        return self.node("Reshape", [x], shape)

    def transpose(self, x: Value, *perm: int) -> Value:
        return self.node("Transpose", [x], tuple(x.shape[axis] for axis in perm), perm=perm)

    def reduce(self, x: Value, kind: str, *axes: int) -> Value:
        shape = tuple(1 if axis in axes else n for axis, n in enumerate(x.shape))
        return self.node("Reduce", [x], shape, kind=kind, axes=axes)

    def softmax(self, x: Value, axis: int) -> Value:
        return self.node("Softmax", [x], x.shape, axis=axis, log=False)

    def graph(self, *outputs: Value) -> Graph:
        return Graph(self.nodes, self.inputs, outputs)

    def feeds(self) -> dict[str, np.ndarray]:
        return {value.name: self._feed(value) for value in self.inputs}

    def _feed(self, value: Value) -> np.ndarray:
        if value.dtype == "bool":
            return self.rng.random(value.shape) < 0.5
        return self.rng.standard_normal(value.shape)


def ops(graph: Graph) -> dict[str, int]:
    return dict(Counter(node.op for node in graph.nodes))


def same_after(
    change: Callable[[Graph], object], graph: Graph, feeds: dict[str, np.ndarray], tolerance: float = 1e-12
) -> None:
    """Changes the graph, and holds it to the answers, names, types and order that it had."""
    before = evaluate(copy.deepcopy(graph), feeds)
    outputs = [(value.name, value.shape, value.dtype) for value in graph.outputs]
    change(graph)
    check_order(graph)
    assert [(value.name, value.shape, value.dtype) for value in graph.outputs] == outputs
    for want, have in zip(before, evaluate(graph, feeds), strict=True):
        finite = np.isfinite(want) & np.isfinite(have)
        assert np.array_equal(want[~finite], have[~finite], equal_nan=True)
        off = want[finite].astype(float) - have[finite]
        assert np.linalg.norm(off) <= tolerance * (np.linalg.norm(want[finite]) or 1.0)


def check_order(graph: Graph) -> None:
    """Every node reads what is there before it, and no name is used twice."""
    made = set(graph.inputs)
    names = [value.name for value in graph.inputs]
    for node in graph.nodes:
        assert all(v is None or v.constant is not None or v in made for v in node.inputs), node.name
        epilogue = node.epilogue
        operands = 0 if epilogue is None else epilogue.operands - (node.op != "Pointwise")
        assert len(node.inputs) - node.own == operands, node.name
        made.update(node.outputs)
        names += [value.name for value in node.outputs]
    assert len(names) == len(set(names))
    assert all(value in made or value.constant is not None for value in graph.outputs)
