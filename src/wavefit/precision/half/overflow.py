"""Sums inside an operator that would overflow in half, made visible in an emulated graph.

An operator's own sums are not among the graph's values, so rounding these hides them. Each such operator's input gets
S - S added, S being the sum rounded to half: 0 where half holds it, NaN (Inf - Inf) where it does not.
MatMul, Gemm and Conv are let off: matrix units add halves in fp32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from wavefit.precision.half.accumulate import summed_axes
from wavefit.precision.half.rewire import add_constant
from wavefit.precision.half.types import dtype
from wavefit.precision.names import Names

if TYPE_CHECKING:
    import onnx_ir as ir

_PLAIN = {"ReduceMean", "ReduceLogSum", "GlobalAveragePool"}  # (a ReduceSum's own output shows the same)
_SQUARED = {"ReduceL2", "RMSNormalization"}
_CENTRED = {"LayerNormalization", "InstanceNormalization"}


def checked(node: ir.Node, value: ir.Value, low: str, names: Names, opset: int) -> ir.Value:
    """What ``node`` is to read in place of ``value``, its first input rounded to ``low``: the same numbers, and NaN
    where their sum overflows. ``value`` itself where the node adds nothing up, or along axes that are not known.

    The new nodes are put before ``node``; values keep the type and shape of ``value`` where they have it.
    """
    if node.op_type not in _PLAIN | _SQUARED | _CENTRED or value.shape is None:
        return value
    axes = summed_axes(node, len(value.shape))
    return value if not axes else _Check(node, low, names, opset, axes).of(value)


class _Check:
    def __init__(self, node: ir.Node, low: str, names: Names, opset: int, axes: tuple[int, ...]) -> None:
        self._node, self._low, self._names, self._opset, self._axes = node, low, names, opset, axes

    def of(self, value: ir.Value) -> ir.Value:
        import onnx_ir as ir

        terms = value
        if self._node.op_type in _CENTRED:
            terms = self._add("Sub", [value, self._reduce("ReduceMean", value, 18)])
        if self._node.op_type not in _PLAIN:
            terms = self._add("Mul", [terms, terms])
        total = self._reduce("ReduceSum", terms, 13)
        bits = self._add("Cast", [total], to=int(dtype(self._low)))
        rounded = self._add("Cast", [bits], to=int(ir.DataType.FLOAT))
        bits.type = ir.TensorType(dtype(self._low))
        output = self._add("Add", [value, self._add("Sub", [rounded, rounded])])
        output.shape = value.shape
        return output

    def _reduce(self, op: str, value: ir.Value, input_since: int) -> ir.Value:
        """Along the axes, which are kept with size 1; they are an input from opset ``input_since`` on."""
        import numpy as np

        if self._opset < input_since:
            return self._add(op, [value], axes=list(self._axes), keepdims=1)
        graph = self._node.graph
        assert graph is not None
        name = self._names.fresh(f"{self._node.name}_summed_axes")
        axes = add_constant(graph, name, np.array(self._axes, np.int64))  # type: ignore[arg-type]
        return self._add(op, [value, axes], keepdims=1)

    def _add(self, op: str, inputs: Sequence[ir.Value], **attributes: Any) -> ir.Value:
        import onnx_ir as ir

        name = self._names.fresh(f"{self._node.name}_sum_{op.lower()}")
        made = ir.node(op, inputs, attributes, name=name)
        output = made.outputs[0]
        output.name, output.type = self._names.fresh(name), ir.TensorType(ir.DataType.FLOAT)
        graph = self._node.graph
        assert graph is not None
        graph.insert_before(self._node, made)
        return output
