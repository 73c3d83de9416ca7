"""What a layer multiplies its weights with: rows of its input, for convolutions patch by patch."""

from __future__ import annotations

import numpy as np

from wavefit.precision.linear import Linear, attribute


def patches(layer: Linear, array: np.ndarray, count: int, random: np.random.Generator) -> np.ndarray | None:
    """Rows of a layer's input, drawn at random: the same positions for the same state of ``random``.

    Args:
        array: a batch of what the layer reads.
        count: rows at most.

    Returns:
        float64 of shape (groups, rows, inputs x taps), in the order of :meth:`Linear.matrix`'s last two axes; None
        for a convolution that is transposed or padded by its shape.
    """
    if not layer.convolves:
        flat = array.reshape(-1, array.shape[-1])
        return flat[_draw(len(flat), count, random)].astype(np.float64)[None]
    if layer.node.op_type != "Conv" or attribute(layer.node, "auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return None
    return _of_convolution(layer, array, count, random)


def _of_convolution(layer: Linear, array: np.ndarray, count: int, random: np.random.Generator) -> np.ndarray:
    rank = array.ndim - 2
    kernel = layer.kernel
    pads = list(attribute(layer.node, "pads", [0] * (2 * rank)))
    strides = list(attribute(layer.node, "strides", [1] * rank))
    dilations = list(attribute(layer.node, "dilations", [1] * rank))
    around = [(0, 0), (0, 0), *((pads[axis], pads[axis + rank]) for axis in range(rank))]
    padded = np.pad(array, around)
    reach = [(size - 1) * step + 1 for size, step in zip(kernel, dilations, strict=True)]
    windows = np.lib.stride_tricks.sliding_window_view(padded, reach, axis=tuple(range(2, 2 + rank)))
    steps = (slice(None, None, step) for step in (*strides, *dilations))
    kept: tuple[slice, ...] = (slice(None), slice(None), *steps)
    windows = windows[kept]
    places = windows.shape[:1] + windows.shape[2 : 2 + rank]
    picked = np.unravel_index(_draw(int(np.prod(places)), count, random), places)
    rows = np.moveaxis(windows, 1, 1 + rank)[picked]  # rows x channels x taps
    groups, _, inputs, taps = layer.matrix().shape
    split = rows.reshape(len(picked[0]), groups, inputs * taps).swapaxes(0, 1)
    return np.ascontiguousarray(split).astype(np.float64)


def _draw(size: int, count: int, random: np.random.Generator) -> np.ndarray:
    return np.arange(size) if size <= count else np.sort(random.choice(size, count, replace=False))
