"""Scratch of convolutions, against what cuDNN 9 asked for on an H200 under PyTorch 2.11 (the allocator's history)."""

from __future__ import annotations

import pytest

from wavefit.plan.convolution import Conv, fft_scratch, lifted, run_scratch, search_scratch

MIB = 2**20


def conv(images: int, channels: int, made: int, side: int, filters: int, width: int = 4) -> Conv:
    """With stride 1 and the padding that keeps the plane."""
    plane = (side, side)
    return Conv((images, channels, *plane), (made, channels, filters, filters), (images, made, *plane), width)


@pytest.mark.parametrize(
    ("shape", "mib"),
    [
        ((1, 3, 64, 224, 3), 98.2683),
        ((32, 3, 64, 224, 3), 1032.007),
        ((1, 64, 128, 112, 3), 1048.4062),
        ((32, 256, 512, 112, 3), 17684.5),
        ((1, 512, 1024, 56, 3), 16930.5),
        ((32, 64, 64, 56, 3), 198.1406),
        ((32, 64, 256, 56, 1), 594.0625),
        ((32, 256, 128, 56, 1), 1320.125),
        ((32, 512, 2048, 7, 1), 2344.0),
        ((1, 512, 512, 7, 3), 586.125),
    ],
)
def test_fp32_is_searched_with_ffts(shape: tuple[int, int, int, int, int], mib: float) -> None:
    assert search_scratch(conv(*shape)) / MIB == pytest.approx(mib, abs=1e-3)


@pytest.mark.parametrize(
    ("given", "weights", "made"),
    [
        ((32, 64, 56, 56), (128, 64, 3, 3), (32, 128, 28, 28)),  # stride 2
        ((32, 64, 56, 56), (64, 1, 3, 3), (32, 64, 56, 56)),  # one group a channel
        ((1, 3, 512, 512), (64, 3, 3, 3), (1, 64, 512, 512)),  # a plane past the transform's limit
    ],
)
def test_no_fft(given: tuple[int, ...], weights: tuple[int, ...], made: tuple[int, ...]) -> None:
    assert fft_scratch(Conv(given, weights, made, 4)) == 0


@pytest.mark.parametrize(("shape", "mib"), [((32, 64, 128, 112, 3), 147.1406), ((32, 256, 512, 28, 3), 39.0)])
def test_fp16_copies_to_channels_last(shape: tuple[int, int, int, int, int], mib: float) -> None:
    one = conv(*shape, 2)
    assert run_scratch(one) / MIB == pytest.approx(mib, abs=1e-3)
    assert run_scratch(one._replace(channels_last=True)) == 0
    assert search_scratch(one) >= run_scratch(one)


def test_one_axis_is_searched_as_a_plane() -> None:
    words = lifted(Conv((1, 300, 256), (256, 300, 3), (1, 256, 254), 4))
    assert 0.99 < search_scratch(words) / (38876 * MIB) <= 1  # of a text net that reserved so much in all


def by_channel(channels: int, side: int, made: int, filters: int, last: bool = False) -> Conv:
    given, out = (32, channels, side, side), (32, channels, made, made)
    return Conv(given, (channels, 1, filters, filters), out, 2, last)


@pytest.mark.parametrize(
    ("one", "mib"),
    [
        (by_channel(32, 112, 112, 3), 196.009),
        (by_channel(96, 112, 56, 3, last=True), 367.527),
        (by_channel(96, 112, 56, 3), 0),  # PyTorch's own kernel
        (by_channel(576, 14, 7, 3), 34.612),
        (by_channel(672, 14, 14, 5), 64.826),
    ],
)
def test_each_channel_by_itself(one: Conv, mib: float) -> None:
    assert search_scratch(one) / MIB == pytest.approx(mib, abs=1e-3)


def test_fp16_points_on_small_planes_go_through_ffts_in_fp32() -> None:
    assert search_scratch(conv(32, 672, 192, 7, 1, 2)) / MIB == pytest.approx(331.242, abs=1e-3)
    assert search_scratch(conv(32, 2048, 512, 7, 1, 2)) < 32 * MIB


def test_transposed_fp16() -> None:
    rise = Conv((32, 512, 32, 32), (512, 256, 2, 2), (32, 256, 64, 64), 2, transposed=True)
    assert search_scratch(rise) / MIB == pytest.approx(225.063, abs=0.1)
    assert run_scratch(rise) / MIB == pytest.approx(97.0)


def test_large_products_of_one_image_are_not_searched_with_ffts() -> None:
    assert search_scratch(conv(1, 1024, 512, 14, 1)) == 0
    assert search_scratch(conv(1, 416, 128, 28, 1)) / MIB == pytest.approx(445.656, abs=1e-3)


@pytest.mark.parametrize(
    ("images", "side", "made", "mib"), [(1, 8, 256, 2200.75), (1, 16, 128, 552.438), (32, 16, 128, 674.5)]
)
def test_transposed_fp32_with_filters_that_overlap(images: int, side: int, made: int, mib: float) -> None:
    rise = Conv(
        (images, 2 * made, side, side),
        (2 * made, made, 4, 4),
        (images, made, 2 * side, 2 * side),
        4,
        transposed=True,
    )
    assert search_scratch(rise) / MIB == pytest.approx(mib, rel=0.02)
