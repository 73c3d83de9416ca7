"""Shape inference with concrete input shapes, on a copy of the graph that leaves the big weights out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wavefit.errors import InputError
from wavefit.model import graph as walk
from wavefit.model.load import parse
from wavefit.model.tensors import EXTERNAL, elements, external_range
from wavefit.model.values import SMALL, Value, values

_ROUNDS = 12  # of inference and folding; each lets the next see further

_DATA_FIELDS = (
    "raw_data",
    "float_data",
    "int32_data",
    "int64_data",
    "double_data",
    "uint64_data",
    "string_data",
)


def infer(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> tuple[list[Any], dict[str, Value]]:
    """The graph's nodes with functions inlined, and what is known of every tensor at these input shapes.

    Raises:
        InputError: the shapes cannot go through the model's nodes.
    """
    from onnx import inliner

    from wavefit.model.folding import fold

    proto = parse(path)
    if proto.functions:
        proto = inliner.inline_local_functions(proto)
    _lighten(proto, path.parent)
    sizes = _substitute(proto.graph, shapes)
    nodes = [type(node).FromString(node.SerializeToString()) for node in proto.graph.node]
    proto, known = _infer(path, proto)
    for _ in range(_ROUNDS):
        if not _gaps(nodes, known) or not fold(proto, known):
            break
        _forget(proto.graph, sizes)
        proto, known = _infer(path, proto)
    return nodes, known


def _infer(path: Path, proto: Any) -> tuple[Any, dict[str, Value]]:
    from onnx import shape_inference

    try:
        proto = shape_inference.infer_shapes(proto, data_prop=True)
    except (shape_inference.InferenceError, RuntimeError, ValueError) as error:
        said = walk.printable(str(error), 300)
        raise InputError(f"{path}: these input shapes do not go through the model: {said}") from error
    return proto, dict(values(proto.graph))


def _gaps(nodes: Sequence[Any], known: Mapping[str, Value]) -> bool:
    """Whether a standard operator has an output of unknown shape."""
    names = (name for node in nodes if node.domain in walk.DEFAULT_DOMAINS for name in node.output if name)
    return any(name not in known or known[name].shape is None for name in names)


def _lighten(proto: Any, folder: Path) -> None:
    """Drops the data of big tensors, which shape inference never reads, and fetches small external ones."""
    for item in walk.stored(proto):
        tensor = item.tensor
        small = elements(tensor) <= SMALL
        if tensor.data_location == EXTERNAL:
            raw = _read(item, folder) if small else None
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")
            if raw is not None:
                tensor.raw_data = raw
        elif not small:
            for field in _DATA_FIELDS:
                tensor.ClearField(field)


def _read(item: walk.Stored, folder: Path) -> bytes:
    path, offset, length = external_range(item, folder)
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(length)


def _substitute(graph: Any, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Puts the concrete shapes in; returns the size of each named dimension."""
    sizes: dict[str, int] = {}
    for entry in graph.input:
        if entry.name in shapes:
            dims = entry.type.tensor_type.shape.dim
            for dim, size in zip(dims, shapes[entry.name], strict=False):
                if dim.dim_param:
                    sizes[dim.dim_param] = size
                dim.dim_value = size
    _forget(graph, sizes)
    return sizes


def _forget(graph: Any, sizes: Mapping[str, int]) -> None:
    """Forgets the shapes that are written down for standard operators: an exporter's may hold another batch.

    Operators of other domains are not inferred: their written shapes are all there is, with the sizes of named
    dimensions filled in.
    """
    foreign = {name for node in graph.node if node.domain not in walk.DEFAULT_DOMAINS for name in node.output}
    kept = [entry for entry in graph.value_info if entry.name in foreign]
    for entry in (*kept, *graph.output):
        if entry.name not in foreign:
            entry.type.tensor_type.ClearField("shape")
        for dim in entry.type.tensor_type.shape.dim:
            if dim.dim_param in sizes:
                dim.dim_value = sizes[dim.dim_param]
    copies = [type(entry).FromString(entry.SerializeToString()) for entry in kept]
    del graph.value_info[:]
    graph.value_info.extend(copies)
