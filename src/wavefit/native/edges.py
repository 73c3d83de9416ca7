"""Small operations of the same kind with sizes that are no multiple of anything, on which a winner is checked too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from wavefit.native.operation import Operation, View

_BATCHES, _SIDES, _ROWS = (1, 3), (2, 7), (1, 67)


def edges(operation: Operation) -> Iterator[Operation]:
    """Convolutions of other batches and image sizes, products of other numbers of rows; nothing for other operators."""
    if operation.op == "Conv":
        yield from (_conv(operation, *sizes) for sizes in zip(_BATCHES, _SIDES, strict=True))
    elif operation.op == "MatMul":
        yield from (_product(operation, rows) for rows in _ROWS)


def _dense(view: View, shape: tuple[int, ...]) -> View:
    """A view of another shape without gaps, its axes in the same order in memory; repeats stay repeats."""
    order = sorted(range(len(shape)), key=lambda axis: (view.strides[axis], -axis))
    strides, step = [0] * len(shape), 1
    for axis in order:
        if view.strides[axis] or view.shape[axis] == 1:
            strides[axis] = step
            step *= shape[axis]
    return View(shape=shape, strides=tuple(strides), dtype=view.dtype)


def _conv(operation: Operation, batch: int, side: int) -> Operation:
    x, w = operation.input(0), operation.input(1)
    attributes, rank = operation.attributes, len(x.shape) - 2
    space = []
    for axis in range(rank):
        pads = attributes["pads"][axis] + attributes["pads"][axis + rank]
        reach = attributes["dilations"][axis] * (w.shape[2 + axis] - 1) + 1
        size = side + reach + axis
        space.append((size, (size + pads - reach) // attributes["strides"][axis] + 1))
    ins = (batch, x.shape[1], *(size for size, _ in space))
    outs = (batch, operation.output.shape[1], *(size for _, size in space))
    return _with(operation, {0: _dense(x, ins)}, outs)


def _product(operation: Operation, rows: int) -> Operation:
    a, out = operation.input(0), operation.output
    rank = len(out.shape)
    return _with(
        operation,
        {0: _dense(a, (*a.shape[:-2], rows, a.shape[-1]))},
        (*out.shape[: rank - 2], rows, out.shape[-1]),
    )


def _with(operation: Operation, changed: Mapping[int, View], shape: tuple[int, ...]) -> Operation:
    """The operation with other inputs and another output; what the epilogue reads follows the output's shape."""
    old = operation.output.shape
    inputs = list(operation.inputs)
    for number, view in enumerate(operation.inputs):
        if number in changed:
            inputs[number] = changed[number]
        elif view is not None and number >= operation.own:
            skip = len(old) - len(view.shape)
            inputs[number] = _dense(
                view,
                tuple(1 if n == 1 else shape[skip + axis] for axis, n in enumerate(view.shape)),
            )
    return replace(operation, inputs=tuple(inputs), outputs=(_dense(operation.output, shape),))
