"""Scratch that cuDNN asks for when PyTorch searches for a convolution's fastest kernel.

With torch.backends.cudnn.benchmark PyTorch lets cuDNN list the kernels of a convolution, takes the first ten
(torch.backends.cudnn.benchmark_limit), allocates the largest scratch that any of them wants, tries them, and gives
every free segment back (aten/src/ATen/native/cudnn/Conv_v8.cpp). That moment is the peak of most convolutional nets; a
kernel whose scratch does not fit is left out, so it is no need. Which kernels are among the ten, and which one wins, no
formula tells: what is said here is what was seen to be asked for, or a bound on it.

Sizes were read from the allocations of 19 nets on an H200 (PyTorch 2.11, cuDNN 9; `benchmarks/_torch_points.py`):

- fp32, stride 1: transforms by FFT, planes padded to a power of two of at least 16, in complex numbers of 8 bytes, of
  which half are kept. Exact to the byte for 3 x 3 and 1 x 1, of 7 x 7 to 224 x 224 (ten nets of _torch_nets, densenet,
  mobilenet, unet, alexnet, text_cnn). For one image, filters of a point and large products they are not among the ten
  (densenet). Where torch.compile has chosen channels-last, the copies into the plain layout and back come on top.
- fp16: tensors copied to the other layout, three input channels padded to eight, and sums that are split over the
  channels: 3 to 16 MiB where a sum has 480 terms and more (densenet, unet); none below that. Points on planes of 7 x 7
  by FFT as well, in fp32 (densenet, mobilenet).
- Transposed, fp16: copies of both tensors, and a result in fp32 (unet); fp32 by FFT, within 30 % (autoencoder).
- fp16, each channel by itself: both tensors padded fourfold, the filters sixteenfold (mobilenet), where PyTorch does
  not take its own kernel, which needs no scratch (ATen/native/Convolution.cpp: use_cudnn_depthwise).
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
_SPLIT_BYTES, _SPLIT_TERMS = 16 << 20, 480  # of a sum that fp16 kernels split
_LARGE_PRODUCT = 43_000_000  # multiply-adds; FFTs of one image's points were last seen at 41.7 million
_MOST_HALF_CHANNELS = 1024  # 992 were seen, 1152 and 2048 not
_SMALL_PLANE = 7


CONVOLUTIONS = frozenset(("Conv", "ConvTranspose"))


class Conv(NamedTuple):
    """Shapes of one convolution: NCHW, KCRS, NKHW."""

    inputs: tuple[int, ...]
    weights: tuple[int, ...]
    outputs: tuple[int, ...]
    element_bytes: int
    channels_last: bool = False
    transposed: bool = False  # its weights are CKRS

    @property
    def bytes(self) -> tuple[int, int, int]:
        given, weights, made = (math.prod(shape) * self.element_bytes for shape in self[:3])
        return given, weights, made

    @property
    def point(self) -> bool:
        """Filters of one point."""
        return math.prod(self.weights[2:]) == 1

    @property
    def by_channel(self) -> bool:
        return self.weights[1] == 1 < self.inputs[1]

    @property
    def strided(self) -> bool:
        return any(
            side > out + filters - 1
            for side, out, filters in zip(self.inputs[2:], self.outputs[2:], self.weights[2:], strict=True)
        )


def lifted(conv: Conv) -> Conv:
    """A convolution over one axis is run as one over a plane of height 1 (ATen/native/Convolution.cpp: view4d)."""
    if len(conv.inputs) != 3:
        return conv
    given, weights, made = ((*shape[:2], 1, *shape[2:]) for shape in conv[:3])
    return conv._replace(inputs=given, weights=weights, outputs=made)


def search_scratch(conv: Conv) -> int:
    """Bytes of the largest scratch that is tried."""
    if conv.transposed:
        more = 2 * conv.bytes[2] if conv.element_bytes == 2 else _transposed_fft(conv)
        return _transposed_copies(conv) + more
    if conv.by_channel:
        return _by_channel_scratch(conv)
    if conv.element_bytes == 4:
        return _fft_tried(conv) + (_copies(conv) if conv.channels_last else 0)
    if conv.inputs[1] < _PADDED_CHANNELS:
        return _image_copies(conv)
    copies = _copies(conv)
    split = min(_SPLIT_BYTES, 3 * copies) if math.prod(conv.weights[1:]) >= _SPLIT_TERMS else 0
    return max(copies + split, _half_fft(conv))


def run_scratch(conv: Conv) -> int:
    """Bytes that the kernel takes which is likely to win."""
    image = conv.inputs[1] < _PADDED_CHANNELS
    if conv.transposed:
        return 0 if conv.channels_last and conv.element_bytes == 2 else _transposed_copies(conv)
    if conv.by_channel:
        return 0
    if conv.element_bytes == 4:
        copies = _copies(conv) if conv.channels_last and not image and not conv.point else 0
        fft = fft_scratch(conv)
        return copies + (fft if _fft_wins(conv) and fft <= _MOST_KEPT else 0)
    if image:
        return _image_run(conv)
    return 0 if conv.channels_last else _copies(conv)


def fft_scratch(conv: Conv) -> int:
    """W + 2 T max(C (K + N), K N); 0 where the convolution has strides, groups, or too large a plane."""
    if len(conv.inputs) != 4 or len(conv.weights) != 4:
        return 0
    images, channels = conv.inputs[:2]
    made, taken = conv.weights[:2]
    if taken != channels or conv.strided:
        return 0
    plane = _plane(conv)
    if plane > _LARGEST_FFT:
        return 0
    transform = plane * (plane // 2 + 1) * _COMPLEX_BYTES
    return conv.bytes[1] + 2 * transform * max(channels * (made + images), made * images)


def _plane(conv: Conv) -> int:
    """Side of a padded plane."""
    side = max(made + filters - 1 for made, filters in zip(conv.outputs[2:], conv.weights[2:], strict=True))
    return max(_LEAST_PLANE, 1 << (side - 1).bit_length())


def _fft_tried(conv: Conv) -> int:
    """Of one image's points and large products none was seen."""
    images, _, *sides = conv.inputs
    product = math.prod(sides) * math.prod(conv.weights)
    large = conv.point and images == 1 and max(sides) > _SMALL_PLANE and product >= _LARGE_PRODUCT
    return 0 if large else fft_scratch(conv)


def _half_fft(conv: Conv) -> int:
    """In fp16 only of points, small planes that lie plain, and where channels become fewer."""
    images, channels, *sides = conv.inputs
    fewer = images > 1 and conv.weights[0] < channels <= _MOST_HALF_CHANNELS
    small = conv.point and fewer and max(sides) <= _SMALL_PLANE and not conv.channels_last
    return fft_scratch(conv._replace(element_bytes=4)) if small else 0


def _fft_wins(conv: Conv) -> bool:
    """As seen: filters larger than a point, many channels, more than one image, small planes with little padding."""
    images, channels, *sides = conv.inputs
    little = _plane(conv) <= min(_WINS_TO, 1.5 * max(sides))
    many = channels >= (128 if conv.weights[-1] < 5 else 64) and (conv.weights[0] >= 64 or max(sides) <= 28)
    return images > 1 and many and not conv.point and little


def _copies(conv: Conv) -> int:
    """Of the tensors in the other layout, and of filters where their layout differs with it."""
    given, weights, made = conv.bytes
    return given + made + (0 if conv.point else weights)


def _transposed_copies(conv: Conv) -> int:
    """Of a transposed convolution: in fp32 only where its tensors lie channels-last."""
    return sum(conv.bytes) if conv.element_bytes == 2 or conv.channels_last else 0


def _transposed_fft(conv: Conv) -> int:
    """2 W + 4 T C (K + N) with planes of 32, where filters overlap; of more images, planes of 8 x 8 were not tried."""
    images, channels, *sides = conv.inputs
    overlaps = all(
        f > made // side > 1 for f, made, side in zip(conv.weights[2:], conv.outputs[2:], sides, strict=True)
    )
    if not overlaps or (images > 1 and max(sides) <= 8):
        return 0
    transform = 32 * (32 // 2 + 1) * _COMPLEX_BYTES
    return 2 * conv.bytes[1] + 4 * transform * channels * (conv.weights[1] + images)


def _image_copies(conv: Conv) -> int:
    """Of an image in fp16, its channels padded; a stride or a large filter takes more."""
    given, weights, made = conv.bytes
    if conv.channels_last and not conv.strided:
        return given + made + weights
    padded = given // conv.inputs[1] * _PADDED_CHANNELS
    times = 3 if conv.weights[2] > 3 and not conv.channels_last else 2
    return padded + times * made + weights // conv.inputs[1] * _PADDED_CHANNELS


def _image_run(conv: Conv) -> int:
    given, weights, made = conv.bytes
    if conv.weights[2] <= 3:
        return 0  # read as it lies, as seen
    if conv.channels_last:
        return given // conv.inputs[1] * _IMAGE_CHANNELS + weights
    return given // conv.inputs[1] * _PADDED_CHANNELS + 2 * made + weights


def _by_channel_scratch(conv: Conv) -> int:
    """Every channel by itself: fp32 by PyTorch's own kernel, fp16 by cuDNN's where PyTorch prefers it."""
    given, weights, made = conv.bytes
    if conv.element_bytes == 4:
        return given + made + weights if conv.channels_last else 0
    return 4 * (given + made) + 16 * weights if conv.channels_last or _cudnn_by_channel(conv) else 0


def _cudnn_by_channel(conv: Conv) -> bool:
    """Whether PyTorch takes cuDNN's kernel for a tensor of fp16 that lies plain (use_cudnn_depthwise)."""
    images, channels, *sides = conv.inputs
    if len(sides) != 2 or channels < 32 or sides[1] < 7 or conv.weights[2] not in (1, 3, 5):
        return False
    if not conv.strided:
        return True
    if images == 1:
        return True
    return conv.weights[2] > 1 and (channels >= 512 or (channels >= 256 and sides[1] >= 28))
