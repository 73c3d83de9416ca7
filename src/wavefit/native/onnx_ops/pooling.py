"""Pools. ceil_mode lives on in the output's shape alone."""

from __future__ import annotations

from wavefit.native.onnx_ops._call import Call
from wavefit.native.onnx_ops._windows import Window, window


def _max_pool(call: Call) -> str | None:
    if call.wanted(1):
        return "its output Indices is read"
    return _pool(call, "MaxPool")


def _average_pool(call: Call) -> str | None:
    return _pool(call, "AveragePool", count_include_pad=bool(call.attribute("count_include_pad", 0)))


def _pool(call: Call, op: str, **more: bool) -> str | None:
    rank = len(call.input().shape)
    if not 3 <= rank <= 5:
        return f"its input has rank {rank}: 3, 4 and 5 are computed"
    sizes = window(call, tuple(call.attribute("kernel_shape")))
    _without_windows_beyond(call, sizes)
    call.add(
        op,
        [call.input()],
        call.output(),
        kernel_shape=sizes.kernel,
        strides=sizes.strides,
        pads=sizes.pads,
        dilations=sizes.dilations,
        **more,  # type: ignore[arg-type]
    )
    return None


def _without_windows_beyond(call: Call, sizes: Window) -> None:
    """Takes windows from the output's shape that would begin behind the image and its padding before it.

    ONNX, AveragePool and MaxPool: "Sliding windows that would start in the right padded region are ignored". onnx's
    shape inference counts them where the kernel is smaller than the stride.
    """
    output, image = call.output(), call.input().shape[2:]
    space = [
        min(made, -(-(size + before) // stride))
        for made, size, before, stride in zip(
            output.shape[2:], image, sizes.pads, sizes.strides, strict=False
        )
    ]
    output.shape = (*output.shape[:2], *space)


def _global(kind: str, call: Call) -> None:
    axes = tuple(range(2, len(call.input().shape)))
    call.add("Reduce", [call.input()], call.output(), kind=kind, axes=axes)


def _global_average_pool(call: Call) -> None:
    _global("mean", call)


def _global_max_pool(call: Call) -> None:
    _global("max", call)


def _global_lp_pool(call: Call) -> str | None:
    order = call.attribute("p", 2)
    if order not in (1, 2):
        return f"its norm is of order {order}: 1 and 2 are computed"
    _global(f"l{order}", call)
    return None


OPERATORS = {
    "AveragePool": _average_pool,
    "GlobalAveragePool": _global_average_pool,
    "GlobalLpPool": _global_lp_pool,
    "GlobalMaxPool": _global_max_pool,
    "MaxPool": _max_pool,
}
