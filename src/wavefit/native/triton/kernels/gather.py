"""Elements picked by indices: embeddings, and any axis; along an axis (Gather) or each by itself (GatherElements).

An index past the end is held to the last element: ONNX leaves it open, and no kernel reads outside its buffers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wavefit.native.operation import Config, Implementation, Limits, Operation
from wavefit.native.triton import text
from wavefit.native.triton.kernels import _cost, _walk
from wavefit.native.triton.text import Axis

OPS = ("Gather", "GatherElements")


def claims(operation: Operation) -> bool:
    return (
        operation.own == 2
        and len(operation.outputs) == 1
        and operation.input(1).dtype in ("int64", "int32")
        and text.present(operation)
        and text.computes(operation)
    )


def configurations(operation: Operation, limits: Limits) -> Iterator[Config]:
    """``block`` elements of a program of ``warps`` waves."""
    return _walk.configurations(limits)


def cost(operation: Operation, config: Config, limits: Limits) -> float:
    moved = 2 * text.touched(operation.output) + text.touched(operation.input(1))
    return _cost.seconds(moved, operation.output.size, limits)


def build(operation: Operation, config: Config) -> Implementation:
    return _walk.build("gather", operation, config, lambda axes: _picked(operation, axes))


def _picked(operation: Operation, axes: Sequence[Axis]) -> list[str]:
    data, indices = operation.input(0), operation.input(1)
    axis = int(operation.attributes["axis"]) % len(data.shape)
    inner = len(indices.shape)
    axes = list(axes[: len(operation.output.shape)])
    pick = Axis("pick", axes[0].mask if axes else None)
    if operation.op == "GatherElements":
        of_index, source = axes, [*axes[:axis], pick, *axes[axis + 1 :]]
    else:
        of_index, source = axes[axis : axis + inner], [*axes[:axis], pick, *axes[axis + inner :]]
    size = data.shape[axis]
    return [
        f"pick = {text.load(indices, 'in1', of_index)}",
        f"pick = tl.where(pick < 0, pick + {size}, pick)",
        f"pick = tl.minimum(tl.maximum(pick, 0), {size - 1})",
        f"y = {text.load(data, 'in0', source)}",
    ]
