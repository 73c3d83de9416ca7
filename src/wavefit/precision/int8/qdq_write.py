"""Writes the pairs, weights and biases of a graph in int8."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import TYPE_CHECKING

import numpy as np

from wavefit.errors import InputError
from wavefit.precision import graph
from wavefit.precision.int8.calibrate import Quantised, quantised
from wavefit.precision.int8.constants import Constants
from wavefit.precision.int8.qdq_operators import (
    CONVOLUTIONS,
    activations,
    bounds,
    readers,
    weight,
    weight_axis,
)
from wavefit.precision.int8.qdq_places import Places, reads_integers
from wavefit.precision.int8.qdq_weights import least_scale, round_bias, round_weights, weight_scale, widened
from wavefit.precision.int8.targets import Target
from wavefit.precision.linear import attribute, only_user

if TYPE_CHECKING:
    import onnx_ir as ir

_TIE = 0.5001  # steps: as near to the integers' end as to the one before, within the rounding of a scale


class Writer:
    """Puts the pairs in.

    Args:
        model: the folded graph, which is changed.
    """

    def __init__(
        self, model: ir.Model, nodes: Set[str], target: Target, rounding: dict[str, np.ndarray]
    ) -> None:
        self._model, self._nodes, self._target, self._rounding = model, nodes, target, rounding
        self._constants = Constants(model)
        self._weights: dict[tuple[str, int | None, bytes], ir.Value] = {}

    def activations(self, found: Places, parameters: Mapping[str, Quantised]) -> None:
        values = {value.name: value for value in _values(self._model)}
        for name, source in found.held.items():
            self._pair(values[name], parameters[source], name in found.whole, found.carriers)

    def constants_of(self, node: ir.Node, found: Places, parameters: Mapping[str, Quantised]) -> None:
        """Stores a node's weights, its bias, and constants among its activations."""
        for slot in activations(node):
            array = graph.constant(node.inputs[slot])
            if array is not None:
                node.replace_input_with(slot, self._constant(str(node.inputs[slot].name), array, node))  # type: ignore[union-attr]
        held = weight(node)
        array = graph.constant(held)
        if held is None or array is None:
            return
        axis = weight_axis(node) if self._target.per_channel else None
        scale = weight_scale(array, axis, self._target.weight_limit)
        bias = graph.constant(node.inputs[2]) if len(node.inputs) > 2 else None
        if bias is not None and bias.dtype != np.float32:
            bias = (
                None  # its step is the product of two scales, for which half has no room; it stays as it is
            )
        given = self._input_scale(node)
        columns = None
        if bias is not None:
            columns = bias.reshape(-1)
            if scale.ndim:
                columns = np.broadcast_to(columns, scale.shape)
            scale = widened(scale, columns, given)
        node.replace_input_with(1, self._stored_weights(held, array, scale, axis, node))
        if columns is not None:
            step = (scale.astype(np.float64) * given).astype(np.float32)
            self._store_bias(node, columns, step)

    def finish(self) -> None:
        for node in list(self._model.graph):
            if node.op_type == "QuantizeLinear":
                self._drop_clip(node)
        for node in list(self._model.graph):
            if node.name not in self._nodes and _is_quantized_unasked(node):
                self._keep_float(node)
        self._constants.drop_unread()
        if self._rounding:
            raise InputError(
                f"rounding was given for {sorted(self._rounding)[0]!r}, which no int8 node weighs with"
            )

    def _pair(self, value: ir.Value, to: Quantised, whole: bool, carriers: Set[str]) -> None:
        name, was_output = str(value.name), value.is_graph_output()
        dtype = _numpy(value)
        scale = self._constants.add(f"{name}_scale", np.asarray(max(to.scale, least_scale(dtype)), dtype))
        zero = self._constants.add(f"{name}_zero_point", np.asarray(to.zero_point, to.type))
        quantize = self._node("QuantizeLinear", name, [value, scale, zero])
        dequantize = self._node("DequantizeLinear", name, [quantize.outputs[0], scale, zero])
        result = dequantize.outputs[0]
        result.shape, result.type = value.shape, value.type
        for node, slot in list(readers(value)):
            if node is not quantize and (whole or reads_integers(node, slot, self._nodes, carriers)):
                node.replace_input_with(slot, result)
        producer = value.producer()
        if producer is None:
            first = next(iter(self._model.graph))
            self._model.graph.insert_before(first, [quantize, dequantize])
        else:
            self._model.graph.insert_after(producer, [quantize, dequantize])
        if whole and was_output:
            value.name, result.name = self._constants.free(f"{name}_float"), name
            outputs = self._model.graph.outputs
            outputs[[each is value for each in outputs].index(True)] = result

    def _drop_clip(self, quantize: ir.Node) -> None:
        """Takes out a Relu or Clip that cuts off no more than the integers' ends do."""
        value, scale, zero = quantize.inputs
        clip = value.producer() if value is not None else None
        ends = bounds(clip) if clip is not None else None
        step, shift = graph.constant(scale), graph.constant(zero)
        if clip is None or ends is None or step is None or shift is None:
            return
        if len(value.uses()) != 1 or value.is_graph_output():  # type: ignore[union-attr]
            return
        limits = np.iinfo(shift.dtype)
        low, high = (end / float(step) + int(shift) for end in ends)
        if low <= limits.min + _TIE and high >= limits.max - _TIE:
            quantize.replace_input_with(0, clip.inputs[0])
            self._model.graph.remove(clip, safe=True)

    def _keep_float(self, node: ir.Node) -> None:
        """Gives a float node between pairs a DequantizeLinear of its own, with the one scale written out per channel.

        ONNX Runtime from 1.22 on quantizes its weights otherwise, with one scale for all (core/optimizer/
        qdq_transformer/weight_bias_quantization.cc, which asks for a scalar scale before the node).
        """
        import onnx_ir as ir

        dequantize = node.inputs[0].producer()  # type: ignore[union-attr]
        channels = _channels(node)
        assert dequantize is not None
        stored, scale, zero = dequantize.inputs
        step, shift = graph.constant(scale), graph.constant(zero)
        if channels == 1 or step is None or shift is None or stored is None:
            return
        name = f"{node.name}_input"
        inputs = [
            stored,
            self._constants.add(f"{name}_scale", np.full(channels, step)),
            self._constants.add(f"{name}_zero_point", np.full(channels, shift)),
        ]
        made = self._node("DequantizeLinear", name, inputs, {"axis": ir.AttrInt64("axis", 1)})
        made.outputs[0].shape, made.outputs[0].type = node.inputs[0].shape, node.inputs[0].type  # type: ignore[union-attr]
        self._model.graph.insert_before(node, made)
        node.replace_input_with(0, made.outputs[0])

    def _constant(self, name: str, array: np.ndarray, node: ir.Node) -> ir.Value:
        """A constant activation, of the activations' type, with one scale."""
        to = quantised(float(array.min()), float(array.max()), self._target)
        least, greatest = (np.iinfo(to.type).min, np.iinfo(to.type).max)
        stored = np.clip(np.rint(array.astype(np.float64) / to.scale) + to.zero_point, least, greatest)
        scale = np.asarray(to.scale, array.dtype)
        return self._dequantized(
            name, stored.astype(to.type), scale, np.asarray(to.zero_point, to.type), node
        )

    def _stored_weights(
        self, held: ir.Value, array: np.ndarray, scale: np.ndarray, axis: int | None, node: ir.Node
    ) -> ir.Value:
        key = (str(held.name), axis, scale.tobytes())
        if key not in self._weights:
            limit = self._target.weight_limit
            stored = self._rounding.pop(str(held.name), None)
            if stored is None:
                stored = round_weights(array, scale, axis, limit)
            elif stored.shape != array.shape or stored.dtype != np.int8:
                raise InputError(f"the rounding of {held.name!r} is not int8 of shape {array.shape}")
            zero = np.zeros(scale.shape, self._target.weight)
            self._weights[key] = self._dequantized(
                str(held.name), stored, scale.astype(array.dtype), zero, node, axis
            )
        return self._weights[key]

    def _store_bias(self, node: ir.Node, bias: np.ndarray, scale: np.ndarray) -> None:
        held = node.inputs[2]
        assert held is not None
        shape = () if scale.ndim == 0 else scale.shape
        zero = np.zeros(shape, np.int32)
        stored = round_bias(bias, scale)
        dtype = _numpy(held)
        axis = None if scale.ndim == 0 else 0
        node.replace_input_with(
            2, self._dequantized(str(held.name), stored, scale.astype(dtype), zero, node, axis)
        )

    def _dequantized(
        self,
        name: str,
        stored: np.ndarray,
        scale: np.ndarray,
        zero: np.ndarray,
        before: ir.Node,
        axis: int | None = None,
    ) -> ir.Value:
        import onnx_ir as ir

        inputs = [
            self._constants.add(f"{name}_quantized", stored),
            self._constants.add(f"{name}_scale", scale),
            self._constants.add(f"{name}_zero_point", zero),
        ]
        attributes = {} if axis is None else {"axis": ir.AttrInt64("axis", axis)}
        made = self._node("DequantizeLinear", name, inputs, attributes)
        self._model.graph.insert_before(next(iter(self._model.graph)), made)
        return made.outputs[0]

    def _input_scale(self, node: ir.Node) -> float:
        dequantize = node.inputs[0].producer() if node.inputs[0] is not None else None
        assert dequantize is not None
        assert dequantize.op_type == "DequantizeLinear"
        scale = graph.constant(dequantize.inputs[1])
        assert scale is not None
        return float(scale)

    def _node(
        self,
        operator: str,
        name: str,
        inputs: list[ir.Value],
        attributes: Mapping[str, ir.Attr] | None = None,
    ) -> ir.Node:
        import onnx_ir as ir

        node = ir.Node(
            "", operator, inputs, attributes or {}, name=self._constants.free(f"{name}_{operator}")
        )
        node.outputs[0].name = self._constants.free(f"{name}_{operator}_output")
        return node


def _is_quantized_unasked(node: ir.Node) -> bool:
    """Whether a node stands as ONNX Runtime's WeightBiasQuantization wants it: a pair before and behind it."""
    if node.domain or node.op_type not in (*CONVOLUTIONS, "Gemm") or graph.constant(node.inputs[1]) is None:
        return False
    given = node.inputs[0].producer() if node.inputs[0] is not None else None
    if given is None or given.op_type != "DequantizeLinear" or attribute(node, "transA", 0):
        return False
    behind: ir.Node | None = node
    while behind is not None and (behind is node or behind.op_type in ("Relu", "Clip")):
        behind = only_user(behind.outputs[0])
    return behind is not None and behind.op_type == "QuantizeLinear"


def _channels(node: ir.Node) -> int:
    """Of a Conv's, ConvTranspose's or Gemm's input, on axis 1."""
    weights = graph.constant(node.inputs[1])
    assert weights is not None
    if node.op_type == "Conv":
        return int(weights.shape[1] * attribute(node, "group", 1))
    return int(weights.shape[1] if attribute(node, "transB", 0) else weights.shape[0])


def _values(model: ir.Model) -> list[ir.Value]:
    return [*model.graph.inputs, *(value for node in model.graph for value in node.outputs)]


def _numpy(value: ir.Value) -> np.dtype:
    assert value.dtype is not None
    return np.dtype(value.dtype.numpy())
