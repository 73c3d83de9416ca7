"""Scratch that cuDNN asks for when PyTorch searches for a convolution's fastest kernel.

With torch.backends.cudnn.benchmark PyTorch lets cuDNN list the kernels of a convolution, allocates the largest scratch
that any of them wants, tries them all, and gives every free segment back (aten/src/ATen/native/cudnn/Conv_v8.cpp). That
moment is the peak of most convolutional nets; a kernel whose scratch does not fit is left out, so it is no need.

Sizes were read from the allocations of ten nets on an H200 (PyTorch 2.11, cuDNN 9; `benchmarks/_torch_points.py`):

- fp32, stride 1: transforms by FFT, planes padded to a power of two of at least 16, in complex numbers of 8 bytes, of
  which half are kept. Exact to the byte for 3 x 3 and 1 x 1, of 7 x 7 to 224 x 224. Where torch.compile has chosen
  channels-last, the copies into the plain layout and back come on top.
- fp16: tensors copied to channels-last, three input channels padded to eight.
"""

from __future__ import annotations

import math
from typing import NamedTuple

_LEAST_PLANE = 16
_LARGEST_FFT = 256  # a plane's side, by cuDNN's documentation of CUDNN_CONVOLUTION_FWD_ALGO_FFT
_COMPLEX_BYTES = 8
_PADDED_CHANNELS = 8
_IMAGE_CHANNELS = 4  # of a fast kernel for images that lie channels-last
_WINS_TO = 64  # a plane's side: of 128 none was seen to win
_MOST_KEPT = (
    8 << 30
)  # more is given up for another kernel where memory is short; of 18 GiB both choices were seen
_EXTRA = 16 << 20  # split sums of fp16 kernels: 3 to 15 MiB were seen


class Conv(NamedTuple):
    """Shapes of one convolution: NCHW, KCRS, NKHW."""

    inputs: tuple[int, ...]
    weights: tuple[int, ...]
    outputs: tuple[int, ...]
    element_bytes: int
    channels_last: bool = False


def search_scratch(conv: Conv) -> int:
    """Bytes of the largest scratch that is tried."""
    if conv.element_bytes == 4:
        return fft_scratch(conv) + (_copies(conv) if conv.channels_last else 0)
    return _copies(conv) + _EXTRA


def run_scratch(conv: Conv) -> int:
    """Bytes that the kernel takes which is likely to win."""
    image = conv.inputs[1] < _PADDED_CHANNELS
    if conv.element_bytes == 4:
        copies = _copies(conv) if conv.channels_last and not image and conv.weights[2] > 1 else 0
        fft = fft_scratch(conv)
        return copies + (fft if _fft_wins(conv) and fft <= _MOST_KEPT else 0)
    first = image and conv.weights[2] <= 3  # read as it lies, as seen
    if image and conv.channels_last and not first:
        return math.prod(conv.inputs) // conv.inputs[1] * _IMAGE_CHANNELS * 2 + math.prod(conv.weights) * 2
    return 0 if conv.channels_last or first else _copies(conv)


def fft_scratch(conv: Conv) -> int:
    """W + 2 T max(C (K + N), K N); 0 where the convolution has strides, groups, or too large a plane."""
    if len(conv.inputs) != 4 or len(conv.weights) != 4:
        return 0
    images, channels, height, width = conv.inputs
    made, taken, tall, wide = conv.weights
    out_height, out_width = conv.outputs[2:]
    if taken != channels or height > out_height + tall - 1 or width > out_width + wide - 1:
        return 0
    plane = _plane(conv)
    if plane > _LARGEST_FFT:
        return 0
    transform = plane * (plane // 2 + 1) * _COMPLEX_BYTES
    filters = math.prod(conv.weights) * conv.element_bytes
    return filters + 2 * transform * max(channels * (made + images), made * images)


def _plane(conv: Conv) -> int:
    """Side of a padded plane."""
    (height, width), (tall, wide) = conv.inputs[2:], conv.weights[2:]
    side = max(height + tall - 1, width + wide - 1)
    return max(_LEAST_PLANE, 1 << (side - 1).bit_length())


def _fft_wins(conv: Conv) -> bool:
    """As seen: filters larger than a point, many channels, more than one image, small planes with little padding."""
    images, channels, *sides = conv.inputs
    little = _plane(conv) <= min(_WINS_TO, 1.5 * max(sides))
    return images > 1 and channels >= 128 and conv.weights[2] > 1 and little


def _copies(conv: Conv) -> int:
    images, channels, *sides = conv.inputs
    width = conv.element_bytes
    given, made = math.prod(conv.inputs) * width, math.prod(conv.outputs) * width
    weights = math.prod(conv.weights) * width
    if conv.channels_last or conv.element_bytes == 4 or channels >= _PADDED_CHANNELS:
        return given + made + weights
    return images * _PADDED_CHANNELS * math.prod(sides) * width + 2 * made + weights
