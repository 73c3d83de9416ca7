"""Resize: nearest, linear and cubic, by taps and weights in tables; see :mod:`wavefit.native.resizing`."""

from __future__ import annotations

from collections.abc import Iterator

from wavefit.native import resizing, space
from wavefit.native.opencl import c
from wavefit.native.opencl.kernels import _lanes, _source, _tables, _walk
from wavefit.native.operation import Config, Implementation, Limits, Operation

OPS = ("Resize",)

_TABLE_BYTES = 32768  # half of the least constant memory that a device has


def claims(operation: Operation) -> bool:
    floats = operation.input(0).dtype in ("float32", "float16") or operation.attributes["mode"] == "nearest"
    small = sum(8 * size * 4 for size in operation.output.shape[1:]) <= 4 * _TABLE_BYTES
    return floats and small and _source.present(operation) and not space.far(operation)


def configurations(operation: Operation, limits: Limits) -> Iterator[Config]:
    for local in _source.groups(limits, 256, 128, 64):
        yield {"local": local}


def build(operation: Operation, config: Config) -> Implementation:
    laid, order = _tables.in_memory_order(operation)
    declared, lines = _lanes.declared(laid, operation.input(0).dtype), []
    source, weight = [f"i{axis}" for axis in range(len(order))], []
    resized = [place for place, axis in enumerate(order) if resizing.changes(operation, axis)]
    for place in resized:
        taps, weights = resizing.taps(operation, order[place])
        width = taps.shape[1]
        declared = [_tables.integers(f"at{place}", taps), _tables.floats(f"w{place}", weights), *declared]
        lines += [f"for (int t{place} = 0; t{place} < {width}; t{place}++) {{"]
        source[place] = f"at{place}[i{place} * {width} + t{place}]"
        weight.append(f"w{place}[i{place} * {width} + t{place}]")
    x = laid.input(0)
    value = c.load(x.dtype, "in0", c.index(x, source))
    kind = c.register(x.dtype)
    nearest = operation.attributes["mode"] == "nearest"
    add = f"sum = {value};" if nearest else f"sum = fma({value}, {' * '.join(weight) or '1.0f'}, sum);"
    body = [f"{kind} sum = 0;", *lines, add, "}" * len(resized)]
    made = _source.kernel(
        "resize",
        c.parameters(laid)[0],
        _walk.walk(laid, 1, lambda axes, width: [*body, *_lanes.emitted(laid, ["sum"], axes)]),
        _walk.sizes(laid.output, 1, int(config["local"])),
        declared,
    )
    return _source.single("resize", operation, config, made)


def cost(operation: Operation, config: Config, limits: Limits) -> float:
    return _source.seconds(1.5 * _source.traffic(operation), operation.output.size, limits)
