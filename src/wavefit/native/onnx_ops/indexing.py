"""Elements by index, where the index is data."""

from __future__ import annotations

import numpy as np

from wavefit.native.graph import Value
from wavefit.native.onnx_ops._call import Call
from wavefit.native.onnx_ops._chain import Chain, step_type
from wavefit.native.onnx_ops.views import cut


def _gather_elements(call: Call) -> None:
    axis = call.axis(int(call.attribute("axis", 0)), len(call.input().shape))
    call.add("GatherElements", [call.input(0), call.input(1)], call.output(), axis=axis)


def _gather_nd(call: Call) -> None:
    batch = int(call.attribute("batch_dims", 0))
    call.add("GatherND", [call.input(0), call.input(1)], call.output(), batch_dims=batch)


def _scatter_nd(call: Call) -> None:
    inputs = [call.input(0), call.input(1), call.input(2)]
    call.add("ScatterND", inputs, call.output(), reduction=call.attribute("reduction", "none"))


def _one_hot(call: Call) -> str | None:
    """Whether the index, made positive, is the number of the place along the new axis."""
    depth = call.constant(1)
    if depth is None:
        return "its depth depends on the data"
    indices, to = call.input(0), call.output()
    if not np.issubdtype(np.dtype(indices.dtype), np.integer):
        return f"its indices are {indices.dtype}: integers are compared"
    axis = call.axis(int(call.attribute("axis", -1)), len(to.shape))
    count = int(depth.reshape(-1)[0])
    spread = call.reshape(indices, (*indices.shape[:axis], 1, *indices.shape[axis:]))
    places = np.arange(count, dtype=indices.dtype).reshape((count,) + (1,) * (len(to.shape) - axis - 1))
    off, on = (_element(call, place) for place in (0, 1))
    chain = Chain(
        [spread, call.value(places), on, off, call.value(np.array(0, indices.dtype))], literals=False
    )
    index, place, on_, off_, zero = chain.arguments
    dtype = step_type(indices.dtype)
    negative = chain("less", index, zero, dtype="bool")
    positive = chain("where", negative, chain("add", index, float(count), dtype=dtype), index, dtype=dtype)
    chain("where", chain("equal", positive, place, dtype="bool"), on_, off_, dtype=step_type(to.dtype))
    chain.add_to(call, to)
    return None


def _element(call: Call, place: int) -> Value:
    """Off, or on: the first or second of the two values."""
    values = call.input(2)
    if values.constant is not None:
        return call.value(values.constant[place].reshape(()))
    return call.reshape(cut(call, values, [place], [1], (1,)), ())


def _trilu(call: Call) -> str | None:
    """A matrix times a mask that is known; a product would turn infinities into NaN."""
    offset = call.ints(1) if call.given(1) else (0,)
    if offset is None:
        return "its k depends on the data"
    value, upper = call.input(), bool(call.attribute("upper", 1))
    k = offset[0]
    ones = np.ones(value.shape[-2:], bool)
    mask = np.triu(ones, k) if upper else np.tril(ones, k)
    chain = Chain([call.value(mask), value], literals=False)
    chain("where", 0, 1, 0.0, dtype=step_type(value.dtype))
    chain.add_to(call, call.output())
    return None


def _eye_like(call: Call) -> None:
    rows, columns = call.input().shape
    eye = np.eye(rows, columns, k=int(call.attribute("k", 0)), dtype=call.output().dtype)
    call.give(call.value(eye))


OPERATORS = {
    "EyeLike": _eye_like,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "OneHot": _one_hot,
    "ScatterND": _scatter_nd,
    "Trilu": _trilu,
}
