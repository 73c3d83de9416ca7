"""Operations that stand for what networks hold: layers of known networks, and small ones with odd sizes.

The layers are what an audit compiles, the odd ones what a self-test runs on the device at hand.
"""

from __future__ import annotations

from typing import Any

import msgspec

from wavefit.native import views
from wavefit.native.operation import Operation, View, channels_last, row_major
from wavefit.native.pointwise import Apply, Pointwise

BIAS_RELU = Pointwise(
    operands=2,
    steps=(Apply(function="add", arguments=(0, 1)), Apply(function="relu", arguments=(2,))),
)
GELU = Pointwise(
    operands=1,
    steps=(
        Apply(function="mul", arguments=(0, 0.7071067811865476)),
        Apply(function="erf", arguments=(1,)),
        Apply(function="add", arguments=(2, 1.0)),
        Apply(function="mul", arguments=(3, 0.5)),
        Apply(function="mul", arguments=(0, 4)),
    ),
)
REQUANTISE = Pointwise(  # by scales, with a residual in int8 added, rounded and held within int8
    operands=3,
    steps=(
        Apply(function="mul", arguments=(0, 1)),
        Apply(function="cast", arguments=(2,)),
        Apply(function="mul", arguments=(4, 0.5)),
        Apply(function="add", arguments=(3, 5)),
        Apply(function="round", arguments=(6,)),
        Apply(function="clip", arguments=(7, -128.0, 127.0)),
        Apply(function="cast", arguments=(8,), dtype="int8"),
    ),
)
SILU = Pointwise(
    operands=1,
    steps=(Apply(function="sigmoid", arguments=(0,)), Apply(function="mul", arguments=(0, 1))),
)


def rows(*shape: int, dtype: str = "float32") -> View:
    """A dense tensor in the shape's own order."""
    return View(shape=shape, strides=row_major(shape), dtype=dtype)


def image(*shape: int, dtype: str = "float32") -> View:
    """A dense image (N, C, spatial...) with its channels side by side."""
    return View(shape=shape, strides=channels_last(shape), dtype=dtype)


def turned(view: View) -> View:
    """The view with its last two axes exchanged."""
    rank = len(view.shape)
    return views.transpose(view, (*range(rank - 2), rank - 1, rank - 2))


def conv(
    x: View, outs: int, kernel: tuple[int, ...], *, stride: int = 1, pad: int = 0, group: int = 1, **more: Any
) -> Operation:
    """A Conv with constant weights and bias. ``more``: dilation, residual (an operand added, then ReLU)."""
    dilation, rank = more.get("dilation", 1), len(kernel)
    out = tuple(
        (n + 2 * pad - dilation * (k - 1) - 1) // stride + 1 for n, k in zip(x.shape[2:], kernel, strict=True)
    )
    y = image(x.shape[0], outs, *out, dtype=x.dtype)
    weights = rows(outs, x.shape[1] // group, *kernel, dtype=x.dtype)
    inputs: tuple[View, ...] = (x, weights, rows(outs, dtype=x.dtype))
    residual = bool(more.get("residual"))
    return Operation(
        op="Conv",
        inputs=(*inputs, y) if residual else inputs,
        outputs=(y,),
        attributes={
            "strides": (stride,) * rank,
            "pads": (pad,) * (2 * rank),
            "dilations": (dilation,) * rank,
            "group": group,
        },
        constant=(False, True, True, False)[: 4 if residual else 3],
        own=3,
        epilogue=BIAS_RELU if residual else None,
    )


def small_conv(x: View, outs: int, kernel: tuple[int, ...], *, zero_point: int = 0, **more: Any) -> Operation:
    """A Conv of small integers: no bias, sums as floats. ``more``: as for :func:`conv`."""
    plain = conv(x, outs, kernel, **more)
    y = plain.output
    return msgspec.structs.replace(
        plain,
        inputs=(x, rows(*plain.input(1).shape, dtype="int8")),
        outputs=(image(*y.shape),),
        attributes={**plain.attributes, "zero_point": zero_point},
        constant=(False, True),
        own=2,
    )


def requantised(plain: Operation) -> Operation:
    """Sums of small integers, scaled by channel, with a residual added, as int8; ``plain``: a :func:`small_conv`."""
    y = image(*plain.output.shape, dtype="int8")
    scales = rows(y.shape[1], *(1,) * (len(y.shape) - 2))
    return msgspec.structs.replace(
        plain,
        inputs=(*plain.inputs, scales, y),
        outputs=(y,),
        constant=(False, True, True, False),
        epilogue=REQUANTISE,
    )


def small_matmul(a: View, columns: int, zero_point: int = 0) -> Operation:
    """A product of small integers with a constant matrix, as floats."""
    return Operation(
        op="MatMul",
        inputs=(a, rows(a.shape[-1], columns, dtype="int8")),
        outputs=(rows(*a.shape[:-1], columns),),
        attributes={"zero_point": zero_point},
        constant=(False, True),
        own=2,
    )


def conv_transpose(x: View, outs: int, kernel: tuple[int, int], stride: int, pad: int) -> Operation:
    out = tuple((n - 1) * stride - 2 * pad + k for n, k in zip(x.shape[2:], kernel, strict=True))
    return Operation(
        op="ConvTranspose",
        inputs=(x, rows(x.shape[1], outs, *kernel, dtype=x.dtype), None),
        outputs=(image(x.shape[0], outs, *out, dtype=x.dtype),),
        attributes={
            "strides": (stride,) * 2,
            "pads": (pad,) * 4,
            "dilations": (1, 1),
            "group": 1,
            "output_padding": (0, 0),
        },
        constant=(False, True, False),
        own=3,
    )


def matmul(a: View, b: View, bias: bool = False, constant: bool = True) -> Operation:
    batch = a.shape[:-2] if len(a.shape) >= len(b.shape) else b.shape[:-2]
    y = rows(*batch, a.shape[-2], b.shape[-1], dtype=a.dtype)
    return Operation(
        op="MatMul",
        inputs=(a, b, rows(b.shape[-1], dtype=a.dtype)) if bias else (a, b),
        outputs=(y,),
        constant=(False, constant, True)[: 3 if bias else 2],
        own=2,
        epilogue=BIAS_RELU if bias else None,
    )


def pool(op: str, x: View, size: int, stride: int, pad: int, inclusive: int = 0) -> Operation:
    out = tuple((n + 2 * pad - size) // stride + 1 for n in x.shape[2:])
    return Operation(
        op=op,
        inputs=(x,),
        outputs=(image(*x.shape[:2], *out, dtype=x.dtype),),
        attributes={
            "kernel_shape": (size,) * 2,
            "strides": (stride,) * 2,
            "pads": (pad,) * 4,
            "dilations": (1, 1),
            "count_include_pad": inclusive,
        },
        constant=(False,),
        own=1,
    )


def reduce(kind: str, x: View, *axes: int) -> Operation:
    kept = tuple(1 if axis in axes else n for axis, n in enumerate(x.shape))
    return Operation(
        op="Reduce",
        inputs=(x,),
        outputs=(rows(*kept, dtype=x.dtype),),
        attributes={"kind": kind, "axes": axes},
        constant=(False,),
        own=1,
    )


def softmax(x: View, axis: int, log: bool = False) -> Operation:
    attributes = {"axis": axis % len(x.shape), "log": log}
    return Operation(op="Softmax", inputs=(x,), outputs=(x,), attributes=attributes, constant=(False,), own=1)


def layer_norm(x: View) -> Operation:
    vector = rows(x.shape[-1], dtype=x.dtype)
    return Operation(
        op="LayerNormalization",
        inputs=(x, vector, vector),
        outputs=(x,),
        attributes={"axis": len(x.shape) - 1, "epsilon": 1e-5},
        constant=(False, True, True),
        own=3,
    )


def instance_norm(x: View) -> Operation:
    vector = rows(x.shape[1], dtype=x.dtype)
    return Operation(
        op="InstanceNormalization",
        inputs=(x, vector, vector),
        outputs=(x,),
        attributes={"epsilon": 1e-5},
        constant=(False, True, True),
        own=3,
    )


def pointwise(expression: Pointwise, out: View, *operands: View) -> Operation:
    return Operation(
        op="Pointwise",
        inputs=operands,
        outputs=(out,),
        constant=(False,) * len(operands),
        own=0,
        epilogue=expression,
    )


def copy(x: View, y: View) -> Operation:
    return Operation(op="Copy", inputs=(x,), outputs=(y,), constant=(False,), own=1)


def gather(x: View, indices: View, axis: int) -> Operation:
    shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
    return Operation(
        op="Gather",
        inputs=(x, indices),
        outputs=(rows(*shape, dtype=x.dtype),),
        attributes={"axis": axis},
        constant=(True, False),
        own=2,
    )


def attention(heads: int, queries: int, keys: int, depth: int) -> Operation:
    q, k = rows(heads, queries, depth), rows(heads, keys, depth)
    return Operation(
        op="Attention",
        inputs=(q, k, k, None),
        outputs=(q,),
        attributes={"scale": depth**-0.5},
        constant=(False,) * 4,
        own=4,
    )


def one(op: str, x: View, y: View, **attributes: Any) -> Operation:
    """An operation of one input."""
    return several(op, (x,), y, **attributes)


def several(op: str, inputs: tuple[View, ...], y: View, **attributes: Any) -> Operation:
    """An operation whose inputs are all computed."""
    count = len(inputs)
    return Operation(
        op=op, inputs=inputs, outputs=(y,), attributes=attributes, constant=(False,) * count, own=count
    )


def resize(x: View, scale: float, mode: str, way: str) -> Operation:
    """An image, its height and width scaled."""
    y = image(*x.shape[:2], *(int(n * scale) for n in x.shape[2:]), dtype=x.dtype)
    return one(
        "Resize",
        x,
        y,
        mode=mode,
        scales=(1.0, 1.0, scale, scale),
        coordinate_transformation_mode=way,
        nearest_mode="floor",
        cubic_coeff_a=-0.75,
        exclude_outside=0,
        extrapolation_value=0.0,
    )


def layers() -> dict[str, Operation]:
    """Layers of ResNet-50, MobileNet v2 and BERT-base at batch 1, in float, and some with tensors in half."""
    return {
        "resnet 7x7/2 3-64": conv(rows(1, 3, 224, 224), 64, (7, 7), stride=2, pad=3),
        "resnet max pool": pool("MaxPool", image(1, 64, 112, 112), 3, 2, 1),
        "resnet 1x1 64-256 56": conv(image(1, 64, 56, 56), 256, (1, 1), residual=True),
        "resnet 3x3 64-64 56": conv(image(1, 64, 56, 56), 64, (3, 3), pad=1),
        "resnet 3x3/2 128 56": conv(image(1, 128, 56, 56), 128, (3, 3), stride=2, pad=1),
        "resnet 3x3 512 7": conv(image(1, 512, 7, 7), 512, (3, 3), pad=1),
        "resnet 1x1 2048-512 7": conv(image(1, 2048, 7, 7), 512, (1, 1)),
        "resnet 3x3 256 14 half": conv(image(1, 256, 14, 14, dtype="float16"), 256, (3, 3), pad=1),
        "resnet 3x3 128 28 int8": small_conv(image(1, 128, 28, 28, dtype="int8"), 128, (3, 3), pad=1),
        "resnet 1x1 256-64 56 int8": small_conv(image(1, 256, 56, 56, dtype="int8"), 64, (1, 1)),
        "resnet 3x3 256 14 int8 to int8": requantised(
            small_conv(image(1, 256, 14, 14, dtype="int8"), 256, (3, 3), pad=1)
        ),
        "resnet mean 7x7": reduce("mean", image(1, 2048, 7, 7), 2, 3),
        "resnet classes": matmul(rows(1, 2048), rows(2048, 1000), bias=True),
        "mobilenet depthwise 96": conv(image(1, 96, 112, 112), 96, (3, 3), stride=2, pad=1, group=96),
        "mobilenet depthwise 960": conv(image(1, 960, 7, 7), 960, (3, 3), pad=1, group=960),
        "mobilenet depthwise 96 int8": small_conv(
            image(1, 96, 112, 112, dtype="uint8"), 96, (3, 3), stride=2, pad=1, group=96, zero_point=128
        ),
        "mobilenet picture int8": small_conv(
            image(1, 3, 224, 224, dtype="uint8"), 32, (3, 3), stride=2, pad=1, zero_point=114
        ),
        "resnext groups of 4": conv(image(1, 128, 28, 28), 128, (3, 3), pad=1, group=32),
        "unet up 2x2": conv_transpose(image(1, 64, 32, 32), 32, (2, 2), 2, 0),
        "bert projection": matmul(rows(128, 768), rows(768, 768), bias=True),
        "bert wide": matmul(rows(128, 768), rows(768, 3072), bias=True),
        "bert wide half": matmul(rows(128, 768, dtype="float16"), rows(768, 3072, dtype="float16")),
        "bert wide int8": small_matmul(rows(128, 768, dtype="uint8"), 3072, zero_point=121),
        "bert scores": matmul(rows(12, 128, 64), turned(rows(12, 128, 64)), constant=False),
        "bert softmax": softmax(rows(12, 128, 128), -1),
        "bert norm": layer_norm(rows(128, 768)),
        "bert gelu": pointwise(GELU, rows(128, 3072), rows(128, 3072)),
        "bert words": gather(rows(30522, 768), rows(1, 128, dtype="int64"), 0),
        "bert attention": attention(12, 128, 128, 64),
        "to channels-last": copy(rows(1, 64, 56, 56), image(1, 64, 56, 56)),
        "yolo nearest": resize(image(1, 256, 20, 20), 2.0, "nearest", "asymmetric"),
        "unet linear": resize(image(1, 64, 64, 64), 2.0, "linear", "half_pixel"),
    }


def odd() -> dict[str, Operation]:
    """Small operations, with sizes that are no multiple of anything."""
    return {
        "1x1": conv(image(1, 64, 14, 14), 128, (1, 1)),
        "1x1 residual odd": conv(image(2, 37, 9, 7), 53, (1, 1), residual=True),
        "3x3": conv(image(1, 32, 15, 13), 48, (3, 3), pad=1),
        "3x3 stride 2 odd": conv(image(2, 17, 13, 11), 19, (3, 3), stride=2, pad=1),
        "3x3 half": conv(image(1, 24, 11, 9, dtype="float16"), 40, (3, 3), pad=1),
        "7x7 of a picture": conv(rows(1, 3, 31, 29), 16, (7, 7), stride=2, pad=3),
        "3x3 groups, dilated": conv(image(1, 24, 13, 11), 36, (3, 3), pad=2, group=4, dilation=2),
        "1-D": conv(image(2, 13, 41), 11, (5,), pad=2),
        "depthwise 3x3": conv(image(1, 33, 17, 15), 33, (3, 3), pad=1, group=33),
        "depthwise 5x5 stride 2": conv(image(2, 32, 19, 17), 32, (5, 5), stride=2, pad=2, group=32),
        "depthwise half": conv(image(1, 16, 9, 9, dtype="float16"), 16, (3, 3), pad=1, group=16),
        "3x3 int8": small_conv(image(1, 32, 11, 9, dtype="int8"), 40, (3, 3), pad=1, zero_point=-3),
        "7x7 of a picture int8": small_conv(
            image(1, 3, 31, 29, dtype="uint8"), 16, (7, 7), stride=2, pad=3, zero_point=115
        ),
        "3x3 groups int8": small_conv(image(1, 24, 13, 11, dtype="int8"), 36, (3, 3), pad=1, group=4),
        "depthwise int8": small_conv(
            image(1, 33, 17, 15, dtype="uint8"), 33, (3, 3), pad=1, group=33, zero_point=9
        ),
        "3x3 int8 to int8": requantised(
            small_conv(image(2, 20, 9, 7, dtype="uint8"), 24, (3, 3), pad=1, zero_point=77)
        ),
        "depthwise int8 to int8": requantised(
            small_conv(image(1, 32, 9, 11, dtype="int8"), 32, (3, 3), pad=1, group=32, zero_point=-5)
        ),
        "transposed 3x3": conv_transpose(image(1, 12, 9, 7), 10, (3, 3), 2, 1),
        "square": matmul(rows(64, 96), rows(96, 128), bias=True),
        "odd product": matmul(rows(65, 67), rows(67, 131)),
        "product half": matmul(rows(33, 64, dtype="float16"), rows(64, 72, dtype="float16"), bias=True),
        "product int8": small_matmul(rows(33, 67, dtype="uint8"), 37, zero_point=131),
        "one row": matmul(rows(1, 1000), rows(1000, 37), bias=True),
        "batch, second turned": matmul(rows(5, 17, 33), turned(rows(5, 19, 33)), constant=False),
        "max pool": pool("MaxPool", image(2, 19, 15, 13), 3, 2, 1),
        "average pool": pool("AveragePool", image(1, 24, 14, 11), 3, 2, 1),
        "average pool with padding": pool("AveragePool", image(1, 8, 9, 9), 2, 1, 1, inclusive=1),
        "mean of an image": reduce("mean", image(2, 37, 7, 7), 2, 3),
        "sum of rows": reduce("sum", rows(13, 1021), 1),
        "max over the first": reduce("max", rows(67, 33), 0),
        "l2": reduce("l2", rows(5, 131), 1),
        "softmax": softmax(rows(7, 197), -1),
        "softmax over channels": softmax(rows(2, 21, 35), 1),
        "log-softmax": softmax(rows(3, 1000), -1, log=True),
        "layer norm": layer_norm(rows(11, 131)),
        "layer norm of 768": layer_norm(rows(5, 768)),
        "instance norm": instance_norm(image(2, 13, 11, 9)),
        "gelu": pointwise(GELU, rows(7, 331), rows(7, 331)),
        "silu half": pointwise(SILU, rows(1024, dtype="float16"), rows(1024, dtype="float16")),
        "bias, relu": pointwise(BIAS_RELU, image(2, 21, 9, 7), image(2, 21, 9, 7), rows(21, 1, 1)),
        "to channels-last": copy(rows(2, 33, 9, 7), image(2, 33, 9, 7)),
        "turned": copy(turned(rows(65, 33)), rows(33, 65)),
        "to half": copy(rows(1023), rows(1023, dtype="float16")),
        "words": gather(rows(101, 37), rows(3, 5, dtype="int64"), 0),
        "attention": attention(3, 37, 37, 32),
        "nearest": resize(image(1, 19, 7, 9), 2.0, "nearest", "asymmetric"),
        "linear": resize(image(2, 5, 7, 9), 1.6, "linear", "half_pixel"),
        "pad": one(
            "Pad", rows(3, 7, 11), rows(4, 10, 13), pads=(0, 1, 2, 1, 2, 0), mode="constant", value=1.5
        ),
        "mirrored": one(
            "Pad", image(1, 5, 7, 9), image(1, 5, 10, 11), pads=(0, 0, 1, 0, 0, 0, 2, 2), mode="reflect"
        ),
        "largest": one("ArgMax", rows(5, 131), rows(5, 1, dtype="int64"), axis=1, select_last_index=0),
        "rows by place": several(
            "GatherND", (rows(5, 33), rows(7, 1, dtype="int64")), rows(7, 33), batch_dims=0
        ),
        "a row put in": several(
            "ScatterND",
            (rows(9, 35), rows(1, 1, dtype="int64"), rows(1, 35)),
            rows(9, 35),
            reduction="none",
        ),
        "running sum": one("CumSum", rows(3, 131), rows(3, 131), axis=1, reverse=0, exclusive=0),
        "lrn": one("LRN", image(2, 13, 5, 7), image(2, 13, 5, 7), size=5, alpha=1e-2, beta=0.75, bias=1.0),
    }
