"""MaxPool and AveragePool of any rank and any strides.

One work-item makes ``vector`` neighbouring elements along the innermost axis that input and output share: the channels,
where images are stored channels-last. Windows that never leave the image are not tested.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from wavefit.native import space
from wavefit.native.opencl import c
from wavefit.native.opencl.kernels import _lanes, _source, _walk
from wavefit.native.operation import Config, Implementation, Limits, Operation, View
from wavefit.schema import Struct

OPS = ("MaxPool", "AveragePool")


class Window(Struct, frozen=True, kw_only=True):
    """A pool's window along one spatial axis."""

    size: int  # of the input
    made: int  # of the output
    kernel: int
    stride: int
    before: int  # padding
    after: int
    dilation: int

    @property
    def inside(self) -> bool:
        """Whether no window reaches past the input."""
        last = (self.made - 1) * self.stride - self.before + (self.kernel - 1) * self.dilation
        return self.before == 0 and last < self.size


def claims(operation: Operation) -> bool:
    return (
        operation.own == 1
        and len(operation.outputs) == 1
        and len(operation.output.shape) >= 3
        and _source.present(operation)
        and (operation.op == "MaxPool" or operation.input(0).dtype in ("float32", "float16"))
    )


def windows(operation: Operation) -> list[Window]:
    rank = len(operation.output.shape) - 2
    given = operation.attributes
    pads = given["pads"]
    return [
        Window(
            size=operation.input(0).shape[axis + 2],
            made=operation.output.shape[axis + 2],
            kernel=given["kernel_shape"][axis],
            stride=given["strides"][axis],
            before=pads[axis],
            after=pads[axis + rank],
            dilation=given["dilations"][axis] if "dilations" in given else 1,
        )
        for axis in range(rank)
    ]


def _order(operation: Operation) -> list[int]:
    """The output's axes by its strides, the smallest last; on that one the lanes lie."""
    strides = operation.output.strides
    return sorted(range(len(strides)), key=lambda a: (operation.output.shape[a] != 1, -strides[a]))


def _laid(operation: Operation) -> Operation:
    order, shape = _order(operation), operation.output.shape

    def moved(view: View) -> View:
        return msgspec.structs.replace(
            view,
            shape=tuple(view.shape[axis] for axis in order),
            strides=tuple(view.strides[axis] for axis in order),
        )

    others = [space.over(operation.input(n), shape) for n in range(1, len(operation.inputs))]
    return msgspec.structs.replace(
        operation,
        inputs=(moved(operation.input(0)), *map(moved, others)),
        outputs=(moved(operation.output),),
    )


def configurations(operation: Operation, limits: Limits) -> Iterator[Config]:
    laid = _laid(operation)
    channels = _order(operation)[-1] == 1
    vectors = _walk.widths([laid.output, laid.input(0)], limits) if channels else [1]
    for vector in vectors:
        for local in _source.groups(limits, 256, 128, 64):
            yield {"vector": vector, "local": local}


def build(operation: Operation, config: Config) -> Implementation:
    laid = _laid(operation)
    vector, local = int(config["vector"]), int(config["local"])
    order = _order(operation)

    def body(axes: Sequence[str], width: int) -> list[str]:
        return _window_code(operation, laid, [axes[order.index(a)] for a in range(len(order))], width)

    made = _source.kernel(
        "pool",
        c.parameters(laid)[0],
        _walk.walk(laid, vector, body),
        _walk.sizes(laid.output, vector, local),
        _lanes.declared(laid, operation.input(0).dtype),
    )
    taps = int(np.prod([window.kernel for window in windows(operation)]))
    return _source.single("pool", operation, config, made, taps * operation.output.size)


def _window_code(operation: Operation, laid: Operation, axes: list[str], width: int) -> list[str]:
    """The statements of ``width`` results at the coordinates ``axes``, which stand in ONNX's order."""
    order, spans = _order(operation), windows(operation)
    kind = c.register(operation.input(0).dtype)
    average = operation.op == "AveragePool"
    start = "0" if average else _lowest(operation.input(0).dtype)
    lines = [f"{kind} sum{lane} = {start};" for lane in range(width)]
    places = list(axes)
    for number, span in enumerate(spans):
        lines.append(f"const int first{number} = {axes[number + 2]} * {span.stride} - {span.before};")
        places[number + 2] = f"p{number}"
    inner: list[str] = []
    code, names = _lanes.load(laid.input(0), "in0", [places[axis] for axis in order], width, "x")
    inner += code
    for lane, name in enumerate(names):
        inner.append(_take(average, f"sum{lane}", name))
    lines += _loops(spans, inner)
    values = [f"sum{lane}" for lane in range(width)]
    if average:
        lines.append(f"const float scale = 1.0f / ({_divisor(operation, spans)});")
        values = [f"{value} * scale" for value in values]
    return lines + _lanes.emitted(laid, values, [axes[axis] for axis in order])


def _take(average: bool, total: str, value: str) -> str:
    return f"{total} += {value};" if average else f"{total} = {value} > {total} ? {value} : {total};"


def _loops(spans: Sequence[Window], inner: list[str]) -> list[str]:
    """The loops over a window round the statements of one tap, whose place is ``p0``, ``p1``..."""
    lines = inner
    for number, span in list(enumerate(spans))[::-1]:
        test = [] if span.inside else [f"if (p{number} < 0 || p{number} >= {span.size}) continue;"]
        lines = [
            "#pragma unroll"
            if span.kernel <= 4
            else "#pragma unroll 1",  # with 49 loads in flight 3 waves fit
            f"for (int k{number} = 0; k{number} < {span.kernel}; k{number}++) {{",
            f"    const int p{number} = first{number} + k{number} * {span.dilation};",
            *_walk.indented([*test, *lines]),
            "}",
        ]
    return lines


def _divisor(operation: Operation, spans: Sequence[Window]) -> str:
    """How many elements a window averages: with its pads, where they count, but never what lies beyond the pads."""
    padded = bool(operation.attributes.get("count_include_pad", 0))
    counts = []
    for number, span in enumerate(spans):
        if span.inside:
            counts.append(str(span.kernel))
            continue
        end = span.size + (span.after if padded else 0)
        last = f"min({span.kernel}, ({end} - first{number} + {span.dilation - 1}) / {span.dilation})"
        first = "0" if padded else f"max(0, ({span.dilation - 1} - first{number}) / {span.dilation})"
        counts.append(f"max(1, {last} - {first})")
    return " * ".join(counts)


def _lowest(dtype: str) -> str:
    if dtype in ("float32", "float16"):
        return c.literal(-np.inf)
    return f"({c.register(dtype)})({'0' if dtype == 'bool' else np.iinfo(dtype).min})"


def cost(operation: Operation, config: Config, limits: Limits) -> float:
    taps = float(np.prod([window.kernel for window in windows(operation)]))
    cached = 1 + 0.1 * min(taps, 10.0)  # taps that neighbours share come from the cache
    return cached * _walk.seconds(_laid(operation), int(config["vector"]), limits)
