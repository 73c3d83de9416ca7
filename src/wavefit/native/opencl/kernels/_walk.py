"""The walk over an output that elementwise, gathering and window kernels share.

One work-item makes ``vector`` neighbouring elements along the output's last axis; rows whose length is no multiple of
the vector end element by element.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from wavefit.native import space
from wavefit.native.opencl import c
from wavefit.native.opencl.kernels import _lanes, _source
from wavefit.native.operation import Config, Kernel, Limits, Operation, View

Body = Callable[[Sequence[str], int], list[str]]
"""Statements that make some elements, of the first one's coordinates and how many along the last axis."""


def walk(laid: Operation, vector: int, body: Body) -> list[str]:
    """The statements of a kernel over the axes of ``laid.output``; launched with :func:`sizes`."""
    shape, wide = laid.output.shape, space.far(laid)
    axes = [f"i{number}" for number in range(len(shape))]
    steps = (*shape[:-1], -(-shape[-1] // vector))
    last = axes[-1]
    names = [*axes[:-1], "step"] if vector > 1 else axes
    lines = [
        f"const {'ulong' if wide else 'uint'} place = get_global_id(0);",
        f"if (place >= {math.prod(steps)}u) return;",
        *c.split("place", steps, names, wide),
    ]
    if vector == 1:
        return [*lines, *body(axes, 1)]
    lines.append(f"const {'long' if wide else 'int'} {last} = step * {vector};")
    if shape[-1] % vector == 0:
        return [*lines, *body(axes, vector)]
    tail = [*axes[:-1], "tail"]
    return [
        *lines,
        f"if ({last} + {vector} <= {shape[-1]}) {{",
        *indented(body(axes, vector)),
        "} else {",
        f"    for (int tail = {last}; tail < {shape[-1]}; tail++) {{",
        *indented(body(tail, 1), 2),
        "    }",
        "}",
    ]


def kernel(name: str, laid: Operation, config: Config, body: Body, dtype: str = "float32") -> Kernel:
    """One that is a walk, by ``vector`` and ``local`` of a configuration; ``dtype`` is what the epilogue is given."""
    vector, local = int(config["vector"]), int(config["local"])
    parameters, sized = c.parameters(laid)[0], sizes(laid.output, vector, local)
    return _source.kernel(name, parameters, walk(laid, vector, body), sized, _lanes.declared(laid, dtype))


def indented(lines: Sequence[str], levels: int = 1) -> list[str]:
    return ["    " * levels + line for line in lines]


def sizes(output: View, vector: int, local: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Global and local sizes of a walk."""
    count = items(output, vector)
    local = min(local, space.rounded(count, 32))
    return (space.rounded(count, local),), (local,)


def items(output: View, vector: int) -> int:
    """Work-items of a walk."""
    return math.prod(output.shape[:-1]) * -(-output.shape[-1] // vector)


def widths(views: Sequence[View], limits: Limits) -> list[int]:
    """Elements for one work-item, best first: 16 bytes of the narrowest of the views, less where work-items are few.

    The views have equal shapes, the output first; only those of stride 1 on the last axis gain from vectors.
    """
    output = views[0]
    last = output.shape[-1]
    possible = [width for width in (8, 4, 2, 1) if width <= last]
    packed = [view.itemsize for view in views if view.strides[-1] == 1]
    wanted = min(8, 16 // min(packed)) if packed else 1
    enough = limits.wave * 4 * (limits.compute_units or 16)
    while wanted > 1 and output.size // wanted < enough:
        wanted //= 2
    return sorted(possible, key=lambda width: (abs(width.bit_length() - wanted.bit_length()), -width))


def seconds(laid: Operation, vector: int, limits: Limits) -> float:
    """The predicted time of a walk: bytes over bandwidth, those of scattered elements counted by the cache line."""
    wide = 0.0
    for view in (*laid.inputs, *laid.outputs):
        if view is not None:
            narrow = 1.0 if view.strides[-1] in (0, 1) else min(8.0, 64.0 / view.itemsize)
            wide += _source.touched(view) * narrow * (1 + 0.05 * (vector * view.itemsize != 16))
    return _source.seconds(wide, items(laid.output, vector), limits)
