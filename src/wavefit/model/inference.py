"""Shape inference with concrete input shapes, on a copy of the graph that leaves the big weights out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from wavefit.errors import InputError
from wavefit.model import graph as walk
from wavefit.model.load import parse
from wavefit.model.tensors import EXTERNAL, TYPES, elements, external_range

_SMALL = 1024  # elements: as many as a stored shape, axis list or index may have

_DATA_FIELDS = (
    "raw_data",
    "float_data",
    "int32_data",
    "int64_data",
    "double_data",
    "uint64_data",
    "string_data",
)


class Value(NamedTuple):
    """A tensor of the graph: its shape, None where unknown, and the bits of one element, None for text."""

    shape: tuple[int, ...] | None
    bits: int | None


def infer(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> tuple[Any, dict[str, Value]]:
    """The graph with its functions inlined, and what is known of every tensor in it at these input shapes.

    Raises:
        InputError: the shapes cannot go through the model's nodes.
    """
    import onnx
    from onnx import inliner

    proto = parse(path)
    if proto.functions:
        proto = inliner.inline_local_functions(proto)
    _lighten(proto, path.parent)
    _substitute(proto.graph, shapes)
    try:
        proto = onnx.shape_inference.infer_shapes(proto, data_prop=True)
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError) as error:
        said = walk.printable(str(error), 300)
        raise InputError(f"{path}: these input shapes do not go through the model: {said}") from error
    return proto, dict(_values(proto.graph))


def _lighten(proto: Any, folder: Path) -> None:
    """Drops the data of big tensors, which shape inference never reads, and fetches small external ones."""
    for item in walk.stored(proto):
        tensor = item.tensor
        small = elements(tensor) <= _SMALL
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


def _substitute(graph: Any, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Puts the concrete shapes in, and forgets the shapes that the exporter wrote down for standard operators.

    Those may hold another batch. Operators of other domains are not inferred: their written shapes are all there is,
    with the sizes of named dimensions filled in.
    """
    sizes: dict[str, int] = {}
    for entry in graph.input:
        if entry.name in shapes:
            dims = entry.type.tensor_type.shape.dim
            for dim, size in zip(dims, shapes[entry.name], strict=False):
                if dim.dim_param:
                    sizes[dim.dim_param] = size
                dim.dim_value = size
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


def _values(graph: Any) -> Iterator[tuple[str, Value]]:
    for entry in (*graph.input, *graph.value_info, *graph.output):
        tensor = entry.type.tensor_type
        yield entry.name, Value(_dims(tensor), _bits(tensor.elem_type))
    for tensor in graph.initializer:
        yield tensor.name, Value(tuple(tensor.dims), _bits(tensor.data_type))


def _dims(tensor: Any) -> tuple[int, ...] | None:
    if not tensor.HasField("shape"):
        return None
    dims = [dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim]
    return None if None in dims else tuple(dims)  # type: ignore[arg-type]


def _bits(data_type: int) -> int | None:
    return TYPES[data_type][1] or None if data_type in TYPES else None
