"""From an ONNX file to the engine's graph: every shape a number, constants computed, operators in canonical form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wavefit.errors import InputError
from wavefit.model.graph import DEFAULT_DOMAINS, printable
from wavefit.native.graph import Graph, Node, Value
from wavefit.native.onnx_ops import operators
from wavefit.native.onnx_ops._call import Call
from wavefit.native.onnx_ops._fold import fold
from wavefit.native.onnx_ops._infer import Type, infer
from wavefit.native.onnx_ops._read import read
from wavefit.native.onnx_ops.refused import REFUSED
from wavefit.native.opencl.c import STORED
from wavefit.native.operation import UnsupportedNode

if TYPE_CHECKING:
    import onnx_ir as ir


def load(
    source: Path | ir.Model, shapes: Mapping[str, tuple[int, ...]]
) -> Graph | tuple[UnsupportedNode, ...]:
    """Reads a checked ONNX file at fixed input shapes.

    Args:
        source: the file; or a model as :func:`wavefit.native.onnx_ops._read.read` gives it.
        shapes: of every input that a caller gives, by name.

    Returns:
        The graph, or all nodes that the engine cannot run.

    Raises:
        InputError: onnx-ir is missing; the shapes are not those of the inputs, or do not go through the
            graph; the graph is empty or cyclic.
    """
    walk = Walk(read(source) if isinstance(source, Path) else source, shapes)
    return tuple(walk.unsupported) if walk.unsupported else walk.graph()


class Walk:
    """Visits nodes in order. A value whose type is not known, behind a node that cannot run, is not in ``values``.

    Args:
        model: as read.
        shapes: of every input.

    Attributes:
        unsupported: what cannot run, and why.
        stuck: the nodes that cannot run, and those behind them of whose inputs too little is known.
        values: what is known of each tensor: its type, and its elements where they follow from the shapes.
    """

    def __init__(self, model: ir.Model, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self._model = model
        self.values: dict[ir.Value, Value] = {}
        self._names: set[str] = set()
        self._nodes: list[Node] = []
        self._inputs: list[Value] = []
        self.unsupported: list[UnsupportedNode] = []
        self.stuck: set[ir.Node] = set()
        self._enter(shapes)
        self._visit_all(model.graph)

    def _enter(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Makes the inputs of the graph."""
        from wavefit.native.onnx_ops._inputs import bind

        for given, shape in bind(self._model.graph, shapes):
            value = Value(self._unique(str(given.name)), shape, dtype_of(given))
            self._inputs.append(value)
            self.values[given] = value
            if value.dtype not in STORED:
                self._refuse(str(given.name), "input", _not_stored(value.dtype))

    def _visit_all(self, graph: Iterable[ir.Node]) -> None:
        for node in graph:
            if any(value.uses() or value.is_graph_output() for value in node.outputs):
                self._visit(node)

    def graph(self) -> Graph:
        """What was made, each output under its own name."""
        outputs: list[Value] = []
        for wanted in self._model.graph.outputs:
            value, name = self._value(wanted), str(wanted.name)
            assert value is not None
            free = value not in outputs and value not in self._inputs and value.constant is None
            if value.name != name and free:
                value.name = name
            elif value.name != name or value in outputs:
                value = self._copy(value, name)
            outputs.append(value)
        graph = Graph(self._nodes, self._inputs, outputs)
        graph.prune()
        return graph

    def _copy(self, value: Value, name: str) -> Value:
        copy = Value(name, value.shape, value.dtype, value.constant)
        if value.constant is None:
            self._nodes.append(Node("Copy", f"{name}:copy", [value], [copy]))
        return copy

    # ---- one node ---------------------------------------------------------------------------------------------------

    def _visit(self, node: ir.Node) -> None:
        op = node.op_type if node.domain in DEFAULT_DOMAINS else f"{node.domain}.{node.op_type}"
        if op == "If":
            self._branch(node)
            return
        name = self._node_name(node)
        handler = operators().get(op)
        inputs = [None if value is None else self._value(value) for value in node.inputs]
        lost = any(
            value is not None and not _absent(value) and found is None
            for value, found in zip(node.inputs, inputs, strict=True)
        )
        if lost:  # behind an unsupported node: all that can be said is whether the operator is known
            self.stuck.add(node)
            if handler is None:
                self._refuse(name, op, _unknown(op))
            return
        opset = node.version or self._model.opset_imports.get(node.domain, 1)
        types = infer(node, inputs, opset, op, name)
        folded = fold(node, inputs, types, opset)
        if folded is not None:
            for output, array in zip(node.outputs, folded, strict=True):
                self.values[output] = Value(
                    self._unique(str(output.name)), array.shape, array.dtype.name, array
                )
            return
        outputs = [self._output(value, kind) for value, kind in zip(node.outputs, types, strict=True)]
        call = Call(name, op, opset, _attributes(node), inputs, outputs)
        if handler is not None and (_known(op, types) or op in REFUSED):
            reason = handler(call)
        else:
            reason = _unknown_or_open(op, handler)
        self._take(node, call, reason or _stored(call))

    def _take(self, node: ir.Node, call: Call, reason: str | None) -> None:
        if reason is not None:
            self._refuse(call.name, call.op, reason)
            self.stuck.add(node)
        else:
            self._nodes += call.nodes
        for value, made in zip(node.outputs, call.outputs, strict=True):
            if made is not None:
                self.values[value] = made

    def _branch(self, node: ir.Node) -> None:
        """An If whose condition is known is the branch that is taken."""
        name = self._node_name(node)
        condition = None if node.inputs[0] is None else self._value(node.inputs[0])
        if condition is None or condition.constant is None:
            self._refuse(name, "If", "its condition depends on the data")
            self.stuck.add(node)
            return
        chosen = "then_branch" if condition.constant.reshape(-1)[0] else "else_branch"
        branch = node.attributes[chosen].as_graph()
        self._visit_all(branch)
        for output, inner in zip(node.outputs, branch.outputs, strict=True):
            value = self._value(inner)
            if value is not None:
                self.values[output] = value

    def _value(self, value: ir.Value) -> Value | None:
        """What stands for a value; an initializer's is made when it is first read."""
        if value not in self.values and value.const_value is not None and value.producer() is None:
            array = value.const_value.numpy()
            self.values[value] = Value(self._unique(str(value.name)), array.shape, array.dtype.name, array)
        return self.values.get(value)

    def _output(self, value: ir.Value, kind: Type | None) -> Value | None:
        if _absent(value) or kind is None or not (value.uses() or value.is_graph_output()):
            return None
        return Value(self._unique(str(value.name)), *kind)

    def _node_name(self, node: ir.Node) -> str:
        name = node.name or next((value.name for value in node.outputs if value.name), None) or node.op_type
        return self._unique(f"{name}", "node ")

    def _unique(self, name: str, kind: str = "") -> str:
        made, number = name, 1
        while kind + made in self._names:
            number += 1
            made = f"{name}_{number}"
        self._names.add(kind + made)
        return made

    def _refuse(self, node: str, op: str, reason: str) -> None:
        self.unsupported.append(UnsupportedNode(node=node, op=op, reason=reason))


def dtype_of(value: ir.Value) -> str:
    """numpy's name of a value's type."""
    if value.dtype is None:
        raise InputError(
            f"input {printable(str(value.name))!r} has no element type", "export the model again"
        )
    return "string" if value.dtype.name == "STRING" else str(value.dtype.numpy().name)


def _absent(value: ir.Value) -> bool:
    return not value.name


def _attributes(node: ir.Node) -> dict[str, Any]:
    return {name: attribute.value for name, attribute in node.attributes.items()}


def _known(op: str, types: list[Type | None]) -> bool:
    """Whether the first output's type is known; operators of other domains say it themselves."""
    return types[0] is not None or "." in op


def _unknown(op: str) -> str:
    return f"the engine has no operator {op}"


def _unknown_or_open(op: str, handler: object) -> str:
    return _unknown(op) if handler is None else "its output's shape depends on the data"


def _stored(call: Call) -> str | None:
    """Why a tensor of the call's nodes cannot be held; None where all can.

    What comes in computed was refused where it was made, and is not refused again.
    """
    values = [value for node in call.nodes for value in (*node.inputs, *node.outputs) if value is not None]
    wrong = {value.dtype for value in values if value.dtype not in STORED}
    before = {value.dtype for value in call.inputs if value is not None and value.constant is None}
    return None if not wrong - before else _not_stored(min(wrong - before))


def _not_stored(dtype: str) -> str:
    return f"the engine holds no {dtype} tensors"
