"""What is known of a graph's tensors after shape inference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from wavefit.model.tensors import TYPES

SMALL = 1024  # elements: as many as a stored shape, axis list or index may have


class Value(NamedTuple):
    """A tensor of the graph: its shape, None where unknown, and the bits of one element, None for text."""

    shape: tuple[int, ...] | None
    bits: int | None


def values(graph: Any) -> Iterator[tuple[str, Value]]:
    """Inputs, inferred tensors, outputs and initializers by name."""
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
