"""A graph as the planner walks it: steps in the order of nodes, and the bytes of every tensor."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from wavefit.model import graph as walk
from wavefit.model.cost import check_shapes, node_costs
from wavefit.model.inference import infer
from wavefit.model.values import Value
from wavefit.schema import Model, NodeCost

_FLOAT_BITS = 32
Shapes = Mapping[str, tuple[int, ...]]


class Step(NamedTuple):
    """One node: the tensors that it reads and writes, and what it costs. Weights are read, not kept alive."""

    op: str
    inputs: tuple[str, ...]
    weights: tuple[str, ...]
    outputs: tuple[str, ...]
    cost: NodeCost
    attributes: Mapping[str, Any] = {}  # whole numbers only: "transB"


@dataclass(frozen=True)
class Trace:
    """A model at one set of input shapes.

    Args:
        steps: the nodes, in the graph's order, constants left out.
        bytes: of every tensor, weights included; None where its shape depends on the data.
        shapes: of every tensor whose shape is known.
        floats: tensors of 32-bit elements, which a lower precision narrows.
        inputs: of the model, by name.
        outputs: of the model, by name.
    """

    steps: tuple[Step, ...]
    bytes: Mapping[str, int | None]
    shapes: Mapping[str, tuple[int, ...]]
    floats: frozenset[str]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def weights(self) -> dict[str, int]:
        """Every weight that a node reads, once, in the order in which they are first read."""
        names = dict.fromkeys(name for step in self.steps for name in step.weights)
        return {name: self.bytes.get(name) or 0 for name in names}

    @property
    def input_bytes(self) -> int:
        return sum(self.bytes.get(name) or 0 for name in self.inputs)

    @property
    def output_bytes(self) -> int:
        return sum(self.bytes.get(name) or 0 for name in self.outputs)


def trace(model: Model, shapes: Shapes) -> Trace:
    """Walks the graph at these shapes; nothing is run and no big weight is read.

    Raises:
        InputError: the shapes cannot go through the model's nodes.
    """
    check_shapes(model, shapes)
    nodes, values = infer(Path(model.path), shapes)
    inputs = tuple(spec.name for spec in model.inputs)
    made = {name for node in nodes if node.op_type != "Constant" for name in node.output if name}
    costs = node_costs(nodes, values)
    steps = tuple(
        _step(node, each, {*made, *inputs})
        for node, each in zip(nodes, costs, strict=True)
        if node.op_type != "Constant"
    )
    return Trace(
        steps=steps,
        bytes={name: size(value) for name, value in values.items()},
        shapes={name: value.shape for name, value in values.items() if value.shape is not None},
        floats=frozenset(name for name, value in values.items() if value.bits == _FLOAT_BITS),
        inputs=inputs,
        outputs=tuple(spec.name for spec in model.outputs),
    )


def narrowed(found: Trace, element_bytes: int) -> Trace:
    """The same graph with every 32-bit tensor at so many bytes an element, its nodes' bytes in proportion."""
    if element_bytes * 8 == _FLOAT_BITS:
        return found
    share = element_bytes * 8 / _FLOAT_BITS
    sizes = {
        name: size if size is None or name not in found.floats else math.ceil(size * share)
        for name, size in found.bytes.items()
    }
    steps = tuple(step._replace(cost=_narrow(step.cost, share)) for step in found.steps)
    return replace(found, steps=steps, bytes=sizes)


def _narrow(node: NodeCost, share: float) -> NodeCost:
    return node if node.bytes is None else msgspec.structs.replace(node, bytes=math.ceil(node.bytes * share))


def _step(node: Any, each: NodeCost, activations: set[str]) -> Step:
    reads = tuple(dict.fromkeys((*(name for name in node.input if name), *_captured(node))))
    return Step(
        op=node.op_type,
        inputs=tuple(name for name in reads if name in activations),
        weights=tuple(name for name in reads if name not in activations),
        outputs=tuple(name for name in node.output if name),
        cost=each,
        attributes={a.name: a.i for a in node.attribute if a.HasField("i")},
    )


def _captured(node: Any) -> Sequence[str]:
    """What the bodies of If, Loop and Scan read from outside of them."""
    inner = [entry for body in walk.bodies(node) for entry in walk.nodes(body)]
    own = {name for entry in inner for name in entry.output}
    return [name for entry in inner for name in entry.input if name and name not in own]


def size(value: Value) -> int | None:
    """Bytes of a tensor; None where its shape or type is unknown."""
    if value.shape is None or value.bits is None:
        return None
    return -(-math.prod(value.shape) * value.bits // 8)
