"""The engine's graph: nodes with every shape known, changed in place by passes.

A :class:`Value` is a tensor of fixed shape; a :class:`Node` an operator of ONNX, or one that a pass made (its ``op``
says which). ``epilogue`` is an elementwise expression that is applied to the node's result before it is stored: its
operand 0 is that result, and its further operands are the node's last inputs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from wavefit.native.pointwise import Pointwise


@dataclass(eq=False)
class Value:
    """A tensor of fixed shape.

    Args:
        name: unique in its graph.
        shape: as ONNX has it (an image is N, C, H, W whatever its layout in memory).
        dtype: numpy's name: "float32", "float16", "int64", "bool".
        constant: its elements, where they are known before running.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    constant: np.ndarray | None = None

    @property
    def size(self) -> int:
        """Elements."""
        return int(np.prod(self.shape, dtype=np.int64))


@dataclass(eq=False)
class Node:
    """One operator.

    Args:
        op: "Conv", "MatMul", "Pointwise", "Attention"...
        name: of the ONNX node that it stands for, or the first of them.
        inputs: its own, None for an optional one that is left out, then those of the epilogue.
        outputs: what it makes; unused optional ones are left out.
        attributes: numbers, strings and tuples of them, defaults filled in where the importer knows them.
        own: how many of ``inputs`` are its own.
        source: names of all ONNX nodes that it stands for.
    """

    op: str
    name: str
    inputs: list[Value | None]
    outputs: list[Value]
    attributes: dict[str, Any] = field(default_factory=dict)
    epilogue: Pointwise | None = None
    own: int = -1
    source: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.own = len(self.inputs) if self.own < 0 else self.own
        self.source = self.source or (self.name,)

    @property
    def output(self) -> Value:
        """The first output."""
        return self.outputs[0]

    def constant(self, index: int) -> np.ndarray | None:
        """The elements of an input; None where it is left out or computed."""
        value = self.inputs[index] if index < len(self.inputs) else None
        return None if value is None else value.constant


class Graph:
    """Nodes in an order in which they can run.

    Who makes and who reads a value is looked up in tables that are built when they are asked for. The methods that
    change the graph drop them; who changes ``nodes`` or a node's inputs directly calls :meth:`changed`.

    Args:
        nodes: every input of a node is a constant, an input of the graph, or made by a node before it.
        inputs: what is given.
        outputs: what is wanted, in the model's order.
    """

    def __init__(self, nodes: Iterable[Node], inputs: Iterable[Value], outputs: Iterable[Value]) -> None:
        self.nodes = list(nodes)
        self.inputs = list(inputs)
        self.outputs = list(outputs)
        self._producers: dict[Value, Node] = {}
        self._users: dict[Value, list[Node]] = {}
        self._known = -1  # nodes when the tables were built

    def producer(self, value: Value) -> Node | None:
        """The node that makes it."""
        self._look()
        return self._producers.get(value)

    def users(self, value: Value) -> list[Node]:
        """The nodes that read it, each once, in order."""
        self._look()
        return list(self._users.get(value, ()))

    def only_user(self, value: Value) -> Node | None:
        """The one node that reads it; None where several do, none does, or the graph gives it out."""
        users = self.users(value)
        return users[0] if len(users) == 1 and value not in self.outputs else None

    def replace(self, old: Value, new: Value) -> None:
        """Lets every reader of ``old`` read ``new``. An output of the graph loses its name: see :meth:`bypass`."""
        for node in self.users(old):
            node.inputs = [new if value is old else value for value in node.inputs]
        self.outputs = [new if value is old else value for value in self.outputs]
        self.changed()

    def bypass(self, node: Node) -> bool:
        """Takes out a node whose output equals its first input; what the graph gives out keeps its name.

        False, and nothing changed, where an output of the graph would have to bear two names.
        """
        old, new = node.output, node.inputs[0]
        assert new is not None
        if old in self.outputs:
            if new.constant is not None or new in self.inputs or new in self.outputs:
                return False
            old.name, new.name = new.name, old.name
        self.replace(old, new)
        self.remove(node)
        return True

    def rewire(self, node: Node, inputs: Iterable[Value | None]) -> None:
        """Gives a node other inputs."""
        node.inputs = list(inputs)
        self.changed()

    def substitute(self, old: Node, new: Node) -> None:
        """Puts a node where another is, whose outputs it makes from now on. It may have stood at an earlier place."""
        new.outputs = old.outputs
        new.source = tuple(dict.fromkeys((*new.source, *old.source)))
        self.nodes = [new if node is old else node for node in self.nodes if node is not new]
        self.changed()

    def remove(self, node: Node) -> None:
        self.nodes.remove(node)
        self.changed()

    def insert_before(self, place: Node, node: Node) -> None:
        self.nodes.insert(self.nodes.index(place), node)
        self.changed()

    def prune(self) -> None:
        """Takes out the nodes whose outputs nobody reads."""
        wanted = set(self.outputs)
        kept = []
        for node in reversed(self.nodes):
            if any(value in wanted for value in node.outputs):
                kept.append(node)
                wanted.update(value for value in node.inputs if value is not None)
        self.nodes = kept[::-1]
        self.changed()

    def changed(self) -> None:
        """Says that nodes, or their inputs or outputs, are others than before."""
        self._known = -1

    def _look(self) -> None:
        if self._known == len(self.nodes):
            return
        self._producers = {value: node for node in self.nodes for value in node.outputs}
        self._users = {}
        for node in self.nodes:
            for value in dict.fromkeys(node.inputs):
                if value is not None:
                    self._users.setdefault(value, []).append(node)
        self._known = len(self.nodes)
