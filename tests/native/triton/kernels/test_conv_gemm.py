"""Implicit-GEMM convolution in Triton, against numpy in float64."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from native.triton.harness import run  # type: ignore[import-not-found]

from wavefit.native.draw import numbers
from wavefit.native.operation import Operation
from wavefit.native.reference import compute
from wavefit.native.specimens import conv, image, requantised, rows, small_conv
from wavefit.native.triton import kernels

SMALL = {"m": 16, "n": 16, "k": 16, "split": 1, "warps": 2, "stages": 2}
ODD = {
    "3x3 padded": conv(image(2, 32, 5, 7), 19, (3, 3), pad=1, residual=True),
    "1x1": conv(image(1, 33, 5, 3), 21, (1, 1)),
    "1x1 strided": conv(image(2, 16, 5, 6), 16, (1, 1), stride=2),
    "dilated": conv(image(1, 16, 9, 8), 5, (3, 3), pad=2, dilation=2),
    "stem of an image as it comes in": conv(rows(2, 3, 11, 9), 8, (7, 7), stride=2, pad=3),
    "groups": conv(image(1, 12, 5, 5), 18, (3, 3), pad=1, group=3),
    "groups of many channels": conv(image(1, 40, 4, 4), 36, (3, 3), pad=1, group=2),
    "sequence": conv(image(2, 20, 9), 6, (5,), pad=2),
    "volume": conv(image(1, 16, 3, 4, 5), 7, (2, 3, 3), pad=1),
}


def arrays(operation: Operation, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    found = []
    for number, view in enumerate(operation.inputs):
        drawn = numbers(operation, number, view.size, rng)
        found.append(drawn.reshape(view.shape))
    return found


def error(operation: Operation, config: dict, runs: int = 1, template: str = "conv_gemm") -> float:
    given = arrays(operation)
    (got,) = run(template, operation, config, given, runs)
    want = compute(operation, given)
    return float(np.linalg.norm(got.astype(np.float64) - want) / np.linalg.norm(want))


@pytest.mark.parametrize("name", ODD)
def test_odd_sizes(name):
    assert kernels.get("conv_gemm").claims(ODD[name])
    assert error(ODD[name], SMALL) <= 1e-6


@pytest.mark.parametrize("split", [2, 3])
def test_the_last_program_adds_up_what_several_computed_and_leaves_the_counters_as_they_were(split):
    operation = conv(image(2, 32, 5, 7), 19, (3, 3), pad=1, residual=True)
    assert error(operation, {**SMALL, "split": split}, runs=2) <= 1e-6


def test_half():
    assert error(conv(image(1, 32, 6, 6, dtype="float16"), 24, (3, 3), pad=1, residual=True), SMALL) <= 2e-3


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("split", [1, 2])
def test_integers_with_a_zero_point_are_summed_exactly(dtype, split):
    operation = small_conv(image(1, 32, 5, 6, dtype=dtype), 17, (3, 3), pad=1, zero_point=3)
    config = {**SMALL, "k": 32, "split": split}
    assert error(operation, config) == 0


def test_integers_requantised():
    operation = requantised(small_conv(image(1, 32, 5, 6, dtype="int8"), 17, (3, 3), pad=1))
    assert error(operation, {**SMALL, "k": 32}) <= 5e-3


STEMS = {
    "of seven": conv(rows(2, 3, 11, 9), 8, (7, 7), stride=2, pad=3),
    "of three, channels-last": conv(image(1, 3, 10, 8), 5, (3, 3), stride=2, pad=1),
    "of one channel": conv(rows(1, 1, 9, 9), 6, (5, 5), pad=2),
    "of four, without padding": conv(rows(1, 4, 12, 12), 6, (4, 4), stride=4),
}


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("name", STEMS)
def test_stems(name, k):
    operation = STEMS[name]
    assert kernels.get("conv_stem").claims(operation)
    segments = {
        "of seven": 32,
        "of three, channels-last": 16,
        "of one channel": 16,
        "of four, without padding": 16,
    }
    assert error(operation, {**SMALL, "k": k * segments[name]}, template="conv_stem") <= 1e-6


def test_an_image_in_fp32_meets_weights_in_half():
    plain = conv(rows(1, 3, 9, 9), 8, (3, 3), pad=1)
    half = msgspec.structs.replace
    weights, bias = (half(plain.input(n), dtype="float16") for n in (1, 2))
    operation = half(
        plain, inputs=(plain.input(0), weights, bias), outputs=(half(plain.output, dtype="float16"),)
    )
    for template, k in (("conv_gemm", 32), ("conv_stem", 16)):
        assert error(operation, {**SMALL, "k": k}, template=template) <= 2e-3
