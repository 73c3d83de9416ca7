"""Reductions over axes that are known."""

from __future__ import annotations

from wavefit.native.onnx_ops._call import Call
from wavefit.native.onnx_ops._chain import Chain, is_float, step_type

_KINDS = {
    "ReduceL1": "l1",
    "ReduceL2": "l2",
    "ReduceLogSum": "logsum",
    "ReduceLogSumExp": "logsumexp",
    "ReduceMax": "max",
    "ReduceMean": "mean",
    "ReduceMin": "min",
    "ReduceProd": "prod",
    "ReduceSum": "sum",
    "ReduceSumSquare": "sumsquare",
}


def _reduce(call: Call) -> str | None:
    """Axes were an attribute before version 18 (13 for ReduceSum); none at all are all, unless said otherwise."""
    value, kind = call.input(), _KINDS[call.op]
    if call.given(1) and call.constant(1) is None:
        return "its axes depend on the data"
    listed, rank = call.ints(1, "axes") or (), len(value.shape)
    axes = tuple(sorted({call.axis(axis, rank) for axis in listed}))
    if (not axes and call.attribute("noop_with_empty_axes", 0)) or rank == 0:
        _of_single_elements(call, kind)
    else:
        call.add("Reduce", [value], call.output(), kind=kind, axes=axes or tuple(range(rank)))
    return None


def _of_single_elements(call: Call, kind: str) -> None:
    """A reduction of each element by itself."""
    value = call.input()
    dtype = step_type(value.dtype)
    chain = Chain([value], literals=False)
    if kind in ("l1", "l2"):
        chain("fabs" if is_float(dtype) else "abs", 0, dtype=dtype)
    elif kind == "sumsquare":
        chain("mul", 0, 0, dtype=dtype)
    elif kind == "logsum":
        chain("log", 0, dtype=dtype)
    else:
        call.give(value)
        return
    chain.add_to(call, call.output())


def _arg(call: Call) -> None:
    value = call.input()
    call.add(
        call.op,
        [value],
        call.output(),
        axis=call.axis(int(call.attribute("axis", 0)), len(value.shape)),
        select_last_index=bool(call.attribute("select_last_index", 0)),
    )


def _cumsum(call: Call) -> str | None:
    axis = call.ints(1)
    if axis is None:
        return "its axis depends on the data"
    call.add(
        "CumSum",
        [call.input()],
        call.output(),
        axis=call.axis(axis[0], len(call.input().shape)),
        exclusive=bool(call.attribute("exclusive", 0)),
        reverse=bool(call.attribute("reverse", 0)),
    )
    return None


OPERATORS = {**dict.fromkeys(_KINDS, _reduce), "ArgMax": _arg, "ArgMin": _arg, "CumSum": _cumsum}
