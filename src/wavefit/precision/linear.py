"""Layers with constant weights, all seen alike: weights of groups x outputs x inputs x taps, and a bias an output.

Conv, ConvTranspose, Gemm and MatMul are the linear operators of ONNX whose weights may be constants. A bias is the
operator's own, or that of an Add with a constant vector right behind it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from wavefit.precision.graph import constant

if TYPE_CHECKING:
    import onnx_ir as ir

_OWN_BIAS = ("Conv", "ConvTranspose", "Gemm")
_FLOATS = (np.float32, np.float64)


@dataclass(frozen=True)
class Linear:
    """One layer. Its weight is always input 1 of the node.

    Args:
        node: the operator.
        groups: 1 but for grouped and depthwise convolutions.
        bias_node: the Add behind the operator that holds its bias; None where the operator holds it, or has none.
    """

    node: ir.Node
    groups: int
    bias_node: ir.Node | None = None

    @property
    def name(self) -> str:
        return str(self.node.name)

    @property
    def convolves(self) -> bool:
        return self.node.op_type in ("Conv", "ConvTranspose")

    @property
    def kernel(self) -> tuple[int, ...]:
        """The sizes of a convolution's window."""
        return _array(self.node, 1).shape[2:]

    @property
    def outputs(self) -> int:
        """Number of output channels over all groups."""
        groups, outputs = self.matrix().shape[:2]
        return int(groups * outputs)

    @property
    def result(self) -> ir.Value:
        """The value behind the bias."""
        return (self.bias_node or self.node).outputs[0]

    def matrix(self) -> np.ndarray:
        """The weights as groups x outputs x inputs x taps, the last three within a group."""
        return self.arranged(_array(self.node, 1))

    def arranged(self, weight: np.ndarray) -> np.ndarray:
        """An array in the layout of the operator's weight, as :meth:`matrix` has it."""
        if self.node.op_type == "Conv":
            outputs, inputs = weight.shape[:2]
            return weight.reshape(self.groups, outputs // self.groups, inputs, -1)
        if self.node.op_type == "ConvTranspose":
            inputs, outputs = weight.shape[:2]
            return weight.reshape(self.groups, inputs // self.groups, outputs, -1).swapaxes(1, 2)
        return (weight if self._transposed else weight.T)[None, :, :, None]

    def restored(self, matrix: np.ndarray) -> np.ndarray:
        """A matrix of :meth:`matrix`'s shape in the layout of the operator's weight."""
        shape = _array(self.node, 1).shape
        if self.node.op_type == "Conv":
            return matrix.reshape(shape)
        if self.node.op_type == "ConvTranspose":
            return matrix.swapaxes(1, 2).reshape(shape)
        flat = matrix[0, :, :, 0]
        return flat if self._transposed else flat.T

    def set_matrix(self, matrix: np.ndarray) -> None:
        """Stores new weights; a weight that other nodes use as well is left to them."""
        assign(self.node, 1, self.restored(matrix))

    def bias(self) -> np.ndarray | None:
        """The bias, shape (outputs,); None where the layer has none, or one that is no constant vector."""
        node, index = self._bias_place
        if node is None or index >= len(node.inputs) or node.inputs[index] is None:
            return None
        vector = _vector(constant(node.inputs[index]), self.outputs)
        return None if vector is None else vector * np.float32(self._beta)

    @property
    def has_foreign_bias(self) -> bool:
        """Whether something is added within the operator that is no constant vector."""
        node, index = self._bias_place
        present = node is not None and index < len(node.inputs) and node.inputs[index] is not None
        return present and self.bias() is None

    @property
    def can_have_bias(self) -> bool:
        """Whether :meth:`set_bias` works: not for a MatMul without an Add behind it."""
        node, _ = self._bias_place
        return node is not None and not self.has_foreign_bias and self._beta != 0

    def set_bias(self, bias: np.ndarray) -> None:
        """Stores a bias of shape (outputs,), in the operator's own input where it had none."""
        node, index = self._bias_place
        assert node is not None
        if index >= len(node.inputs):
            node.resize_inputs(index + 1)
        old = constant(node.inputs[index]) if node.inputs[index] is not None else None
        shape = (*(1 for _ in old.shape[:-1]), -1) if old is not None else (-1,)
        values = (bias / self._beta).astype(_array(self.node, 1).dtype)
        assign(node, index, values.reshape(shape), f"{self.name}_bias")

    @property
    def _bias_place(self) -> tuple[ir.Node | None, int]:
        if self.node.op_type in _OWN_BIAS:
            return self.node, 2
        if self.bias_node is None:
            return None, 0
        return self.bias_node, 1 if self.bias_node.inputs[0] is self.node.outputs[0] else 0

    @property
    def _beta(self) -> float:
        return float(attribute(self.node, "beta", 1.0)) if self.node.op_type == "Gemm" else 1.0

    @property
    def _transposed(self) -> bool:
        return self.node.op_type == "Gemm" and bool(attribute(self.node, "transB", 0))


def linear(node: ir.Node) -> Linear | None:
    """The layer that a node is; None where it is none, or its weights are computed or of another type than fp32."""
    if node.domain not in ("", "ai.onnx") or len(node.inputs) < 2:
        return None
    weight = constant(node.inputs[1])
    if weight is None or weight.dtype not in _FLOATS or not weight.size:
        return None
    if node.op_type in ("Conv", "ConvTranspose"):
        return Linear(node, int(attribute(node, "group", 1)))
    if node.op_type == "Gemm" and not attribute(node, "transA", 0):
        return Linear(node, 1)
    if node.op_type == "MatMul" and weight.ndim == 2:
        return Linear(node, 1, _bias_add(node, weight.shape[1]))
    return None


def linears(model: ir.Model) -> Iterator[Linear]:
    """The layers of the main graph in its order."""
    for node in model.graph:
        found = linear(node)
        if found is not None:
            yield found


def attribute(node: ir.Node, name: str, default: Any) -> Any:
    """An attribute's value, or what it is where it is left out."""
    found = node.attributes.get(name)
    return default if found is None else found.value


def assign(node: ir.Node, index: int, array: np.ndarray, name: str = "") -> None:
    """Makes an input of a node this constant; another user of the old one keeps the old one.

    Args:
        name: of a new initializer; after the old one where left out.
    """
    import onnx_ir as ir

    old, array = node.inputs[index], np.ascontiguousarray(array)
    alone = old is not None and len(list(old.uses())) == 1 and not old.is_graph_output()
    if old is not None and alone and old.is_initializer() and not old.is_graph_input():
        old.const_value = ir.tensor(array, name=old.name)
        old.shape = ir.Shape(array.shape)
        return
    graph = node.graph
    assert isinstance(graph, ir.Graph)
    wanted = name or f"{old.name if old is not None else node.name}_own"
    node.replace_input_with(index, new_constant(graph, wanted, array))


def new_constant(graph: ir.Graph, name: str, array: np.ndarray) -> ir.Value:
    """A new initializer, called by that name or one like it that is free."""
    import onnx_ir as ir

    free = free_name(graph, name)
    tensor = ir.tensor(np.asarray(array, order="C"), name=free)
    kind = ir.TensorType(tensor.dtype)
    value = ir.Value(name=free, shape=ir.Shape(array.shape), type=kind, const_value=tensor)
    graph.register_initializer(value)
    return value


def free_name(graph: ir.Graph, name: str) -> str:
    """That name, or one like it, which no value and no node of the graph and its bodies has."""
    taken = {value.name for value in (*graph.inputs, *graph.initializers.values())}
    for node in graph.all_nodes():
        taken.add(node.name)
        taken.update(value.name for value in node.outputs)
    free, number = name, 0
    while free in taken:
        number += 1
        free = f"{name}_{number}"
    return free


def only_user(value: ir.Value) -> ir.Node | None:
    """The one node that reads a value; None where there are several, or it is an output of the graph."""
    uses = list(value.uses())
    return uses[0].node if len(uses) == 1 and not value.is_graph_output() else None


def _bias_add(node: ir.Node, outputs: int) -> ir.Node | None:
    user = only_user(node.outputs[0])
    if user is None or user.op_type != "Add" or user.graph is not node.graph:
        return None
    other = user.inputs[1] if user.inputs[0] is node.outputs[0] else user.inputs[0]
    array = constant(other)
    shape = node.outputs[0].shape
    if array is None or (shape is not None and array.ndim > len(shape)):
        return None
    return user if _vector(array, outputs) is not None else None


def _vector(array: np.ndarray | None, size: int) -> np.ndarray | None:
    """A constant that is added to the last axis (or to a convolution's channels) as a vector of that size."""
    if array is None or array.dtype not in _FLOATS or array.size not in (1, size):
        return None
    if array.size == size and array.ndim and array.shape[-1] != size:
        return None
    return np.broadcast_to(array.reshape(-1), (size,))


def _array(node: ir.Node, index: int) -> np.ndarray:
    array = constant(node.inputs[index])
    assert array is not None
    return array
