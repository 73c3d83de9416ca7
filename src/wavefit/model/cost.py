"""What a model costs for given input shapes: FLOPs and bytes of each node, by shape inference; nothing is run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wavefit.errors import InputError
from wavefit.model.flops import flops
from wavefit.model.flops.movement import PICKS, VIEWS
from wavefit.model.flops.operation import Operation, Shape
from wavefit.model.graph import DEFAULT_DOMAINS
from wavefit.model.inference import infer
from wavefit.model.values import Value
from wavefit.schema import Cost, Model, NodeCost, TensorSpec


def cost(model: Model, shapes: Mapping[str, tuple[int, ...]]) -> Cost:
    """FLOPs and bytes of every node and in all. A multiply-add counts as 2 FLOPs.

    Functions of the model are inlined first. The bodies of If, Loop and Scan are not looked into: such a node is
    unknown, and so is one whose shape depends on the data.

    Args:
        model: the checked model.
        shapes: a concrete shape for every input, as :func:`wavefit.model.shapes.bind` gives them.

    Raises:
        InputError: an input has no shape here, or the shapes cannot go through the model's nodes.
    """
    check_shapes(model, shapes)
    nodes = node_costs(*infer(Path(model.path), shapes))
    unknown = Counter(node.op for node in nodes if node.flops is None)
    return Cost(
        shapes=dict(shapes),
        nodes=nodes,
        flops=sum(node.flops or 0 for node in nodes),
        bytes=sum(node.bytes or 0 for node in nodes),
        unknown=tuple(f"{op} ({count} node{'s' * (count > 1)})" for op, count in unknown.most_common()),
    )


def check_shapes(model: Model, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Holds shapes against the model's inputs.

    Raises:
        InputError: an input has no shape here, or another than it declares.
    """
    for spec in model.inputs:
        _check_shape(model, spec, shapes.get(spec.name))


def node_costs(nodes: Sequence[Any], values: Mapping[str, Value]) -> tuple[NodeCost, ...]:
    """Of every node, from what :func:`wavefit.model.inference.infer` gives."""
    return tuple(_node(node, values) for node in nodes)


def _check_shape(model: Model, spec: TensorSpec, given: Shape | None) -> None:
    if given is None:
        raise InputError(f"input {spec.name!r} of {model.name} was given no shape")
    declared = spec.shape if spec.shape is not None else given
    fits = len(declared) == len(given) and all(
        want == have for want, have in zip(declared, given, strict=True) if isinstance(want, int)
    )
    if not fits:
        raise InputError(
            f"input {spec.name!r} of {model.name} was given shape {list(given)}, it is {list(declared)}"
        )


def _node(node: Any, values: Mapping[str, Value]) -> NodeCost:
    ins = [values.get(name) if name else None for name in node.input]
    outs = [values.get(name) for name in node.output if name]
    known = node.domain in DEFAULT_DOMAINS
    return NodeCost(
        name=node.name or (node.output[0] if node.output else ""),
        op=node.op_type,
        flops=flops(_operation(node, ins, outs)) if known else None,
        bytes=_bytes(node, ins, outs),
    )


def _operation(node: Any, ins: list[Value | None], outs: list[Value | None]) -> Operation:
    from onnx import helper

    plain = [a for a in node.attribute if a.ints or a.HasField("i") or a.HasField("f") or a.HasField("s")]
    return Operation(
        kind=node.op_type,
        attributes={attribute.name: helper.get_attribute_value(attribute) for attribute in plain},
        ins=tuple(_shape(value) for value in ins),
        outs=tuple(_shape(value) for value in outs),
    )


def _shape(value: Value | None) -> Shape | None:
    return value.shape if value is not None else None


def _bytes(node: Any, ins: list[Value | None], outs: list[Value | None]) -> int | None:
    """Inputs and outputs, each once; None where one is unknown."""
    if node.op_type in VIEWS:
        return 0
    named = {name: value for name, value in zip(node.input, ins, strict=True) if name}
    if node.op_type in PICKS and node.input:  # as much is read as written
        named[node.input[0]] = outs[0] if outs else None
    total = 0
    for value in (*named.values(), *outs):
        if value is None or value.shape is None or value.bits is None:
            return None
        total += -(-math.prod(value.shape) * value.bits // 8)
    return total
