"""A graph of fp32 that rounds where a lower precision would: what half does to a model's answers, without half."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from wavefit.precision.half.overflow import checked
from wavefit.precision.half.rewire import (
    add_cast,
    add_constant,
    drop_unused,
    half,
    is_constant,
    prepared,
    replace,
)
from wavefit.precision.half.types import NAMES, Slots, dtype, require_cast, slots
from wavefit.precision.names import Names
from wavefit.schema import Precision

if TYPE_CHECKING:
    import onnx_ir as ir


def emulated(model: ir.Model, assignment: Mapping[str, Precision]) -> ir.Model:
    """A copy in which every node assigned fp16 or bf16 rounds what it reads and what it makes, by Casts to half and
    back; names of nodes, inputs, outputs and values are the model's.

    Storage and results are half, and so are sums inside an operator, as far as that they overflow (see
    :mod:`wavefit.precision.half.overflow`); those of MatMul, Gemm and Conv are fp32: what matrix cores do. Constants
    are rounded in the initializer. A node whose definition admits no half is left as it is, and so is one assigned
    fp32 or int8. Rounding is IEEE 754's, to nearest with ties to even, Inf past the largest: ONNX Runtime's CPU Cast
    equals numpy's bit for bit.

    Args:
        model: from :func:`wavefit.precision.graph.load`; not changed.
        assignment: precisions by node name; fp32 for the rest.

    Raises:
        InputError: no node has that name, or the model's opset has no Cast to that type.
    """
    edited = prepared(model, assignment)
    lows = {low for low in assignment.values() if low in NAMES}
    for low in sorted(lows):
        require_cast(model, low)
    rounding = _Rounding(edited)
    for node in list(edited.graph):
        low = assignment.get(str(node.name), "fp32")
        if low in lows:
            rounding.lower(node, low, slots(node, edited, low))
    drop_unused(edited.graph)
    return edited


class _Rounding:
    """Rounds values of one graph, each once."""

    def __init__(self, model: ir.Model) -> None:
        self._model = model
        self._graph = model.graph
        self._names = Names(model)
        self._opset = model.opset_imports.get("", 0)
        self._rounded: dict[tuple[str, str], ir.Value] = {}

    def lower(self, node: ir.Node, low: str, found: Slots) -> None:
        for index in sorted(found.inputs):
            value = node.inputs[index]
            if value is not None:
                rounded = self._round_input(value, low)
                if index == 0:
                    rounded = checked(node, rounded, low, self._names, self._opset)
                node.replace_input_with(index, rounded)
        for index in sorted(found.outputs):
            self._round_output(node.outputs[index], low)

    def _round_input(self, value: ir.Value, low: str) -> ir.Value:
        """The rounded value, made where it is not there yet."""
        key = (str(value.name), low)
        if key not in self._rounded:
            name = self._names.fresh(f"{value.name}_{NAMES[low]}")
            if is_constant(value) and value.const_value is not None:
                array = half(value.const_value.numpy(), low).astype("float32")
                self._rounded[key] = add_constant(self._graph, name, array)
            else:
                self._rounded[key] = self._round(value, low, name)
        return self._rounded[key]

    def _round_output(self, value: ir.Value, low: str) -> None:
        """What all readers of the value see is rounded, and bears its name."""
        name = str(value.name)
        value.name = self._names.fresh(f"{name}_unrounded")
        readers = list(value.uses())
        output = self._round(value, low, name)
        for use in readers:
            use.node.replace_input_with(use.idx, output)
        if value.is_graph_output():
            replace(self._model, value, output)
        self._rounded[name, low] = output

    def _round(self, value: ir.Value, low: str, name: str) -> ir.Value:
        import onnx_ir as ir

        middle = self._names.fresh(f"{name}_{NAMES[low]}_bits")
        down = add_cast(self._graph, value, dtype(low), middle, self._names.fresh(f"{name}_down"))
        return add_cast(self._graph, down, ir.DataType.FLOAT, name, self._names.fresh(f"{name}_up"))
