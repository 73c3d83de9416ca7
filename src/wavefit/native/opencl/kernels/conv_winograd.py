"""3x3 convolution of stride 1 by Winograd's F(2x2, 3x3) and F(4x4, 3x3): 2.25 and 4 times fewer multiplications.

Three kernels: tiles of the input are transformed, for each of the 16 or 36 points a matrix product over the channels
is made (one batched product, the matrix product's own kernels), and the products are transformed back, with bias and
epilogue. The transforms are bound by memory and write 4 or 2.25 times what they read: it pays where there are channels.

Relative L2 error against float64, normal random data and 256 channels: F(2x2) 4e-7, F(4x4) 1.0e-6 (2.2e-6 with the
usual points 0, 1, -1, 2, -2; a plain float32 sum has 3e-7 to 6e-7). Of a network of 16 such layers of 128 channels,
in float32 on a CPU: F(2x2) 9e-7, F(4x4) 2.2e-6, torch's direct convolution 1.7e-6; with residuals 6e-7, 1.2e-6, 1.1e-6.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import msgspec
import numpy as np

from wavefit.native.opencl import c
from wavefit.native.opencl.kernels import _conv, _winograd, matmul
from wavefit.native.operation import (
    Buffer,
    Config,
    Implementation,
    Kernel,
    Launch,
    Limits,
    Operation,
    Packed,
    View,
    row_major,
)

OPS = ("Conv",)

_TILES = 4  # tilings of the product that are tried with each m
_VECTORS = {2: (4, 2, 1), 4: (2, 1)}  # channels of a work-item of the transforms, by m
_LEAST_CHANNELS = 8


def claims(operation: Operation) -> bool:
    shape = _conv.conv(operation)
    return (
        _conv.computable(operation)
        and _conv.known(operation, 1)
        and shape.kernel == (3, 3)
        and shape.strides == shape.dilations == (1, 1)
        and shape.group == 1
        and min(shape.ins, shape.outs) >= _LEAST_CHANNELS
        and shape.x.channels_last
        and all(
            view.extent <= _conv.LONGEST
            for view in (*_product(shape, 2).inputs, _product(shape, 2).output)
            if view
        )
    )


def configurations(operation: Operation, limits: Limits) -> Iterator[Config]:
    """``m`` of F(m x m, 3x3), ``vector`` channels of a work-item of the transforms, and the tile of the product.

    float16 is stored between the kernels too, and F(4x4) would lose what it rounds: it gets F(2x2) alone.
    """
    shape = _conv.conv(operation)
    found: list[Config] = []
    for m in (2,) if "float16" in (shape.x.dtype, shape.w.dtype) else (4, 2):
        for tile in islice(matmul.configurations(_product(shape, m), limits), _TILES):
            for vector in _VECTORS[m]:
                fits = vector == 1 or _registers(m, vector) <= _conv.most_registers(limits)
                if fits and shape.ins % vector == 0 and shape.outs % vector == 0:
                    found.append({"m": m, "vector": vector, **tile})
    yield from sorted(found, key=lambda config: cost(operation, config, limits))


def _tiles(shape: _conv.Conv, m: int) -> tuple[int, int, int]:
    """Batch, tiles down, tiles across."""
    return shape.batch, _conv.ceil_div(shape.out[0], m), _conv.ceil_div(shape.out[1], m)


def _product(shape: _conv.Conv, m: int) -> Operation:
    """The batched product: (points, tiles, C) by (points, C, O)."""
    points, tiles = _winograd.size(m) ** 2, int(np.prod(_tiles(shape, m)))

    def dense(*sizes: int, dtype: str = shape.x.dtype) -> View:
        return View(shape=sizes, strides=row_major(sizes), dtype=dtype)

    return Operation(
        op="MatMul",
        inputs=(
            dense(points, tiles, shape.ins),
            dense(points, shape.ins, shape.outs, dtype=shape.w.dtype),
        ),
        outputs=(dense(points, tiles, shape.outs),),
        constant=(False, False),
        own=2,
    )


def build(operation: Operation, config: Config) -> Implementation:
    shape, m = _conv.conv(operation), int(config["m"])
    product = _product(shape, m)
    made = matmul.build(product, {key: value for key, value in config.items() if key not in ("m", "vector")})
    scratch = (product.input(0), product.output)
    return Implementation(
        template="conv_winograd",
        config=config,
        launches=(
            Launch(
                kernel=_forward(shape, config),
                arguments=(Buffer(kind="input", index=0), Buffer(kind="scratch", index=0)),
            ),
            *(
                Launch(kernel=launch.kernel, arguments=tuple(_place(each) for each in launch.arguments))
                for launch in made.launches
            ),
            _back(operation, shape, config),
        ),
        scratch=(*(view.size * view.itemsize for view in scratch), *made.scratch),
        packed=(Packed(input=1, how=f"winograd{m}"),),
        flops=made.flops,
        bytes=shape.bytes,
    )


def _place(buffer: Buffer) -> Buffer:
    """The product's operands in scratch memory, its second one packed weights, its scratch after ours."""
    places = {
        ("input", 0): Buffer(kind="scratch", index=0),
        ("input", 1): Buffer(kind="packed", index=0),
        ("output", 0): Buffer(kind="scratch", index=1),
    }
    return places.get((buffer.kind, buffer.index)) or Buffer(kind="scratch", index=2 + buffer.index)


def pack(how: str, operation: Operation, array: np.ndarray) -> np.ndarray:
    return _winograd.weights(int(how.removeprefix("winograd")), array)


def cost(operation: Operation, config: Config, limits: Limits) -> float:
    """The product's, and what the transforms move: at twice the bandwidth where a half of the L2 cache holds it."""
    shape, m = _conv.conv(operation), int(config["m"])
    product = _product(shape, m)
    moved = shape.bytes + sum(view.size * view.itemsize for view in (product.input(0), product.output))
    held = limits.l2_bytes is not None and moved < limits.l2_bytes / 2
    tile = {key: value for key, value in config.items() if key not in ("m", "vector")}
    slower = 1 + 0.05 * abs(int(config["vector"]) - 2)
    transforms = _conv.seconds(0, moved * slower / (2 if held else 1), limits, 1.0, launches=2)
    return transforms + matmul.cost(product, tile, limits)


_ITEMS = 128


def _registers(m: int, vector: int) -> int:
    """Of the input's transform: a tile half transformed, and a column of it."""
    n = _winograd.size(m)
    return vector * n * (n + 1) + 16


def _forward(shape: _conv.Conv, config: Config) -> Kernel:
    """Input tiles to (points, tiles, C)."""
    m, vector = int(config["m"]), int(config["vector"])
    n, kind, x = _winograd.size(m), _conv.floats(vector), shape.x
    tiles = _tiles(shape, m)
    grid = _conv.Grid(shape.ins // vector, int(np.prod(tiles)), _ITEMS)
    step, wide = grid.runs * shape.ins, _conv.aligned(x, vector)
    zero = "0.0f" if vector == 1 else f"({kind})(0.0f)"

    def load(i: int, j: int) -> str:
        at = c.index(x, ["n", "channel", f"y + {i}", f"x + {j}"])
        return f"oky{i} && okx{j} ? {c.load_vector(x.dtype, 'in0', at, vector, wide)} : {zero}"

    def store(i: int, j: int, value: str) -> list[str]:
        at = f"{(i * n + j) * step} + run * {shape.ins} + channel"
        return [c.store_vector(x.dtype, "out", at, value, vector, shape.ins % vector == 0)]

    lines = [
        *grid.code,
        f"const int channel = block * {vector};",
        *c.coordinates("run", tiles, ["n", "ty", "tx"]),
        f"const int y = ty * {m} - {shape.begins[0]}, x = tx * {m} - {shape.begins[1]};",
        *(f"const int oky{i} = y + {i} >= 0 && y + {i} < {shape.size[0]};" for i in range(n)),
        *(f"const int okx{j} = x + {j} >= 0 && x + {j} < {shape.size[1]};" for j in range(n)),
        *_winograd.transform(_winograd.matrices(m)[2], kind, load, store),
    ]
    stored = c.STORED[x.dtype]
    return Kernel(
        name="winograd_forward",
        source=_conv.kernel(
            "winograd_forward", f"__global const {stored} *in0, __global {stored} *out", _ITEMS, lines
        ),
        global_size=grid.global_size,
        local_size=(_ITEMS,),
        registers=_registers(m, vector),
    )


def _back(operation: Operation, shape: _conv.Conv, config: Config) -> Launch:
    """(points, tiles, O) to output tiles, with bias and epilogue."""
    m, vector = int(config["m"]), int(config["vector"])
    n, kind = _winograd.size(m), _conv.floats(vector)
    tiles = _tiles(shape, m)
    grid = _conv.Grid(shape.outs // vector, int(np.prod(tiles)), _ITEMS)
    step = grid.runs * shape.outs
    dtype = _product(shape, m).output.dtype

    def load(i: int, j: int) -> str:
        at = f"{(i * n + j) * step} + run * {shape.outs} + channel"
        return c.load_vector(dtype, "products", at, vector, True)

    def store(i: int, j: int, value: str) -> list[str]:
        checks = [f"y + {i} < {shape.out[0]}"] * (i > 0 and shape.out[0] % m > 0)
        checks += [f"x + {j} < {shape.out[1]}"] * (j > 0 and shape.out[1] % m > 0)
        guard = f"if ({' && '.join(checks)})" if checks else ""
        body = [f"const {kind} s = {value} + b;"]
        body += _conv.finish(operation, "s", ["n", "channel", f"y + {i}", f"x + {j}"], vector)
        return [guard, "{", *body, "}"]

    lines = [
        *grid.code,
        f"const int channel = block * {vector};",
        *c.coordinates("run", tiles, ["n", "ty", "tx"]),
        f"const int y = ty * {m}, x = tx * {m};",
        f"const {kind} b = {_conv.bias(operation, 'channel', vector)};",
        *_winograd.transform(_winograd.matrices(m)[0], kind, load, store),
    ]
    rest = msgspec.structs.replace(operation, inputs=(None, None, *operation.inputs[2:]))
    text, buffers = _conv.parameters(rest)
    kernel = Kernel(
        name="winograd_back",
        source=_conv.kernel(
            "winograd_back", f"__global const {c.STORED[dtype]} *products, {text}", _ITEMS, lines
        ),
        global_size=grid.global_size,
        local_size=(_ITEMS,),
        registers=vector * n * (m + 1) + 24,
    )
    return Launch(kernel=kernel, arguments=(Buffer(kind="scratch", index=1), *buffers))
