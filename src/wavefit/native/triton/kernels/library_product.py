"""Products and convolutions by PyTorch's library: rocBLAS, hipBLASLt and MIOpen, or cuBLAS and cuDNN.

A fallback that competes: the tuner takes it for a node where it is measured to be faster, its epilogue included, and
the placement shows it. Sums are in float32; of float32 no bits are dropped (TF32 is off for the call).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np
from msgspec.structs import replace

from wavefit.native.operation import Buffer, Config, Implementation, Limits, Operation, Packed, View
from wavefit.native.triton import text
from wavefit.native.triton.kernels import _conv, _cost, _library, _product

OPS = ("Conv", "MatMul")
_MATMUL = "exactly(lambda: torch.matmul(in0, in1))"
_SHARE = 0.5  # of the matrix units' peak
_CALL_SECONDS = 3e-6  # of each of its kernels within a graph: it and those that lay its input out


def claims(operation: Operation) -> bool:
    own = [view for view in operation.inputs[: operation.own] if view is not None]
    return (
        len(operation.outputs) == 1
        and len({view.dtype for view in own}) == 1
        and own[0].dtype in text.FLOATS
        and all(min(view.strides, default=0) >= 0 for view in own)
        and (operation.op == "MatMul" or _convolves(operation))
        and text.present(operation)
        and text.computes(operation)
    )


def _convolves(operation: Operation) -> bool:
    """Constant weights, an image, and as much padding after as before."""
    shape = _conv.conv(operation)
    pads = tuple(operation.attributes.get("pads") or ())
    return operation.constant[1] and len(shape.kernel) == 2 and pads[:2] == pads[2:]


def configurations(operation: Operation, limits: Limits) -> Iterator[Config]:
    yield {"call": operation.op}


def cost(operation: Operation, config: Config, limits: Limits) -> float:
    peak = limits.matrix.get(_product.kind(operation)) or limits.flops or 1e13
    moved = 2 * text.traffic(operation) / (limits.bandwidth or _cost.BANDWIDTH)
    launches = 1 + (operation.epilogue is not None)
    return _CALL_SECONDS * launches + max(_flops(operation) / (peak * _SHARE), moved)


def build(operation: Operation, config: Config) -> Implementation:
    dtype = operation.input(0).dtype
    if operation.op == "MatMul":
        return _library.build(
            "library_product",
            operation,
            config,
            [],
            "exactly(lambda: torch.matmul(in0, in1))",
            dtype,
            _flops(operation),
        )
    shape = _conv.conv(operation)
    laid = replace(operation, inputs=(shape.x, _channels_last(shape.w), *operation.inputs[2:]))
    call = (
        f"exactly(lambda: F.conv2d(in0, in1, {'in2' if operation.has(2) else 'None'}, {shape.strides}, {shape.begins}, "
        f"{shape.dilations}, {shape.group}))"
    )
    made = _library.build("library_product", laid, config, [], call, dtype, _flops(operation))
    first = made.launches[0]
    packed = Buffer(kind="packed")
    arguments = tuple(packed if (one.kind, one.index) == ("input", 1) else one for one in first.arguments)
    launches = (replace(first, arguments=arguments), *made.launches[1:])
    return replace(made, launches=launches, packed=(Packed(input=1, how="channels last"),))


def pack(how: str, operation: Operation, array: np.ndarray) -> np.ndarray:
    """Weights with their channels side by side, as such libraries multiply them fastest."""
    return np.moveaxis(array, 1, -1)


def _channels_last(w: View) -> View:
    _, ins, rows, columns = w.shape
    return View(shape=w.shape, strides=(ins * rows * columns, 1, columns * ins, ins), dtype=w.dtype)


def _flops(operation: Operation) -> int:
    if operation.op == "MatMul":
        return 2 * operation.output.size * operation.input(0).shape[-1]
    return 2 * operation.output.size * prod(operation.input(1).shape[1:])
