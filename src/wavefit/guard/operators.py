"""Convolution and pooling on numpy and BLAS, for the float64 run: onnx's own implementations are loops in Python.

Shapes follow the ONNX operators' definitions (https://onnx.ai/onnx/operators): N x C x spatial axes, any rank.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun
from onnx.reference.ops.op_max_pool import MaxPool as OnnxMaxPool

_BLOCK = 1 << 22  # elements of one block of columns: 32 MB in float64


@dataclass(frozen=True)
class _Window:
    """A sliding window over the spatial axes, all padding made explicit."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]  # padding at the start of each axis
    after: tuple[int, ...]
    out: tuple[int, ...]

    def offsets(self) -> Iterator[tuple[int, ...]]:
        """Every place in the kernel, as the element of the padded input that the first window reads there."""
        for place in itertools.product(*(range(size) for size in self.kernel)):
            yield tuple(at * dilation for at, dilation in zip(place, self.dilations, strict=True))

    def read(self, offset: Sequence[int]) -> tuple[Any, ...]:
        """The index of what all windows read at that offset of the padded input, over its last axes."""
        slices = (
            slice(at, at + (size - 1) * stride + 1, stride)
            for at, size, stride in zip(offset, self.out, self.strides, strict=True)
        )
        return (Ellipsis, *slices)

    def pad(self, x: np.ndarray, value: float) -> np.ndarray:
        """Pads the spatial axes so that every window, the last one of ``ceil_mode`` too, lies inside."""
        widths = [(0, 0), (0, 0)]
        spans = _spans(self.kernel, self.dilations)
        for axis, size in enumerate(x.shape[2:]):
            needed = (self.out[axis] - 1) * self.strides[axis] + spans[axis]
            end = max(self.after[axis], needed - size - self.before[axis])
            widths.append((self.before[axis], end))
        if not any(start or end for start, end in widths):
            return x
        return np.pad(x, widths, constant_values=value)


def _spans(kernel: Sequence[int], dilations: Sequence[int]) -> list[int]:
    return [(size - 1) * dilation + 1 for size, dilation in zip(kernel, dilations, strict=True)]


def _window(
    size: Sequence[int], kernel: Sequence[int], attributes: dict[str, Any], ceil_mode: int = 0
) -> _Window:
    """The window of an operator with these attributes (auto_pad, dilations, pads, strides) over those sizes."""
    rank = len(size)
    strides = tuple(attributes["strides"] or [1] * rank)
    dilations = tuple(attributes["dilations"] or [1] * rank)
    spans = _spans(kernel, dilations)
    auto_pad = attributes["auto_pad"] or "NOTSET"
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        out = tuple(-(-have // stride) for have, stride in zip(size, strides, strict=True))
        total = [max(0, (out[a] - 1) * strides[a] + spans[a] - size[a]) for a in range(rank)]
        small, large = [pad // 2 for pad in total], [pad - pad // 2 for pad in total]
        before, after = (small, large) if auto_pad == "SAME_UPPER" else (large, small)
        return _Window(tuple(kernel), strides, dilations, tuple(before), tuple(after), out)
    pads = [0] * 2 * rank if auto_pad == "VALID" else list(attributes["pads"] or [0] * 2 * rank)
    before, after = pads[:rank], pads[rank:]
    sizes = [
        _out(size[a] + before[a] + after[a], spans[a], strides[a], size[a] + before[a] if ceil_mode else None)
        for a in range(rank)
    ]
    return _Window(tuple(kernel), strides, dilations, tuple(before), tuple(after), tuple(sizes))


def _out(padded: int, span: int, stride: int, ceil_end: int | None) -> int:
    """Number of windows. With ``ceil_end``, a last partial window counts if it starts before that element."""
    if ceil_end is None:
        return (padded - span) // stride + 1
    out = -(-(padded - span) // stride) + 1
    return out - 1 if (out - 1) * stride >= ceil_end else out


class Conv(OpRun):
    """Convolution: columns of input windows times the weights, in blocks of at most 32 MB."""

    op_domain = ""

    def _run(
        self,
        x: np.ndarray,
        w: np.ndarray,
        b: np.ndarray | None = None,
        group: int | None = None,
        kernel_shape: Any = None,  # the weights say it too
        **attributes: Any,
    ) -> tuple[np.ndarray]:
        window = _window(x.shape[2:], w.shape[2:], attributes)
        y = convolve(window.pad(x, 0), w, window, group or 1)
        if b is not None:
            y += b.reshape(-1, *[1] * (x.ndim - 2))
        return (y,)


def convolve(x: np.ndarray, w: np.ndarray, window: _Window, groups: int) -> np.ndarray:
    """x: padded, N x C x spatial; w: M x C/groups x kernel. Returns N x M x ``window.out``."""
    y = np.empty((x.shape[0], w.shape[0], *window.out), x.dtype)
    depth = w.shape[1] * math.prod(window.kernel)
    weights = w.reshape(groups, w.shape[0] // groups, depth)
    row = groups * depth * math.prod(window.out[1:])
    rows = max(1, _BLOCK // max(1, row))
    for item, start in itertools.product(range(x.shape[0]), range(0, window.out[0], rows)):
        stop = min(start + rows, window.out[0])
        columns = _columns(x[item], window, start, stop).reshape(groups, depth, -1)
        y[item, :, start:stop] = (weights @ columns).reshape(w.shape[0], stop - start, *window.out[1:])
    return y


def _columns(x: np.ndarray, window: _Window, start: int, stop: int) -> np.ndarray:
    """C x kernel places x windows, for the windows of rows ``start`` to ``stop`` of the first spatial axis."""
    first = slice(start * window.strides[0], None)
    block = _Window(window.kernel, window.strides, window.dilations, (), (), (stop - start, *window.out[1:]))
    places = math.prod(window.kernel)
    columns = np.empty((x.shape[0], places, *block.out), x.dtype)
    for place, offset in enumerate(block.offsets()):
        columns[:, place] = x[:, first][block.read(offset)]
    return columns


class ConvTranspose(OpRun):
    """Transposed convolution: each input element spreads its product with the weights over the output."""

    op_domain = ""

    def _run(
        self,
        x: np.ndarray,
        w: np.ndarray,
        b: np.ndarray | None = None,
        auto_pad: str | None = None,
        dilations: Any = None,
        group: int | None = None,
        kernel_shape: Any = None,
        output_padding: Any = None,
        output_shape: Any = None,
        pads: Any = None,
        strides: Any = None,
    ) -> tuple[np.ndarray]:
        rank, groups = x.ndim - 2, group or 1
        kernel = w.shape[2:]
        stride, dilation = tuple(strides or [1] * rank), tuple(dilations or [1] * rank)
        extra = list(output_padding or [0] * rank)
        spans = _spans(kernel, dilation)
        full = [stride[a] * (x.shape[a + 2] - 1) + spans[a] + extra[a] for a in range(rank)]
        before, after = _transposed_pads(auto_pad, pads, output_shape, full, x.shape[2:], stride)
        full = [size - min(0, end) for size, end in zip(full, after, strict=True)]  # asked for more: zeros
        after = [max(0, end) for end in after]
        y = np.zeros((x.shape[0], groups, w.shape[1], *full), x.dtype)
        spread = _Window(tuple(kernel), stride, dilation, (), (), x.shape[2:])
        items = x.reshape(x.shape[0], groups, x.shape[1] // groups, -1)
        weights = w.reshape(groups, w.shape[0] // groups, w.shape[1], -1).transpose(3, 0, 2, 1)
        for place, offset in enumerate(spread.offsets()):
            part = (weights[place] @ items).reshape(*y.shape[:3], *x.shape[2:])
            y[spread.read(offset)] += part
        y = y.reshape(x.shape[0], groups * w.shape[1], *full)
        kept: tuple[Any, ...] = (Ellipsis, *(slice(before[a], full[a] - after[a]) for a in range(rank)))
        y = y[kept]
        return (y if b is None else y + b.reshape(-1, *[1] * rank),)


def _transposed_pads(
    auto_pad: str | None,
    pads: Sequence[int] | None,
    output_shape: Sequence[int] | None,
    full: Sequence[int],
    size: Sequence[int],
    strides: Sequence[int],
) -> tuple[list[int], list[int]]:
    """What is cut from each end of the full result, by ONNX's rules for ConvTranspose."""
    rank = len(size)
    same = auto_pad in ("SAME_UPPER", "SAME_LOWER")
    if not same and not output_shape:
        cut = list(pads or [0] * 2 * rank) if auto_pad in (None, "NOTSET") else [0] * 2 * rank
        return cut[:rank], cut[rank:]
    wanted = list(output_shape) if output_shape else [size[a] * strides[a] for a in range(rank)]
    total = [full[a] - wanted[a] for a in range(rank)]
    small = [cut // 2 if cut > 0 else 0 for cut in total]
    large = [cut - less for cut, less in zip(total, small, strict=True)]
    if min(total) < 0:
        return small, large
    return (small, large) if auto_pad == "SAME_UPPER" else (large, small)


class MaxPool(OnnxMaxPool):
    """Maximum over windows; where the indices are asked for too, onnx's own implementation."""

    op_domain = ""

    def _run(self, x: np.ndarray, ceil_mode: Any = None, kernel_shape: Any = None, **attributes: Any) -> Any:
        if len(self.output) > 1:
            return super()._run(x, ceil_mode=ceil_mode, kernel_shape=kernel_shape, **attributes)
        window = _window(x.shape[2:], kernel_shape, attributes, ceil_mode or 0)
        low = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
        padded = window.pad(x, low)
        y = np.full((*x.shape[:2], *window.out), low, x.dtype)
        for offset in window.offsets():
            np.maximum(y, padded[window.read(offset)], out=y)
        return (y,)


class AveragePool(OpRun):
    """Mean over windows; padding counts only with ``count_include_pad``, what ceil_mode adds never."""

    op_domain = ""

    def _run(
        self,
        x: np.ndarray,
        ceil_mode: int | None = None,
        count_include_pad: int | None = None,
        kernel_shape: Any = None,
        dilations: Any = None,
        **attributes: Any,
    ) -> tuple[np.ndarray]:
        attributes["dilations"] = dilations
        window = _window(x.shape[2:], kernel_shape, attributes, ceil_mode or 0)
        counted = np.ones((1, 1, *x.shape[2:]), x.dtype)
        if count_include_pad:
            widths = [(0, 0), (0, 0), *zip(window.before, window.after, strict=True)]
            counted = np.pad(counted, widths, constant_values=1)
            inner = _Window(
                window.kernel,
                window.strides,
                window.dilations,
                (0,) * (x.ndim - 2),
                (0,) * (x.ndim - 2),
                window.out,
            )
            counted = inner.pad(counted, 0)
        else:
            counted = window.pad(counted, 0)
        return (_sum(window.pad(x, 0), window) / _sum(counted, window),)


def _sum(padded: np.ndarray, window: _Window) -> np.ndarray:
    total = np.zeros((*padded.shape[:2], *window.out), padded.dtype)
    for offset in window.offsets():
        total += padded[window.read(offset)]
    return total


FAST: list[type[OpRun]] = [Conv, ConvTranspose, MaxPool, AveragePool]
"""For ``ReferenceEvaluator(new_ops=...)``."""
