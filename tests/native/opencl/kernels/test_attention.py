"""Attention as one kernel against its definition in float64."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from native.interpret import compute
from native.opencl.checks import image, numbers, operation, rows, spread  # type: ignore[import-not-found]
from native.opencl.harness import run  # type: ignore[import-not-found]

from wavefit.native import limits
from wavefit.native.opencl import kernels
from wavefit.native.opencl.chooser import Chooser
from wavefit.native.operation import Limits, View
from wavefit.native.specimens import attention, matmul, softmax, turned

pytest.importorskip("pyopencl")

SHAPES = [(4, 4), (4, 2), (2, 4), (2, 2), (1, 4), (1, 2)]  # rows and keys of a lane


def _heads(n: int, heads: int, length: int, size: int) -> View:
    """(batch, heads, length, size), as it lies in (batch, length, heads * size)."""
    return View(shape=(n, heads, length, size), strides=(length * heads * size, size, heads * size, 1))


def _check(
    views: tuple[View, ...],
    out: View,
    config: tuple[int, int, int, int] = (16, 4, 4, 0),
    masked: Any = None,
    more: View | None = None,
) -> None:
    """``config``: queries of a group, rows and keys of a lane, whether queries are held."""
    made = operation("Attention", list(views), out, more, scale=0.3)
    arrays = [numbers(view, number) for number, view in enumerate(views)]
    if masked is not None:
        arrays[3] = masked
    if more is not None:
        arrays.append(numbers(more, 9))
    (want,) = compute(made, arrays)
    named = dict(zip(("queries", "rows", "keys", "hold"), config, strict=True))
    (got,) = run("attention", made, named, arrays)
    tolerance = 2e-3 if out.dtype == "float16" else 3e-6
    assert np.linalg.norm(got - want) <= tolerance * np.linalg.norm(want)


@pytest.mark.parametrize(("rows_", "keys"), SHAPES)
def test_every_shape_of_a_lane_with_queries_held_where_it_is_square(rows_: int, keys: int) -> None:
    q, k = rows(2, 17, 20), rows(2, 16 * keys + 1, 20)
    _check((q, k, k), rows(2, 17, 20), (16, rows_, keys, rows_ == keys))


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (15, 17), (33, 16), (64, 63), (65, 129)])
def test_lengths_that_fit_no_tile(queries: int, keys: int) -> None:
    q, k = rows(2, queries, 32), rows(2, keys, 32)
    _check((q, k, k), rows(2, queries, 32), (64 if queries > 33 else 16, 4, 4, queries % 2))


@pytest.mark.parametrize(("head", "values"), [(1, 3), (7, 20), (64, 65), (256, 1), (33, 256)])
def test_heads_of_any_size(head: int, values: int) -> None:
    views = rows(1, 9, head), rows(1, 37, head), rows(1, 37, values)
    _check(views, rows(1, 9, values), (16, 2, 2, head % 2))


def test_heads_as_views_and_an_epilogue() -> None:
    q = _heads(2, 3, 37, 16)
    for config in ((64, 4, 4, 0), (32, 1, 2, 1)):
        _check((q, q, q), _heads(2, 3, 37, 16), config, more=rows(16))


def test_masks_broadcast_and_a_row_without_keys_gives_zero() -> None:
    q, k = _heads(2, 2, 9, 8), _heads(2, 2, 21, 8)
    mask = np.zeros((2, 1, 1, 21), np.float32)
    mask[0, ..., 5:] = -np.inf
    _check((q, k, k, rows(2, 1, 1, 21)), _heads(2, 2, 9, 8), masked=mask)
    by_row = np.zeros((9, 21), np.float32)
    by_row[4] = -np.inf
    _check((q, k, k, rows(9, 21)), _heads(2, 2, 9, 8), masked=by_row)
    _check((q, k, k, spread(2, 2, 9, 21)), _heads(2, 2, 9, 8))


def test_a_row_that_the_lowest_number_masks_is_a_mean() -> None:
    """As PyTorch's finfo.min masks: every score is that number, so every key has the same share."""
    q, k = rows(3, 8), rows(70, 8)
    mask = np.full((3, 70), np.finfo(np.float32).min, np.float32)
    _check((q, k, k, rows(3, 70)), rows(3, 8), masked=mask)


def test_keys_before_the_first_allowed_one_fill_whole_tiles() -> None:
    """Maxima are -infinity for a while: what is summed up then must not become NaN."""
    q, k = rows(5, 8), rows(200, 8)
    mask = np.zeros((5, 200), np.float32)
    mask[:, :150] = -np.inf
    _check((q, k, k, rows(5, 200)), rows(5, 8), (16, 2, 2, 0), masked=mask)


def test_large_scores_do_not_overflow() -> None:
    """Scores of +-1e4: shares are computed from what lies below the maximum."""
    q, k = rows(1, 9, 4), rows(1, 40, 4)
    made = operation("Attention", [q, k, k], q, scale=1.0)
    arrays = [100 * numbers(q), 100 * numbers(k, 1), numbers(k, 2)]
    (want,) = compute(made, arrays)
    (got,) = run("attention", made, {"queries": 16, "rows": 4, "keys": 2, "hold": 0}, arrays)
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)


def test_transposed_keys_and_half_storage() -> None:
    k = View(shape=(2, 13, 8), strides=(104, 1, 13), dtype="float16")
    q, v = rows(2, 10, 8, dtype="float16"), rows(2, 13, 8, dtype="float16")
    _check((q, k, v), rows(2, 10, 8, dtype="float16"))
    _check((spread(2, 10, 7), spread(2, 13, 7), image(2, 13, 9)), spread(2, 10, 9), (16, 2, 4, 1))


@pytest.mark.parametrize("gfx", ["gfx90c", "gfx1035", "gfx1103", "gfx942"])
def test_one_kernel_is_reckoned_to_beat_three(gfx: str) -> None:
    """By the same cost model, at the length of a sentence."""
    chooser = Chooser(limits.of_gfx(gfx))
    q, scores = rows(12, 128, 64), rows(12, 128, 128)
    three = [
        matmul(q, turned(q), constant=False),
        softmax(scores, -1),
        matmul(scores, q, constant=False),
    ]
    one = chooser.cost(attention(12, 128, 128, 64))
    apart = [chooser.cost(each) for each in three]
    assert one is not None
    assert one < sum(each for each in apart if each is not None)


def test_configurations_come_in_the_model_s_order_and_fit_the_device() -> None:
    made, template = attention(12, 197, 197, 64), kernels.get("attention")
    for device in (limits.of_gfx("gfx906"), limits.of_gfx("gfx942"), Limits(name="small", work_group=64)):
        found = list(template.configurations(made, device))
        costs = [template.cost(made, config, device) for config in found]
        assert all(one <= two for one, two in pairwise(costs))
        for config in found:
            (launch,) = template.build(made, config).launches
            assert launch.kernel.local_size[0] <= device.work_group
            assert launch.kernel.local_bytes <= device.local_bytes
    assert found
