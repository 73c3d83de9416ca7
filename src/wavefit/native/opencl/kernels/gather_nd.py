"""GatherND: the last axis of the indices is a place in the data's axes after the batch's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wavefit.native import space
from wavefit.native.opencl.kernels import _lanes, _places, _source, _walk
from wavefit.native.operation import Config, Implementation, Limits, Operation

OPS = ("GatherND",)


def claims(operation: Operation) -> bool:
    return (
        operation.own == 2
        and operation.input(1).dtype in _places.INDICES
        and _source.present(operation)
        and not space.far(operation)
    )


def configurations(operation: Operation, limits: Limits) -> Iterator[Config]:
    """``vector`` elements of one slice by a work-item; 1 where the indices name single elements."""
    vectors = _walk.widths([operation.output], limits) if _slice(operation) else [1]
    for vector in vectors:
        for local in _source.groups(limits, 256, 64):
            yield {"vector": vector, "local": local}


def build(operation: Operation, config: Config) -> Implementation:
    laid = space.spread(operation)
    dtype = operation.input(0).dtype
    made = _walk.kernel("gather_nd", laid, config, lambda axes, width: _elements(laid, axes, width), dtype)
    return _source.single("gather_nd", operation, config, made)


def cost(operation: Operation, config: Config, limits: Limits) -> float:
    moved = 2 * _source.touched(operation.output) + _source.touched(operation.input(1))
    return _source.seconds(moved, _walk.items(space.spread(operation).output, int(config["vector"])), limits)


def _slice(operation: Operation) -> int:
    """Axes of the data that no index names: the last ones of the output."""
    named = operation.input(1).shape[-1]
    return len(operation.input(0).shape) - int(operation.attributes["batch_dims"]) - named


def _elements(laid: Operation, axes: Sequence[str], width: int) -> list[str]:
    data, indices, batch = laid.input(0), laid.input(1), int(laid.attributes["batch_dims"])
    outer, named = len(indices.shape) - 1, indices.shape[-1]
    lines = _places.picked(indices, axes[:outer], data.shape[batch : batch + named])
    inner = axes[len(axes) - _slice(laid) :] if _slice(laid) else []
    source = [*axes[:batch], *(f"p{number}" for number in range(named)), *inner]
    code, values = _lanes.load(data, "in0", source, width, "x")
    return [*lines, *code, *_lanes.emitted(laid, values, axes)]
