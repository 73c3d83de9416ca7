"""Limits and statistics against numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from wavefit.guard.limits import Limits
from wavefit.guard.numeric import Tally, all_equal, compare


def tally(actual: list, expected: list, exact: list | None = None, limits: Limits | None = None) -> Tally:
    want = np.array(expected, np.float32)
    result = Tally("y", limits or Limits("fp32"), want)
    result.add(np.array(actual, np.float32), want, None if exact is None else np.array(exact, np.float64))
    return result


def test_limits_follow_the_unit_roundoffs() -> None:
    assert Limits("fp32").factor == 32
    assert Limits("fp16").factor == 4 * 2**13
    assert Limits("bf16").factor == 4 * 2**16
    assert Limits("fp32").allowed(1e-6) == pytest.approx(32e-6)
    assert Limits("fp32").allowed(0.0) == 32 * 2.0**-24
    assert Limits("fp16").allowed(1e-7) == pytest.approx(4 * 2**13 * 1e-7)
    assert Limits("fp16").allowed(1e-4) == math.sqrt(2.0**-11)  # never more than half of the digits
    assert Limits("fp32").allowed(2e-4) == pytest.approx(4e-4)  # never less than twice the reference's own
    assert Limits("fp32").allowed(None) == 2.0**-12
    assert Limits("int8").allowed(1e-6) == 0.15
    assert Limits("int8", beside_metric=True).allowed(1e-6) == 1.0  # the metric decides
    assert Limits("fp16", beside_metric=True).allowed(1e-6) == Limits("fp16").allowed(1e-6)


def test_a_file_in_half_precision_gets_no_tighter_limit_than_its_own() -> None:
    assert Limits("fp32", 2.0**-11).factor == 32
    assert Limits("bf16", 2.0**-11).factor == 4 * 2**3


def test_statistics_by_hand() -> None:
    error = tally([[3.0, 4.1], [6.0, 8.0]], [[3.0, 4.0], [6.0, 8.0]]).result().error
    assert error.rel_l2 == pytest.approx(0.1 / 5, rel=1e-5)
    assert error.max_abs == pytest.approx(0.1, rel=1e-5)
    assert error.cosine == pytest.approx((9 + 16.4) / (5 * math.hypot(3, 4.1)), rel=1e-6)
    assert error.argmax_agreement == 1
    assert error.elements == 4
    flipped = tally([[2.0, 1.0], [1.0, 2.0]], [[1.0, 2.0], [1.0, 2.0]]).result()
    assert flipped.error.argmax_agreement == 0.5
    assert any("50.0% of rows" in warning for warning in flipped.warnings)


def test_three_way_by_hand() -> None:
    result = tally([[1.0 + 2**-20]], [[1.0 + 2**-23]], [[1.0]]).result()
    assert result.error.rel_l2_float64 == pytest.approx(2**-20)
    assert result.error.reference_rel_l2_float64 == pytest.approx(2**-23)
    assert result.error.allowed_rel_l2 == pytest.approx(32 * 2**-23)
    assert result.reasons == ()  # 8 times the reference's own error, 32 are allowed
    assert tally([[1.0 + 2**-17]], [[1.0 + 2**-23]], [[1.0]]).result().reasons  # 64 times


def test_a_sample_near_zero_is_held_to_its_neighbours() -> None:
    # 1e-6 off a value of 1e-6: 100 % of itself, 1e-5 of a tenth of its neighbours' size
    error = tally([[2e-6], [1.0], [1.0]], [[1e-6], [1.0], [1.0]]).result().error
    assert error.rel_l2 == pytest.approx(1e-6 / (0.1 * math.sqrt(2 / 3)), rel=1e-3)


def test_a_corrupted_tile_is_found_where_the_norm_hides_it() -> None:
    want = np.random.default_rng(0).standard_normal((1, 100_000)).astype(np.float32)
    have = want.copy()
    have[0, 7] += 4.0  # relative L2 is 0.0126, which fp16 without float64 may have
    [result] = compare({"y": have}, {"y": want}, Limits("fp16"))
    assert result.error.rel_l2 == pytest.approx(4 / np.linalg.norm(want), rel=1e-3)
    assert "has an element off by 4.00e+00" in result.reasons[0]


def test_nan_and_inf_of_the_reference_are_left_out_and_said() -> None:
    same = tally([[np.nan, 1.0], [np.inf, 2.0]], [[np.nan, 1.0], [np.inf, 2.0]]).result()
    assert same.reasons == ()
    assert any("2 elements are NaN or Inf in the reference" in warning for warning in same.warnings)
    assert tally([[-np.inf, 1.0]], [[np.inf, 1.0]]).result().reasons
    assert tally([[0.0, 1.0]], [[np.nan, 1.0]]).result().reasons


def test_lower_precisions_may_differ_in_one_integer_of_a_hundred() -> None:
    want = np.arange(200)
    have = want.copy()
    have[:2] += 1
    assert compare({"y": have}, {"y": want}, Limits("fp16"))[0].reasons == ()
    assert "2 of 200" in compare({"y": have}, {"y": want}, Limits("fp32"))[0].reasons[0]
    have[:3] += 1
    assert compare({"y": have}, {"y": want}, Limits("fp16"))[0].reasons


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.ones((4, 3)), True),
        (np.tile([1.0, 2.0], (4, 1)), True),  # rows alike: batch positions cannot be told apart
        (np.arange(6.0).reshape(3, 2), False),
        (np.array([[1.0, 2.0]]), False),  # one sample, elements differ
        (np.array([[2.0, 2.0]]), True),
        (np.array([[1.0], [1.0 + 1e-9]]), True),
        (np.array([["a"], ["a"]]), True),
        (np.array([3, 4]), False),
        (np.full((2, 2), np.nan), True),
    ],
)
def test_all_equal(array: np.ndarray, expected: bool) -> None:
    assert all_equal(array) is expected


def test_text_outputs_are_compared_exactly() -> None:
    want = np.array(["cat", "dog"], object)
    assert compare({"y": want.copy()}, {"y": want}, Limits("fp32"))[0].reasons == ()
    assert compare({"y": np.array(["cat", "cow"], object)}, {"y": want}, Limits("fp32"))[0].reasons


def test_an_output_of_any_other_type_must_be_equal() -> None:
    for want, have in (
        (np.ones((2, 3), np.complex64), np.full((2, 3), 1 + 1e-3j, np.complex64)),
        (np.array([["a"], ["b"]], object), np.array([["a"], ["c"]], object)),
        (np.array([True, False]), np.array([True, True])),
    ):
        result = Tally("y", Limits("fp32"), want)
        result.add(have, want, None)
        assert "elements differ" in result.result().reasons[0]
