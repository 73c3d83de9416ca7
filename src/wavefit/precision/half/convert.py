"""A typed graph: chosen nodes compute in half, with casts where precisions meet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Literal

from wavefit.precision.graph import infer
from wavefit.precision.half.rewire import (
    add_cast,
    add_constant,
    drop_unused,
    half,
    is_constant,
    prepared,
    replace,
)
from wavefit.precision.half.types import NAMES, Low, Slots, dtype, is_fp32, require_cast, slots
from wavefit.precision.names import Names
from wavefit.schema import KeptNode, Precision

if TYPE_CHECKING:
    import onnx_ir as ir


def cannot(model: ir.Model, low: Low = "fp16") -> tuple[KeptNode, ...]:
    """The nodes of the main graph that handle fp32 values and can have none of them in half, in the graph's order.

    The reason is the operator's definition in the ONNX standard at the model's opset, or that the node has a body or
    no definition there.
    """
    found = ((node, slots(node, model, low).refusal) for node in model.graph)
    return tuple(
        KeptNode(node=str(node.name), op=node.op_type, precision="fp32", reason=refusal)
        for node, refusal in found
        if refusal
    )


def convert(
    model: ir.Model,
    assignment: Mapping[str, Precision],
    low: Low = "fp16",
    io: Literal["fp32", "low"] = "fp32",
) -> ir.Model:
    """A copy whose nodes assigned ``low`` compute in it; all others stay as they are.

    A value is cast at most once, next to what makes it; readers of the same type share the cast. Constants are stored
    in the type that is read, twice where both are. Values past half's largest become Inf, and values under its
    smallest become 0, in silence: :mod:`.hazards` finds them. Nodes that :func:`cannot` names stay
    fp32 whatever is assigned. The result passes type inference.

    ONNX Runtime's CPU provider computes such a graph in fp32 where it has no kernels of half, and drops casts between
    them, so its answers are better than half's: :func:`.emulate.emulated` shows those. Of bfloat16
    it opens next to nothing.

    Args:
        model: from :func:`wavefit.precision.graph.load`; not changed.
        assignment: precisions by node name; fp32 for the rest.
        io: type of the graph's float32 inputs and outputs in the copy.

    Raises:
        InputError: no node has that name, the model's opset has no Cast to that type, or the types of the model did
            not fit together before.
    """
    edited = prepared(model, assignment)
    require_cast(edited, low)
    lowered = {
        node: slots(node, edited, low) for node in edited.graph if assignment.get(str(node.name)) == low
    }
    kept = {node: slots(node, edited, low).free for node in edited.graph if node not in lowered}
    conversion = _Conversion(edited, low, {node: found.free for node, found in lowered.items()} | kept)
    conversion.run(lowered, io)
    _drop_idle_casts(edited)
    drop_unused(edited.graph)
    return infer(edited)


class _Conversion:
    """Gives every float32 value of the main graph one type, and its readers of the other type a cast."""

    def __init__(self, model: ir.Model, low: Low, free: Mapping[ir.Node, frozenset[int]]) -> None:
        self._model = model
        self._graph = model.graph
        self._low = low
        self._free = free
        self._names = Names(model)

    def run(self, lowered: Mapping[ir.Node, Slots], io: str) -> None:
        readers = self._readers(lowered)
        made = [value for value in self._values() if is_fp32(value)]
        low_made = {node.outputs[index] for node, found in lowered.items() for index in found.outputs}
        if io == "low":
            low_made.update(value for value in self._graph.inputs if is_fp32(value))
        for node, found in lowered.items():
            _set_type_attribute(node, found.attribute, self._low)
        for value in made:
            if is_constant(value):
                self._place_constant(value, readers.get(value, []), io)
            else:
                self._place(value, value in low_made, readers.get(value, []), io)

    def _values(self) -> Iterable[ir.Value]:
        yield from self._graph.inputs
        yield from self._graph.initializers.values()
        for node in self._graph:
            yield from node.outputs

    def _readers(self, lowered: Mapping[ir.Node, Slots]) -> dict[ir.Value, list[tuple[ir.Node, int, bool]]]:
        """Who reads each value, where, and whether as half; left out are readers that take any type."""
        readers: dict[ir.Value, list[tuple[ir.Node, int, bool]]] = {}
        for node in self._graph.all_nodes():
            taken = lowered[node].inputs if node in lowered else frozenset()
            free = self._free.get(node, frozenset())
            for index, value in enumerate(node.inputs):
                if value is not None and index not in free:
                    readers.setdefault(value, []).append((node, index, index in taken))
        return readers

    def _place_constant(self, value: ir.Value, readers: list[tuple[ir.Node, int, bool]], io: str) -> None:
        as_low = [(node, index) for node, index, low in readers if low]
        output = value.is_graph_output()
        if value.const_value is None or not (as_low or (output and io == "low")):
            return
        name = str(value.name)
        array = half(value.const_value.numpy(), self._low)
        stays = len(as_low) < len(readers) or (output and io == "fp32")
        if not stays:
            self._graph.initializers.pop(name)
            value.name = self._names.fresh(f"{name}_fp32")
        constant = add_constant(self._graph, self._fresh(name) if stays else name, array)
        if not stays:
            as_low = [(use.node, use.idx) for use in value.uses()]
        for node, index in as_low:
            node.replace_input_with(index, constant)
        if output and io == "low":
            replace(self._model, value, constant)

    def _place(
        self, value: ir.Value, made_low: bool, readers: list[tuple[ir.Node, int, bool]], io: str
    ) -> None:
        import onnx_ir as ir

        if made_low:
            value.type = ir.TensorType(dtype(self._low))
        others = [(node, index) for node, index, low in readers if low != made_low]
        output = value.is_graph_output() and (io == "low") != made_low
        if not others and not output:
            return
        name = str(value.name)
        cast_name = self._names.fresh(f"{name}_fp32") if made_low else self._fresh(name)
        if output:  # the cast is the graph's output, and bears its name
            value.name, cast_name = (
                (self._fresh(name) if made_low else self._names.fresh(f"{name}_fp32")),
                name,
            )
        to = ir.DataType.FLOAT if made_low else dtype(self._low)
        cast = add_cast(self._graph, value, to, cast_name, self._names.fresh(f"{name}_cast"))
        for node, index in others:
            node.replace_input_with(index, cast)
        if output:
            replace(self._model, value, cast)

    def _fresh(self, name: str) -> str:
        return self._names.fresh(f"{name}_{NAMES[self._low]}")


def _drop_idle_casts(model: ir.Model) -> None:
    """Takes away the model's own Casts that have nothing left to do: from half to what is half now."""
    for node in list(model.graph):
        source, output = (node.inputs[0], node.outputs[0]) if node.op_type == "Cast" else (None, None)
        if source is None or output is None or source.dtype is None or output.is_graph_output():
            continue
        if source.dtype == output.dtype:
            for use in list(output.uses()):
                use.node.replace_input_with(use.idx, source)
            model.graph.remove(node, safe=True)


def _set_type_attribute(node: ir.Node, name: str, low: Low) -> None:
    import numpy as np
    import onnx_ir as ir

    if name == "value":  # of ConstantOfShape, a tensor of one element; float32 zero where it is left out
        given = node.attributes.get(name)
        array = given.as_tensor().numpy() if given is not None else np.zeros(1, np.float32)
        node.attributes[name] = ir.AttrTensor(name, ir.Tensor(half(array, low), name=name))
    elif name:
        node.attributes[name] = ir.AttrInt64(name, int(dtype(low)))
