"""What is seldom where the time goes, in PyTorch: extrema's places, running sums, scatter, padding, resizing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod

import numpy as np

from wavefit.native import resizing
from wavefit.native.operation import Config, Implementation, Limits, Operation
from wavefit.native.triton import text
from wavefit.native.triton.kernels import _cost, _library

OPS = ("ArgMax", "ArgMin", "CumSum", "GatherND", "LRN", "Pad", "Reduce", "Resize", "ScatterND")
_CALL_SECONDS = 1e-5  # of the kernels that one call launches


def claims(operation: Operation) -> bool:
    return (
        len(operation.outputs) == 1
        and text.present(operation)
        and text.computes(operation)
        and all(
            view is None or not view.dtype.startswith("uint") or view.dtype == "uint8"
            for view in operation.inputs
        )
        and all(min(view.strides, default=0) >= 0 for view in operation.inputs if view is not None)
        and _HOW[operation.op](operation) is not None
    )


def configurations(operation: Operation, limits: Limits) -> Iterator[Config]:
    yield {"call": operation.op}


def cost(operation: Operation, config: Config, limits: Limits) -> float:
    return _CALL_SECONDS + _cost.seconds(3 * text.traffic(operation), operation.output.size, limits)


def build(operation: Operation, config: Config) -> Implementation:
    made = _HOW[operation.op](operation)
    assert made is not None
    lines, result, dtype = made
    return _library.build("library", operation, config, lines, result, dtype)


_Made = tuple[list[str], str, str] | None
"""Statements, the result's expression and its numpy type; None where it is left to others."""


def _arg(operation: Operation) -> _Made:
    axis = int(operation.attributes["axis"])
    name = "argmax" if operation.op == "ArgMax" else "argmin"
    shape = operation.output.shape
    if operation.attributes.get("select_last_index"):
        size = operation.input(0).shape[axis]
        return [], f"({size - 1} - torch.{name}(in0.flip({axis}), dim={axis})).reshape({shape})", "int64"
    return [], f"torch.{name}(in0, dim={axis}).reshape({shape})", "int64"


def _cumsum(operation: Operation) -> _Made:
    attributes, x = operation.attributes, operation.input(0)
    axis = int(attributes["axis"]) % len(x.shape)
    dtype = "float32" if x.dtype in text.FLOATS else x.dtype
    whole = "in0.float()" if x.dtype in text.FLOATS else "in0"
    lines = [f"x = {whole}"]
    if attributes.get("reverse"):
        lines.append(f"x = x.flip({axis})")
    lines.append(f"y = torch.cumsum(x, {axis}, dtype=x.dtype)")
    if attributes.get("exclusive"):
        lines.append(f"zero = torch.zeros_like(x.narrow({axis}, 0, 1))")
        lines.append(f"y = torch.cat((zero, y.narrow({axis}, 0, {x.shape[axis] - 1})), {axis})")
    if attributes.get("reverse"):
        lines.append(f"y = y.flip({axis})")
    return lines, "y", dtype


def _gather_nd(operation: Operation) -> _Made:
    """Axes of the batch are indexed by their own numbers."""
    shape, batch = operation.input(1).shape, int(operation.attributes.get("batch_dims", 0))
    index = [
        f"torch.arange({shape[axis]}, device=in0.device)"
        f".reshape({tuple(shape[axis] if at == axis else 1 for at in range(len(shape) - 1))})"
        for axis in range(batch)
    ]
    index += [f"in1[..., {number}].long()" for number in range(shape[-1])]
    return [], f"in0[({', '.join(index)},)]", operation.input(0).dtype


_JOINED = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


def _scatter_nd(operation: Operation) -> _Made:
    kind, dtype = str(operation.attributes.get("reduction", "none")), operation.input(0).dtype
    shape, depth = operation.input(0).shape, operation.input(1).shape[-1]
    if kind in ("none", ""):
        index = ", ".join(f"in1[..., {number}].long()" for number in range(depth))
        return ["y = in0.clone()", f"y[({index},)] = in2"], "y", dtype
    if kind not in _JOINED or dtype == "bool":
        return None
    made = "float32" if dtype in text.FLOATS else dtype
    rows, rest = prod(shape[:depth]), prod(shape[depth:])
    lines = [f"y = in0.to(torch.{made}).reshape({rows}, {rest}).clone()", "row = 0"]
    for axis in range(depth):
        lines.append(f"at = in1[..., {axis}].long()")
        lines.append(f"row = row * {shape[axis]} + torch.where(at < 0, at + {shape[axis]}, at)")
    lines.append(f"row = row.reshape(-1, 1).expand(-1, {rest})")
    given = f"in2.to(torch.{made}).reshape(-1, {rest})"
    lines.append(f"y.scatter_reduce_(0, row, {given}, {_JOINED[kind]!r}, include_self=True)")
    return lines, f"y.reshape({shape})", made


def _lrn(operation: Operation) -> _Made:
    attributes = operation.attributes
    size, channels = int(attributes["size"]), operation.input(0).shape[1]
    before = (size - 1) // 2
    rank = len(operation.input(0).shape)
    side = [0, 0] * (rank - 2) + [before, size - 1 - before]
    lines = [
        "x = in0.float()",
        f"squares = F.pad(x * x, {side})",
        f"near = sum(squares.narrow(1, start, {channels}) for start in range({size}))",
    ]
    scale = f"({attributes['bias']!r} + {attributes['alpha'] / size!r} * near)"
    return lines, f"x / {scale} ** {attributes['beta']!r}", "float32"


def _pad(operation: Operation) -> _Made:
    """Places along each axis as tables, copied once."""
    x = operation.input(0)
    rank, pads, mode = len(x.shape), operation.attributes["pads"], operation.attributes["mode"]
    if mode == "constant":
        sides = [pads[axis + rank * end] for axis in reversed(range(rank)) for end in (0, 1)]
        value = operation.attributes.get("value", 0.0)
        value = float(value) if x.dtype in text.FLOATS else int(value)
        return [], f"F.pad(in0, {sides}, value={value!r})", x.dtype
    lines = ["y = in0"]
    for axis in range(rank):
        old, new = x.shape[axis], operation.output.shape[axis]
        at = np.arange(new) - int(pads[axis])
        if mode == "edge":
            at = np.clip(at, 0, old - 1)
        elif mode == "wrap":
            at = at % old
        else:
            turn = at % max(2 * old - 2, 1)
            at = np.minimum(turn, 2 * old - 2 - turn) if old > 1 else np.zeros(new, np.int64)
        if new != old or (at != np.arange(new)).any():
            cut = [int(each) for each in at]
            lines.append(f"y = y.index_select({axis}, table('p{axis}', in0, {cut}, torch.int64))")
    return lines, "y", x.dtype


def _reduce(operation: Operation) -> _Made:
    axes, kind = tuple(operation.attributes["axes"]), str(operation.attributes["kind"])
    x, shape = operation.input(0), operation.output.shape
    if kind == "logsumexp" and x.dtype in text.FLOATS:
        return [], f"torch.logsumexp(in0.float(), {axes}).reshape({shape})", "float32"
    if kind == "prod":
        dtype = "float32" if x.dtype in text.FLOATS else x.dtype
        lines = ["y = in0.float()" if dtype == "float32" else "y = in0"]
        lines += [f"y = y.prod({axis}, dtype=y.dtype)" for axis in sorted(axes, reverse=True)]
        return lines, f"y.reshape({shape})", dtype
    return None


def _resize(operation: Operation) -> _Made:
    """Axis after axis: the sum of taps times weights."""
    dtype = "float32" if operation.input(0).dtype in text.FLOATS else operation.input(0).dtype
    lines = ["y = in0.float()" if dtype == "float32" else "y = in0"]
    rank = len(operation.output.shape)
    for axis in range(rank):
        if not resizing.changes(operation, axis):
            continue
        taps, weights = resizing.taps(operation, axis)
        terms = []
        for tap in range(taps.shape[1]):
            places = [int(each) for each in taps[:, tap]]
            term = f"y.index_select({axis}, table('t{axis}.{tap}', in0, {places}, torch.int64))"
            if operation.attributes["mode"] != "nearest":
                side = (-1, *(1,) * (rank - 1 - axis))
                held = [float(each) for each in weights[:, tap]]
                term += f" * table('w{axis}.{tap}', in0, {held}, torch.float32).reshape({side})"
            terms.append(term)
        lines.append(f"y = {' + '.join(terms)}")
    return lines, "y", dtype


_HOW: dict[str, Callable[[Operation], _Made]] = {
    "ArgMax": _arg,
    "ArgMin": _arg,
    "CumSum": _cumsum,
    "GatherND": _gather_nd,
    "LRN": _lrn,
    "Pad": _pad,
    "Reduce": _reduce,
    "Resize": _resize,
    "ScatterND": _scatter_nd,
}
