"""ScatterND without races: each element of the output looks for the updates of its place.

Three kernels: no place has an update; each update says that it is its place's last, and which one was before it;
each element takes the last update, or what ``reduction`` makes of all of them in one order. The answer is the same in
every run: without a reduction the last of several updates stands, which ONNX leaves open.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import msgspec

from wavefit.native import space
from wavefit.native.opencl import c
from wavefit.native.opencl.functions import FUNCTIONS
from wavefit.native.opencl.kernels import _lanes, _places, _source, _walk
from wavefit.native.operation import Buffer, Config, Implementation, Kernel, Launch, Limits, Operation

OPS = ("ScatterND",)

_MOST_JOINED = 8192  # updates of a reduction: each is compared with all before it
_WAYS = {"none": "{1}", **{name: FUNCTIONS[name] for name in ("add", "mul", "min", "max")}}


def claims(operation: Operation) -> bool:
    way = operation.attributes["reduction"]
    return (
        operation.own == 3
        and operation.input(1).dtype in _places.INDICES
        and way in _WAYS
        and (way == "none" or _updates(operation) <= _MOST_JOINED)
        and _source.present(operation)
        and not space.far(operation)
    )


def configurations(operation: Operation, limits: Limits) -> Iterator[Config]:
    for local in _source.groups(limits, 256, 128, 64):
        yield {"local": local}


def build(operation: Operation, config: Config) -> Implementation:
    local, updates = int(config["local"]), _updates(operation)
    last, before = (Buffer(kind="scratch", index=number) for number in range(2))
    _, given = c.parameters(operation)
    inputs = [Buffer(kind="input", index=number) for number in given]
    output = Buffer(kind="output", index=0)
    launches = (
        Launch(kernel=_clear(_named(operation), local), arguments=(last,)),
        Launch(kernel=_link(operation, local), arguments=(inputs[1], last, before)),
        Launch(kernel=_take(operation, local), arguments=(*inputs, output, last, before)),
    )
    return Implementation(
        template="scatter_nd",
        config=config,
        launches=launches,
        scratch=(4 * _named(operation), 4 * updates),
        bytes=_source.traffic(operation),
    )


def cost(operation: Operation, config: Config, limits: Limits) -> float:
    moved = _source.traffic(operation) + 8 * _named(operation) + 8 * _updates(operation)
    return _source.seconds(moved, operation.output.size, limits, launches=3)


def _depth(operation: Operation) -> int:
    """Axes of the data that an index names."""
    return operation.input(1).shape[-1]


def _named(operation: Operation) -> int:
    """Places that indices can name."""
    return prod(operation.output.shape[: _depth(operation)])


def _updates(operation: Operation) -> int:
    return prod(operation.input(1).shape[:-1])


def _clear(places: int, local: int) -> Kernel:
    body = [
        "const uint place = get_global_id(0);",
        f"if (place < {places}u) last[place] = -1;",
    ]
    sizes = (space.rounded(places, local),), (local,)
    return _source.kernel("clear", ["__global int *last"], body, sizes)


def _link(operation: Operation, local: int) -> Kernel:
    """The last update of each place, and for a reduction the one before each: all before it are looked through."""
    indices, updates = operation.input(1), _updates(operation)
    sizes = operation.output.shape[: _depth(operation)]
    body = [
        "const int update = get_global_id(0);",
        f"if (update >= {updates}) return;",
        *_place(operation, "update", "p"),
        f"const int place = {_places.flat(sizes, _names('p', operation))};",
        "atomic_max(last + place, update);",
    ]
    if operation.attributes["reduction"] != "none":
        body += [
            "int other = update - 1;",
            "for (; other >= 0; other--) {",
            *_place(operation, "other", "q"),
            f"if ({_places.flat(sizes, _names('q', operation))} == place) break;",
            "}",
            "before[update] = other;",
        ]
    signature = [
        f"__global const {c.STORED[indices.dtype]} *in1",
        "volatile __global int *last",
        "__global int *before",
    ]
    return _source.kernel("link", signature, body, ((space.rounded(updates, local),), (local,)))


def _names(prefix: str, operation: Operation) -> list[str]:
    return [f"{prefix}{number}" for number in range(_depth(operation))]


def _place(operation: Operation, update: str, prefix: str) -> list[str]:
    """The place that an update names."""
    indices = operation.input(1)
    axes = [f"{prefix}_{axis}" for axis in range(len(indices.shape) - 1)]
    split = c.split(f"(uint){update}", indices.shape[:-1], axes) if axes else []
    return [*split, *_places.picked(indices, axes, operation.output.shape[: _depth(operation)], prefix)]


def _take(operation: Operation, local: int) -> Kernel:
    laid = _laid(operation)
    signature = [*c.parameters(laid)[0], "__global const int *last", "__global const int *before"]
    body = _walk.walk(laid, 1, lambda axes, width: _element(laid, list(axes)))
    declared = _lanes.declared(laid, operation.input(0).dtype)
    return _source.kernel("take", signature, body, _walk.sizes(laid.output, 1, local), declared)


def _laid(operation: Operation) -> Operation:
    later = [v if v is None else space.over(v, operation.output.shape) for v in operation.inputs[3:]]
    return msgspec.structs.replace(operation, inputs=(*operation.inputs[:3], *later))


def _element(laid: Operation, axes: list[str]) -> list[str]:
    data, updates, depth = laid.input(0), laid.input(2), _depth(laid)
    kind, way = c.register(data.dtype), str(laid.attributes["reduction"])
    outer = laid.input(1).shape[:-1]
    names = [f"u{axis}" for axis in range(len(outer))]
    update = c.load(updates.dtype, "in2", c.index(updates, [*names, *axes[depth:]]))
    take = [
        *(c.split("(uint)update", outer, names) if names else []),
        f"const {kind} new = {update};",
        f"y = {_WAYS[way].format('y', 'new')};",
    ]
    start = f"int update = last[{_places.flat(laid.output.shape[:depth], axes[:depth])}];"
    loop = "if (update >= 0) {" if way == "none" else "for (; update >= 0; update = before[update]) {"
    value = c.load(data.dtype, "in0", c.index(data, axes))
    return [f"{kind} y = {value};", start, loop, *take, "}", *_lanes.emitted(laid, ["y"], axes)]
