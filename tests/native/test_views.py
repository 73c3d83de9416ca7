"""Views of views against numpy, which has the same arithmetic for its own arrays."""

from __future__ import annotations

import numpy as np
import pytest

from wavefit.native import views
from wavefit.native.operation import View, channels_last, row_major


def _array(view: View, memory: np.ndarray) -> np.ndarray:
    steps = tuple(stride * memory.itemsize for stride in view.strides)
    return np.lib.stride_tricks.as_strided(memory[view.offset :], view.shape, steps)


def _random_view(rng: np.random.Generator) -> tuple[View, np.ndarray]:
    shape = tuple(int(size) for size in rng.choice([1, 2, 3, 4, 6], rng.integers(1, 5)))
    memory = np.arange(4 * int(np.prod(shape)) + 7, dtype=np.float32)
    view = View(shape=shape, strides=row_major(shape), offset=int(rng.integers(0, 5)))
    if rng.random() < 0.7:
        view = views.transpose(view, [int(axis) for axis in rng.permutation(len(shape))])
    if rng.random() < 0.5:
        view = View(shape=view.shape, strides=tuple(2 * each for each in view.strides), offset=view.offset)
    return view, memory


def _factored(size: int, rng: np.random.Generator) -> tuple[int, ...]:
    sizes = []
    while size > 1:
        divisors = [each for each in range(1, size + 1) if size % each == 0]
        sizes.append(int(rng.choice(divisors)))
        size //= sizes[-1]
    return tuple(sizes) or (1,)


def test_reshape_agrees_with_numpy_on_what_needs_no_copy() -> None:
    rng = np.random.default_rng(0)
    views_made = 0
    for _ in range(500):
        view, memory = _random_view(rng)
        shape = _factored(view.size, rng)
        array = _array(view, memory)
        made = views.reshape(view, shape)
        if made is None:
            copied = array.reshape(shape)
            assert not np.shares_memory(copied, array), (view, shape)
        else:
            views_made += 1
            np.testing.assert_array_equal(_array(made, memory), array.reshape(shape))
    assert 100 < views_made < 500


def test_channels_of_an_image_split_without_a_copy() -> None:
    shape = (2, 12, 5, 7)
    image = View(shape=shape, strides=channels_last(shape))
    split = views.reshape(image, (2, 3, 4, 5, 7))
    assert split is not None
    memory = np.arange(image.size, dtype=np.float32)
    np.testing.assert_array_equal(_array(split, memory), _array(image, memory).reshape(2, 3, 4, 5, 7))
    assert views.reshape(image, (2, 12 * 5 * 7)) is None


@pytest.mark.parametrize(
    ("starts", "steps", "index"),
    [((0, 1), (1, 1), np.s_[0:3, 1:4]), ((2, 0), (-1, 2), np.s_[2::-1, 0::2])],
)
def test_cut_as_numpy_slices(starts: tuple[int, ...], steps: tuple[int, ...], index: object) -> None:
    memory = np.arange(3 * 5, dtype=np.float32)
    whole = memory.reshape(3, 5)
    view = View(shape=(3, 5), strides=(5, 1))
    want = whole[index]  # type: ignore[index]
    np.testing.assert_array_equal(_array(views.cut(view, starts, steps, want.shape), memory), want)


def test_expand_repeats_and_part_is_a_stretch() -> None:
    memory = np.arange(6, dtype=np.float32)
    row = View(shape=(3, 1), strides=(2, 1))
    wide = views.expand(row, (2, 3, 4))
    np.testing.assert_array_equal(_array(wide, memory), np.broadcast_to(_array(row, memory), (2, 3, 4)))
    whole = View(shape=(2, 3), strides=(3, 1))
    np.testing.assert_array_equal(_array(views.part(whole, 1, 1, 2), memory), memory.reshape(2, 3)[:, 1:])
