"""Channels that lost everything they say are found beside larger ones; what is right, or small and alike, is not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from wavefit.guard.limits import Limits
from wavefit.guard.numeric import Tally
from wavefit.schema import Precision


def reasons(
    actual: np.ndarray,
    expected: np.ndarray,
    precision: Precision = "int8",
    exact: np.ndarray | None = None,
    batch: int = 4,
) -> tuple[str, ...]:
    """Of a comparison batch by batch."""
    want = expected.astype(np.float32)
    tally = Tally("y", Limits(precision), want)
    for start in range(0, len(want), batch):
        part = slice(start, start + batch)
        tally.add(actual[part].astype(np.float32), want[part], None if exact is None else exact[part])
    return tally.result().reasons


def int8(array: np.ndarray) -> np.ndarray:
    """Rounded to 256 steps over the whole tensor's range: what QuantizeLinear with one scale keeps."""
    low, high = min(0.0, float(array.min())), max(0.0, float(array.max()))
    scale = (high - low) / 255
    zero = np.rint(-low / scale)
    return (np.clip(np.rint(array / scale) + zero, 0, 255) - zero) * scale


def half(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float16).astype(np.float64)


def detections(items: int = 8, anchors: int = 300, classes: int = 6) -> np.ndarray:
    """items x anchors x (4 box numbers in pixels, class scores of which few are large)."""
    random = np.random.default_rng(0)
    boxes = random.uniform(0, 640, (items, anchors, 4))
    scores = 1 / (1 + np.exp(-random.normal(-6, 2.5, (items, anchors, classes))))
    return np.concatenate([boxes, scores], -1)


def test_scores_beside_boxes() -> None:
    want = detections()
    have = int8(want)
    assert not have[..., 4:].any()  # every score is gone
    error = np.linalg.norm(have - want) / np.linalg.norm(want)
    assert error < 0.005  # and int8 may be 0.15
    [found] = reasons(have, want)
    assert "has lost channels 4, 5, 6, 7 and 2 more of 10 on axis 2" in found
    turned = want.transpose(0, 2, 1)
    assert "4, 5, 6, 7 and 2 more of 10 on axis 1" in reasons(int8(turned), turned)[0]
    apart = np.concatenate([int8(want[..., :4]), int8(want[..., 4:])], -1)
    assert reasons(apart, want) == ()


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16", "int8"])
def test_in_every_precision(precision: Precision) -> None:
    want = detections()
    have = want.copy()
    have[..., 7] = 0
    assert "has lost channel 7 of 10" in reasons(have, want, precision)[0]
    assert reasons(want, want, precision) == ()


def test_one_of_many_of_the_same_size() -> None:
    """A column of weights that went wrong: about 1/64 of the norm, which bf16 may have without float64."""
    want = np.random.default_rng(1).normal(size=(8, 4096))
    have = want.copy()
    have[:, 99] = 0
    assert "has lost channel 99 of 4096" in reasons(have, want, "bf16")[0]


def softmax(array: np.ndarray) -> np.ndarray:
    powers = np.exp(array - array.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def features(random: np.random.Generator) -> np.ndarray:
    """After Relu, of very different liveliness: standard deviations from 1e-5 to 10 without a gap."""
    return np.maximum(random.normal(-0.5, 1, (8, 512)), 0) * 10 ** random.uniform(-5, 1, 512)


RIGHT: dict[str, Callable[[np.random.Generator], np.ndarray]] = {
    "logits": lambda random: random.normal(0, 3, (8, 100)),
    "logits far from zero": lambda random: 50 + random.normal(0, 1, (8, 10)),
    "classes that no item shows": lambda random: softmax(
        random.normal(0, 1, (8, 1000)) * 4 - random.uniform(0, 20, 1000)
    ),
    "one-hot": lambda random: np.eye(20)[random.integers(0, 5, 8)],
    "independent probabilities": lambda random: 1 / (1 + np.exp(-random.normal(-6, 4, (8, 80)))),
    "features": features,
    "a picture": lambda random: random.uniform(0, 255, (2, 3, 32, 32)),
    "constant channels": lambda random: np.concatenate(
        [random.normal(0, 9, (8, 4)), np.full((8, 4), 0.01)], 1
    ),
    "channels of zeros": lambda random: np.concatenate([random.normal(0, 9, (8, 4)), np.zeros((8, 4))], 1),
    "two items": lambda random: np.concatenate(
        [random.normal(0, 9, (2, 4)), random.normal(0, 1e-3, (2, 4))], 1
    ),
    "boxes within 0 to 1 and scores": lambda random: detections() / np.array([640.0] * 4 + [1.0] * 6),
}


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_no_false_alarm(name: str, precision: Precision) -> None:
    want = RIGHT[name](np.random.default_rng(2))
    have = int8(want) if precision == "int8" else half(want)
    assert reasons(have, want, precision) == ()


def test_allowed_noise_in_channels_that_vary_little() -> None:
    """Four items of 1,000 classes: some class hardly varies by chance, and noise of a tenth is more than that."""
    random = np.random.default_rng(5)
    want = random.normal(0, 1, (4, 1000)) + random.normal(0, 3, 1000)
    have = want + random.normal(0, 0.1 * np.sqrt(10), want.shape)
    assert np.linalg.norm(have - want) / np.linalg.norm(want) > 0.09
    assert reasons(have, want) == ()


def test_noise_of_the_tensors_own_rounding_says_nothing() -> None:
    """Differences of large equal numbers: what is left is rounding, another one in every order of summation."""
    random = np.random.default_rng(3)
    large = random.normal(0, 1, (8, 4))
    noise, other = (random.normal(0, 2.0**-24, (8, 4)) for _ in range(2))
    want, have = np.concatenate([large, noise], 1), np.concatenate([large, other], 1)
    assert reasons(have, want, "fp32") == ()
    # noise that float64 alone tells from a signal: the reference's own error there is as large as what it says
    want[:, 4:], have[:, 4:] = noise * 1000, other * 1000
    exact = np.concatenate([large, np.zeros((8, 4))], 1)
    assert reasons(have, want, "fp16") != ()
    assert reasons(have, want, "fp16", exact) == ()


def test_nan_in_the_reference_is_left_out() -> None:
    want = detections()
    want[0, 0, 5] = np.nan
    assert reasons(want, want, "fp16") == ()
    have = int8(np.nan_to_num(want))
    have[0, 0, 5] = np.nan
    assert "has lost channels" in reasons(have, want)[0]


def test_neither_single_numbers_nor_thousands_of_positions_are_channels() -> None:
    random = np.random.default_rng(4)
    assert reasons(random.normal(size=8), random.normal(size=8)) != ()  # the norm's own reason
    want = np.concatenate([random.normal(0, 100, (4, 4000)), random.normal(0, 1e-3, (4, 4000))], 1)
    have = want.copy()
    have[:, 4000:] = 0
    assert reasons(have, want) == ()
