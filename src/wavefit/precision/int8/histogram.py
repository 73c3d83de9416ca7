"""Activations over calibration data, counted in histograms of a fixed size: one pass, no value is kept."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from wavefit.errors import InputError
from wavefit.model.samples import Samples
from wavefit.precision import graph

if TYPE_CHECKING:
    import onnx_ir as ir

BINS = 8192
_BATCH = 8
_BUDGET_BYTES = 256 << 20  # of the values that one run gives back
_PROBED_AT_ONCE = 32
_SMALLEST_LIMIT = 2.0**-126  # of the range; half of it is still a normal number divided by BINS in float64


COUNTED = 1 << 20
"""Elements of one array that are counted, about; its least and greatest are always those of all."""


@dataclass(frozen=True)
class Histogram:
    """How the elements of one value are spread.

    Args:
        counts: int64 of shape (BINS,): elements in equal bins over [-limit, limit], exact zeros left out; of an array
            of more than :data:`COUNTED` elements a part, evenly drawn.
        limit: a power of two that no element's magnitude passes.
        low, high: least and greatest finite element.
        zeros: of the elements counted, those that are exactly zero.
        nonfinite: NaN and Inf, in no bin.
        axis: that ``channel_low`` and ``channel_high`` lie on; None where they were not asked for.
        channel_low, channel_high: least and greatest finite element of each channel, shape (channels,).
    """

    counts: np.ndarray
    limit: float
    low: float
    high: float
    zeros: int = 0
    nonfinite: int = 0
    axis: int | None = None
    channel_low: np.ndarray | None = None
    channel_high: np.ndarray | None = None

    @property
    def total(self) -> int:
        """Finite elements that were counted, zeros included."""
        return int(self.counts.sum()) + self.zeros

    @property
    def edges(self) -> np.ndarray:
        """The bins' edges, float64 of shape (BINS + 1,)."""
        return np.linspace(-self.limit, self.limit, len(self.counts) + 1)


def histogram(array: np.ndarray, axis: int | None = None) -> Histogram:
    """The histogram of one array of floats.

    Args:
        axis: to give the range of each channel along, where the array has it.
    """
    finite = np.isfinite(array)
    nonfinite = int(array.size - np.count_nonzero(finite))
    values = array[finite] if nonfinite else array.reshape(-1)
    low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 0.0)
    limit = _limit(max(-low, high))
    some = values[:: max(1, values.size // COUNTED) | 1]  # odd: no multiple of a power of two channels
    zeros = int(some.size - np.count_nonzero(some))
    position = (some.astype(np.float64) + limit) * (BINS / (2 * limit))
    index = np.minimum(position.astype(np.int64), BINS - 1)
    counts = np.bincount(index, minlength=BINS)
    counts[BINS // 2] -= zeros  # zero is the lower edge of the first bin above it
    channels = _channels(array, finite, axis) if axis is not None and array.ndim > axis else (None, None)
    return Histogram(counts, limit, low, high, zeros, nonfinite, axis, *channels)


def merged(first: Histogram, second: Histogram) -> Histogram:
    """The histogram of the elements of both: exact, as the wider one's bins are whole numbers of the other's."""
    limit = max(first.limit, second.limit)
    empty = [each.total == 0 for each in (first, second)]
    lows = [each.low for each, none in zip((first, second), empty, strict=True) if not none]
    highs = [each.high for each, none in zip((first, second), empty, strict=True) if not none]
    return Histogram(
        _widened(first, limit) + _widened(second, limit),
        limit,
        min(lows, default=0.0),
        max(highs, default=0.0),
        first.zeros + second.zeros,
        first.nonfinite + second.nonfinite,
        first.axis,
        _both(np.minimum, first.channel_low, second.channel_low),
        _both(np.maximum, first.channel_high, second.channel_high),
    )


def collect(
    model: ir.Model,
    samples: Samples,
    values: Collection[str] | None,
    say: Callable[[str], None],
    axes: Mapping[str, int] | None = None,
) -> dict[str, Histogram]:
    """Runs the graph over the samples and counts its float values.

    A large model is run several times, each time with as many of its values as fit the memory set aside.

    Args:
        values: names of those wanted; None for every float value that is not a constant.
        axes: value name to the axis that the range of each channel is wanted along.

    Raises:
        InputError: a value is not in the graph or is no float, there are no samples, or ONNX Runtime does not run it.
    """
    wanted = _wanted(model, values)
    if samples.count < 1:
        raise InputError("there are no calibration items", "give at least one")
    size = _fixed_batch(model, samples) or min(_BATCH, samples.count)
    axes = axes or {}
    found: dict[str, Histogram] = {}
    given = [name for name in wanted if name in samples.inputs]
    computed = [name for name in wanted if name not in samples.inputs]
    groups = list(_groups(computed, _sizes(model, samples, computed, size)))
    for number, group in enumerate(groups or [[]]):
        runner = graph.Runner(model, tuple(group)) if group else None
        for batch in _batches(samples, size, _fixed_batch(model, samples) is not None):
            arrays = runner(batch) if runner is not None else {}
            if number == 0:
                arrays = arrays | {name: batch[name] for name in given}
            for name, array in arrays.items():
                seen = histogram(array, axes.get(name))
                found[name] = merged(found[name], seen) if name in found else seen
        if len(groups) > 1:
            say(f"calibration: {number + 1} of {len(groups)} groups of values")
    return {name: found[name] for name in wanted}


def _wanted(model: ir.Model, values: Collection[str] | None) -> list[str]:
    floats = [str(value.name) for value in _floats(model)]
    if values is None:
        return floats
    missing = sorted(set(values) - set(floats))
    if missing:
        raise InputError(f"{missing[0]!r} is no float value of the graph that depends on its inputs")
    return [name for name in floats if name in set(values)]


def _floats(model: ir.Model) -> Iterator[ir.Value]:
    for value in (*model.graph.inputs, *(each for node in model.graph for each in node.outputs)):
        if value.name and graph.is_float(value) and value.name not in model.graph.initializers:
            yield value


def _fixed_batch(model: ir.Model, samples: Samples) -> int | None:
    for value in model.graph.inputs:
        if value.name in samples.inputs and value.name not in samples.whole and value.shape:
            first = value.shape[0]
            if isinstance(first, int):
                return first
    return None


def _batches(samples: Samples, size: int, fixed: bool) -> Iterator[dict[str, np.ndarray]]:
    for start in range(0, samples.count, size):
        yield samples.batch(start, size if fixed else min(size, samples.count - start))


def _sizes(model: ir.Model, samples: Samples, names: Sequence[str], size: int) -> dict[str, int]:
    """Bytes that each value takes in one run: by its shape, or else by one run on as few items as the model takes."""
    shapes = {value.name: value.shape for value in _floats(model)}
    sizes, unknown = {}, []
    for name in names:
        shape = shapes[name]
        if shape is None or any(not isinstance(each, int) for each in list(shape)[1:]):
            unknown.append(name)
            continue
        first = shape[0] if len(shape) and isinstance(shape[0], int) else size
        rest = [each for each in list(shape)[1:] if isinstance(each, int)]
        sizes[name] = 4 * int(np.prod([first, *rest], dtype=np.int64))
    items = _fixed_batch(model, samples) or 1
    for start in range(0, len(unknown), _PROBED_AT_ONCE):
        group = tuple(unknown[start : start + _PROBED_AT_ONCE])
        for name, array in graph.Runner(model, group)(samples.batch(0, items)).items():
            sizes[name] = array.nbytes * size // items
    return sizes


def _groups(names: Sequence[str], sizes: Mapping[str, int]) -> Iterator[list[str]]:
    group: list[str] = []
    taken = 0
    for name in names:
        if group and taken + sizes[name] > _BUDGET_BYTES:
            yield group
            group, taken = [], 0
        group.append(name)
        taken += sizes[name]
    if group:
        yield group


def _limit(largest: float) -> float:
    """The power of two above a magnitude."""
    if largest <= _SMALLEST_LIMIT:
        return _SMALLEST_LIMIT * 2
    return float(2.0 ** (np.frexp(largest)[1]))


def _widened(given: Histogram, limit: float) -> np.ndarray:
    """The counts over [-limit, limit]: bins in pairs, as many times as the range doubles."""
    counts = given.counts
    for _ in range(round(float(np.log2(limit / given.limit)))):
        pairs = counts.reshape(-1, 2).sum(axis=1)
        counts = np.zeros_like(counts)
        counts[BINS // 4 : BINS // 4 + len(pairs)] = pairs
        if not pairs.any():
            break
    return counts


def _channels(array: np.ndarray, finite: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    others = tuple(each for each in range(array.ndim) if each != axis % array.ndim)
    low = np.min(array, axis=others, initial=np.inf, where=finite)
    high = np.max(array, axis=others, initial=-np.inf, where=finite)
    return low.astype(np.float64), high.astype(np.float64)


def _both(take: np.ufunc, first: np.ndarray | None, second: np.ndarray | None) -> np.ndarray | None:
    """None where the channels are not the same in every run."""
    if first is None or second is None or first.shape != second.shape:
        return None
    result: np.ndarray = take(first, second)
    return result
