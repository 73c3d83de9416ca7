"""Elements picked by indices: embeddings, and any axis; along an axis (Gather) or each by itself (GatherElements).

An index past the end is held to the last element: ONNX leaves it open, and no kernel reads outside its buffers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wavefit.native import space
from wavefit.native.opencl import c
from wavefit.native.opencl.kernels import _lanes, _source, _walk
from wavefit.native.operation import Config, Implementation, Limits, Operation

OPS = ("Gather", "GatherElements")


def claims(operation: Operation) -> bool:
    return (
        operation.own == 2
        and operation.input(1).dtype in ("int64", "int32")
        and _source.present(operation)
        and not space.far(operation)
    )


def configurations(operation: Operation, limits: Limits) -> Iterator[Config]:
    for vector in _walk.widths([space.spread(operation).output], limits):
        for local in _source.groups(limits, 256, 64):
            yield {"vector": vector if _whole(operation) else 1, "local": local}


def build(operation: Operation, config: Config) -> Implementation:
    laid = space.spread(operation)
    dtype = operation.input(0).dtype
    made = _walk.kernel("gather", laid, config, lambda axes, width: _elements(laid, axes, width), dtype)
    return _source.single("gather", operation, config, made)


def cost(operation: Operation, config: Config, limits: Limits) -> float:
    moved = 2 * _source.touched(operation.output) + _source.touched(operation.input(1))
    return _source.seconds(moved, _walk.items(space.spread(operation).output, int(config["vector"])), limits)


def _axis(operation: Operation) -> int:
    return int(operation.attributes["axis"]) % len(operation.input(0).shape)


def _whole(operation: Operation) -> bool:
    """Whether neighbours along the output's last axis are neighbours in the data, under one index."""
    return operation.op == "Gather" and _axis(operation) < len(operation.input(0).shape) - 1


def _elements(laid: Operation, axes: Sequence[str], width: int) -> list[str]:
    data, indices, axis = laid.input(0), laid.input(1), _axis(laid)
    if laid.op == "GatherElements":
        place = c.index(indices, axes)
        source = [*axes[:axis], "pick", *axes[axis + 1 :]]
    else:
        inner = len(indices.shape)
        place = c.index(indices, axes[axis : axis + inner])
        source = [*axes[:axis], "pick", *axes[axis + inner :]]
    size = data.shape[axis]
    lines = [
        f"int pick = (int)in1[{place}];",
        f"pick = clamp(pick < 0 ? pick + {size} : pick, 0, {size - 1});",
    ]
    code, values = _lanes.load(data, "in0", source, width, "x")
    return [*lines, *code, *_lanes.emitted(laid, values, axes)]
