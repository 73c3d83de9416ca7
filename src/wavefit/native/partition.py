"""A model cut into stages, in turn of the engine and of the CPU, where the engine cannot run all of its nodes.

As few stages as the order of the nodes allows: a node belongs to the first stage of its kind that everything it reads
is made in or before. What follows from the shapes alone is computed beforehand, so that no stage waits for another's
shape arithmetic. A stage of the engine with no convolution or product in it is not worth two transfers: the CPU has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from wavefit.native.import_onnx import Walk
from wavefit.native.onnx_ops._read import read
from wavefit.native.opencl.c import STORED
from wavefit.native.operation import UnsupportedNode

if TYPE_CHECKING:
    import onnx_ir as ir

    from wavefit.native.graph import Value

_OF_WEIGHT = frozenset(
    (
        "Attention",
        "Conv",
        "ConvInteger",
        "ConvTranspose",
        "Einsum",
        "FusedConv",
        "FusedGemm",
        "FusedMatMul",
        "Gemm",
        "MatMul",
        "MatMulInteger",
        "MultiHeadAttention",
        "QLinearConv",
        "QLinearMatMul",
    )
)

Kind = Literal["engine", "cpu"]


@dataclass(frozen=True)
class Stage:
    """A part of a model that one of the two runs.

    Args:
        kind: who runs it.
        model: its nodes, with the weights that they read.
        shapes: of its inputs, where they are known: of each, for the engine.
        nodes: how many.
    """

    kind: Kind
    model: ir.Model
    shapes: dict[str, tuple[int, ...]]
    nodes: int

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(str(value.name) for value in self.model.graph.inputs)

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(str(value.name) for value in self.model.graph.outputs)


@dataclass(frozen=True)
class Partition:
    """Stages in the order in which they run.

    Args:
        stages: none reads what a later one makes.
        constants: outputs of the model that depend on nothing.
        unsupported: why there is a part of the CPU.
    """

    stages: tuple[Stage, ...]
    constants: dict[str, np.ndarray]
    unsupported: tuple[UnsupportedNode, ...]

    @property
    def cpu_nodes(self) -> int:
        return sum(stage.nodes for stage in self.stages if stage.kind == "cpu")


def partition(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> Partition | str:
    """Cuts a model at fixed input shapes.

    Args:
        path: a checked ONNX file.
        shapes: of every input.

    Returns:
        The stages; or why there is nothing to gain from them.

    Raises:
        InputError: as :func:`wavefit.native.import_onnx.load`.
    """
    from onnx_ir.passes.common import ShapeInferencePass

    model = read(path)
    walk = Walk(model, shapes)
    ShapeInferencePass()(model)  # types of what the walk does not know, for the CPU's stages
    constants = _fold(model.graph, walk)
    nodes = list(model.graph)
    kinds: dict[ir.Node, Kind] = {node: "cpu" if _stays(node, walk) else "engine" for node in nodes}
    levels = _levels(nodes, kinds)
    while light := _light(levels, kinds):
        kinds.update(dict.fromkeys(light, "cpu"))
        levels = _levels(nodes, kinds)
    if "engine" not in kinds.values():
        return "the engine can run none of the model's convolutions and products"
    stages = tuple(
        _stage(
            model,
            [node for node in nodes if levels[node] == level],
            "cpu" if level % 2 else "engine",
            walk.values,
        )
        for level in sorted(set(levels.values()))
    )
    return Partition(stages, constants, tuple(walk.unsupported))


def _fold(graph: ir.Graph, walk: Walk) -> dict[str, np.ndarray]:
    """Puts weights in place of what follows from the shapes; returns the graph's outputs that do, taken out of it."""
    import onnx_ir as ir

    outputs = {value: walk.values[value].constant for value in graph.outputs if value in walk.values}
    constants = {str(value.name): array for value, array in outputs.items() if array is not None}
    for node in list(graph):
        for output in node.outputs:
            known = walk.values.get(output)
            if known is None or known.constant is None:
                continue
            name = f"{output.name}/constant"
            tensor = ir.tensor(known.constant, name=name)
            kind, shape = ir.TensorType(tensor.dtype), ir.Shape(known.shape)
            held = ir.Value(name=name, shape=shape, type=kind, const_value=tensor)
            graph.register_initializer(held)
            output.replace_all_uses_with(held, replace_graph_outputs=True)
    kept = [value for value in graph.outputs if not value.is_initializer()]
    graph.outputs.clear()
    graph.outputs.extend(kept)
    _drop_unread(graph)
    return constants


def _drop_unread(graph: ir.Graph) -> None:
    for node in reversed(list(graph)):
        if not any(value.uses() or value.is_graph_output() for value in node.outputs):
            graph.remove(node, safe=True)


def _stays(node: ir.Node, walk: Walk) -> bool:
    """Whether the CPU must run a node: the engine cannot, or holds no tensors of a type that it reads or makes."""
    if node in walk.stuck or any(attribute.type.name == "GRAPH" for attribute in node.attributes.values()):
        return True
    known = [walk.values.get(value) for value in (*node.inputs, *node.outputs) if value is not None]
    return any(each is not None and each.constant is None and each.dtype not in STORED for each in known)


def _levels(nodes: list[ir.Node], kinds: Mapping[ir.Node, Kind]) -> dict[ir.Node, int]:
    """The stage of each node: even ones are the engine's, odd ones the CPU's."""
    levels: dict[ir.Node, int] = {}
    for node in nodes:
        odd = kinds[node] == "cpu"
        makers = (value.producer() for value in _read(node))
        least = max((levels[maker] for maker in makers if maker in levels), default=0)
        levels[node] = least + (least % 2 != odd)
    return levels


def _light(levels: Mapping[ir.Node, int], kinds: Mapping[ir.Node, Kind]) -> list[ir.Node]:
    """The nodes of the engine's stages that have nothing of weight."""
    weighty = {level for node, level in levels.items() if node.op_type in _OF_WEIGHT}
    return [node for node, level in levels.items() if kinds[node] == "engine" and level not in weighty]


def _read(node: ir.Node) -> Iterator[ir.Value]:
    """What a node reads, its subgraphs' nodes included."""
    yield from (value for value in node.inputs if value is not None)
    for attribute in node.attributes.values():
        if attribute.type.name == "GRAPH":
            for inner in attribute.as_graph():
                yield from _read(inner)
            yield from attribute.as_graph().outputs


def _stage(model: ir.Model, nodes: list[ir.Node], kind: Kind, known: Mapping[ir.Value, Value]) -> Stage:
    """The nodes of one stage as a model of their own; weights are shared, not copied."""
    import onnx_ir as ir
    from onnx_ir.convenience import extract

    given, wanted = _frontier(model.graph, nodes)
    for value in given:
        _declare(value, known.get(value))
    part = ir.Model(extract(model.graph, given, wanted), ir_version=model.ir_version)
    shapes = {str(value.name): known[value].shape for value in given if value in known}
    return Stage(kind, part, shapes, len(nodes))


def _frontier(graph: ir.Graph, nodes: list[ir.Node]) -> tuple[list[ir.Value], list[ir.Value]]:
    """What nodes read that others make or the caller gives, and what they make that others or the caller read."""
    own, others = set(nodes), [node for node in graph if node not in set(nodes)]
    elsewhere = {value for node in others for value in node.outputs} | set(graph.inputs)
    given = dict.fromkeys(value for node in nodes for value in _read(node) if value in elsewhere)
    read = {value for node in others for value in _read(node)} | set(graph.outputs)
    return list(given), [value for node in graph if node in own for value in node.outputs if value in read]


def _declare(value: ir.Value, known: Value | None) -> None:
    """Gives a value that becomes an input the type that it has at these shapes."""
    import onnx_ir as ir

    if known is None:
        return
    value.shape = ir.Shape(known.shape)
    if known.dtype != "string":
        value.dtype = ir.DataType.from_numpy(np.dtype(known.dtype))
