"""Local response normalisation across channels (AlexNet)."""

from __future__ import annotations

from collections.abc import Iterator

from wavefit.native import space
from wavefit.native.opencl import c
from wavefit.native.opencl.kernels import _lanes, _source, _tables, _walk
from wavefit.native.operation import Config, Implementation, Limits, Operation

OPS = ("LRN",)


def claims(operation: Operation) -> bool:
    floats = operation.input(0).dtype in ("float32", "float16")
    return floats and operation.own == 1 and _source.present(operation) and not space.far(operation)


def configurations(operation: Operation, limits: Limits) -> Iterator[Config]:
    for local in _source.groups(limits, 256, 128, 64):
        yield {"local": local}


def build(operation: Operation, config: Config) -> Implementation:
    laid, order = _tables.in_memory_order(operation)
    x, given = laid.input(0), operation.attributes
    size, channel = int(given["size"]), order.index(1)
    axes = [f"i{axis}" for axis in range(len(order))]
    near = [*axes[:channel], "near", *axes[channel + 1 :]]
    alpha, beta, bias = (c.literal(float(given[name])) for name in ("alpha", "beta", "bias"))
    body = [
        "float sum = 0.0f;",
        f"const int from = max({axes[channel]} - {(size - 1) // 2}, 0);",
        f"const int to = min({axes[channel]} + {size // 2}, {x.shape[channel] - 1});",
        "for (int near = from; near <= to; near++) {",
        f"const float v = {c.load(x.dtype, 'in0', c.index(x, near))};",
        "sum = fma(v, v, sum);",
        "}",
        f"const float own = {c.load(x.dtype, 'in0', c.index(x, axes))};",
        f"const float y = own / pow({bias} + {alpha} / {float(size)}f * sum, {beta});",
    ]
    made = _source.kernel(
        "lrn",
        c.parameters(laid)[0],
        _walk.walk(laid, 1, lambda axes, width: [*body, *_lanes.emitted(laid, ["y"], axes)]),
        _walk.sizes(laid.output, 1, int(config["local"])),
        _lanes.declared(laid),
    )
    return _source.single("lrn", operation, config, made)


def cost(operation: Operation, config: Config, limits: Limits) -> float:
    return _source.seconds(2 * _source.traffic(operation), operation.output.size, limits)
