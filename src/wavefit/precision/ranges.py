"""The numbers that flow through a graph: the range of every float value over calibration data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec

from wavefit.model.samples import Samples
from wavefit.precision import accumulate
from wavefit.precision.graph import Runner, constant, is_float
from wavefit.schema import Struct

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir

HALF_MAX = 65504.0
HALF_SMALLEST_NORMAL = 2.0**-14
HALF_SMALLEST = 2.0**-24
"""IEEE 754 binary16: largest, smallest normal and smallest subnormal number."""

_HALF_NORMAL_ERROR = 2.0**-12
_HALF_ABSOLUTE_ERROR = HALF_SMALLEST / math.sqrt(12)
"""Root mean square error of rounding normal halves, relative; and of subnormal ones, whose step is one size."""

MEMORY_BYTES = 512 << 20
"""Most memory that the values of one pass may take together, in bytes."""

_UNKNOWN_ELEMENTS = 1 << 22  # taken for a value whose shape could not be inferred


class Range(Struct, frozen=True, kw_only=True):
    """What one value holds. Everything but ``elements`` and ``unbounded`` is of its finite elements.

    Shares are of the non-zero elements. ``half_error`` is the relative L2 error that rounding to half makes in the
    elements that fit: about 2^-12 where they are normal numbers, 1 where all are rounded to 0.
    """

    low: float
    high: float
    max_abs: float
    smallest: float  # the smallest non-zero magnitude; 0 where all are zero
    mean_abs: float
    mean_square: float
    subnormal_share: float  # under half's smallest normal number, 6.1e-5
    lost_share: float  # under half's smallest subnormal number, 6e-8
    half_error: float
    elements: int
    unbounded: int = 0  # elements that are Inf or NaN in fp32 already
    # by the node that adds the value up: the largest sum that it reaches
    sums: dict[str, float] = msgspec.field(default_factory=dict)
    # by the node that normalises the value: the smallest variance plus epsilon
    divisors: dict[str, float] = msgspec.field(default_factory=dict)
    # by the Softmax that reads the value: the smallest of its rows' maxima
    peaks: dict[str, float] = msgspec.field(default_factory=dict)

    @property
    def root_mean_square(self) -> float:
        return math.sqrt(self.mean_square)

    def scaled(self, factor: float) -> Range:
        """The range of the value times ``factor``, a power of two; sums and losses as estimates from its moments."""
        size = abs(factor)
        rms = self.root_mean_square * size
        power = 1 if factor < 1 else 2  # of a sum of squares, where the larger estimate is the careful one
        return Range(
            low=self.low * factor,
            high=self.high * factor,
            max_abs=self.max_abs * size,
            smallest=self.smallest * size,
            mean_abs=self.mean_abs * size,
            mean_square=rms * rms,
            subnormal_share=_share_after(self, size, HALF_SMALLEST_NORMAL),
            lost_share=_share_after(self, size, HALF_SMALLEST),
            half_error=_HALF_NORMAL_ERROR + min(1.0, _HALF_ABSOLUTE_ERROR / rms) if rms else 0.0,
            elements=self.elements,
            unbounded=self.unbounded,
            sums={name: found * size**power for name, found in self.sums.items()},
            divisors={name: found * size * size for name, found in self.divisors.items()},
            peaks={name: found * factor for name, found in self.peaks.items()},
        )


def observe(
    model: ir.Model, samples: Samples, say: Callable[[str], None], batch: int = 4
) -> dict[str, Range]:
    """The range of every float value of the main graph, weights and inputs among them, over all items.

    The values of one pass take at most about :data:`MEMORY_BYTES`; a larger graph is run in several passes.

    Args:
        say: told what goes on, once a pass.
        batch: items a run, where the graph does not fix it; fewer where one value alone would take too much.

    Raises:
        InputError: ONNX Runtime is missing, or does not run the graph.
    """
    ranges = {str(value.name): _of_weight(value) for value in _weights(model)}
    readers = _readers(model)
    batch = frozen_batch(model) or min(batch, samples.count)
    passes = list(chunks(_computed(model), samples, batch))
    for number, names in enumerate(passes, 1):
        say(f"ranges: pass {number} of {len(passes)}, {samples.count} items")
        run = Runner(model, names)
        for inputs in batches(model, samples, batch):
            for name, array in run(inputs).items():
                _add(ranges, name, describe(array, readers.get(name, ())))
    for spec in model.graph.inputs:
        name = str(spec.name)
        if is_float(spec) and name in samples.inputs:
            _add(ranges, name, describe(samples.inputs[name], readers.get(name, ())))
    return ranges


def merge(one: Mapping[str, Range], other: Mapping[str, Range]) -> dict[str, Range]:
    """Ranges over both sets of data: of the same graph at another size, or on other items."""
    merged = dict(one)
    for name, found in other.items():
        _add(merged, name, found)
    return merged


def describe(array: np.ndarray, readers: Iterable[ir.Node] = ()) -> Range:
    """The range of one array; ``readers`` are the nodes that take it as their first input and add it up."""
    import numpy as np

    wide = array.astype(np.float32, copy=False).reshape(-1)
    finite = np.isfinite(wide)
    unbounded = int(wide.size - np.count_nonzero(finite))
    if unbounded:
        wide = wide[finite]
    size = np.abs(wide)
    used = size[size > 0]
    squares = float(np.square(wide, dtype=np.float64).sum())
    sums = {str(node.name): accumulate.largest_sum(node, array) for node in readers}
    divisors = {str(node.name): accumulate.smallest_divisor(node, array) for node in readers}
    peaks = {str(node.name): accumulate.lowest_peak(node, array) for node in readers}
    return Range(
        low=float(wide.min(initial=math.inf)) if wide.size else 0.0,
        high=float(wide.max(initial=-math.inf)) if wide.size else 0.0,
        max_abs=float(size.max(initial=0.0)),
        smallest=float(used.min()) if used.size else 0.0,
        mean_abs=float(size.mean(dtype=np.float64)) if size.size else 0.0,
        mean_square=squares / wide.size if wide.size else 0.0,
        subnormal_share=_share(used, HALF_SMALLEST_NORMAL),
        lost_share=_share(used, HALF_SMALLEST),
        half_error=_half_error(wide[size <= HALF_MAX]),
        elements=int(array.size),
        unbounded=unbounded,
        sums=_known(sums),
        divisors=_known(divisors),
        peaks=_known(peaks),
    )


def frozen_batch(model: ir.Model) -> int | None:
    """The first size of the first input that has axes, where the graph fixes it."""
    for spec in model.graph.inputs:
        if spec.shape is not None and len(spec.shape):
            size = spec.shape[0]
            return size if isinstance(size, int) else None
    return None


def batches(model: ir.Model, samples: Samples, batch: int) -> Iterator[dict[str, np.ndarray]]:
    """All items once, in runs of ``batch``; the last run is shorter where the graph lets it be."""
    frozen = frozen_batch(model) is not None
    for start in range(0, samples.count, batch):
        yield samples.batch(start, batch if frozen else min(batch, samples.count - start))


def chunks(
    values: Iterable[ir.Value], samples: Samples, batch: int, limit: int = MEMORY_BYTES
) -> Iterator[tuple[str, ...]]:
    """The values' names, in groups that take at most ``limit`` bytes together as far as shapes are known."""
    known = _sizes(samples, batch)
    group: list[str] = []
    taken = 0
    for value in values:
        size = 4 * _elements(value, known, batch)
        if group and taken + size > limit:
            yield tuple(group)
            group, taken = [], 0
        group.append(str(value.name))
        taken += size
    if group:
        yield tuple(group)


def _sizes(samples: Samples, batch: int) -> int:
    """The largest axis of any input: what a symbolic size is taken for."""
    return max((size for array in samples.inputs.values() for size in array.shape[1:]), default=batch)


def _elements(value: ir.Value, symbolic: int, batch: int) -> int:
    if value.shape is None:
        return _UNKNOWN_ELEMENTS
    sizes = [
        size if isinstance(size, int) else batch if axis == 0 else symbolic
        for axis, size in enumerate(value.shape)
    ]
    return math.prod(sizes)


def _computed(model: ir.Model) -> Iterator[ir.Value]:
    for node in model.graph:
        yield from (value for value in node.outputs if value.name and is_float(value))


def _weights(model: ir.Model) -> Iterator[ir.Value]:
    return (value for value in model.graph.initializers.values() if is_float(value))


def _of_weight(value: ir.Value) -> Range:
    array = constant(value)
    if (
        array is None and value.const_value is not None
    ):  # an initializer that is an input as well: its default
        array = value.const_value.numpy()
    assert array is not None
    return describe(array)


def _readers(model: ir.Model) -> dict[str, list[ir.Node]]:
    """Nodes that add up their first input, by that input."""
    found: dict[str, list[ir.Node]] = {}
    for node in model.graph:
        if node.op_type in accumulate.ACCUMULATING and node.inputs and is_float(node.inputs[0]):
            assert node.inputs[0] is not None
            found.setdefault(str(node.inputs[0].name), []).append(node)
    return found


def _add(ranges: dict[str, Range], name: str, found: Range) -> None:
    ranges[name] = _merged(ranges[name], found) if name in ranges else found


def _merged(a: Range, b: Range) -> Range:
    if not a.elements - a.unbounded or not b.elements - b.unbounded:
        whole = a if a.elements - a.unbounded else b
        return _with_counts(whole, a, b)
    m, n = a.elements - a.unbounded, b.elements - b.unbounded
    energy = m * a.mean_square + n * b.mean_square
    lost = m * a.mean_square * a.half_error**2 + n * b.mean_square * b.half_error**2
    return Range(
        low=min(a.low, b.low),
        high=max(a.high, b.high),
        max_abs=max(a.max_abs, b.max_abs),
        smallest=min((s for s in (a.smallest, b.smallest) if s), default=0.0),
        mean_abs=(m * a.mean_abs + n * b.mean_abs) / (m + n),
        mean_square=energy / (m + n),
        subnormal_share=(m * a.subnormal_share + n * b.subnormal_share) / (m + n),
        lost_share=(m * a.lost_share + n * b.lost_share) / (m + n),
        half_error=math.sqrt(lost / energy) if energy else 0.0,
        elements=a.elements + b.elements,
        unbounded=a.unbounded + b.unbounded,
        sums={name: max(a.sums.get(name, 0.0), b.sums.get(name, 0.0)) for name in (*a.sums, *b.sums)},
        divisors=_lowest(a.divisors, b.divisors),
        peaks=_lowest(a.peaks, b.peaks),
    )


def _with_counts(whole: Range, a: Range, b: Range) -> Range:
    return msgspec.structs.replace(
        whole, elements=a.elements + b.elements, unbounded=a.unbounded + b.unbounded
    )


def _known(figures: Mapping[str, float | None]) -> dict[str, float]:
    return {name: figure for name, figure in figures.items() if figure is not None}


def _lowest(a: Mapping[str, float], b: Mapping[str, float]) -> dict[str, float]:
    return {name: min(a.get(name, math.inf), b.get(name, math.inf)) for name in (*a, *b)}


def _share(magnitudes: np.ndarray, limit: float) -> float:
    return float((magnitudes < limit).mean()) if magnitudes.size else 0.0


def _share_after(found: Range, factor: float, limit: float) -> float:
    """1 or 0 by the root mean square: the distribution itself is not kept."""
    return float(0 < found.root_mean_square * factor < limit)


def _half_error(values: np.ndarray) -> float:
    import numpy as np

    size = float(np.square(values, dtype=np.float64).sum())
    if not size:
        return 0.0
    lost = values.astype(np.float16).astype(np.float64) - values
    return math.sqrt(float(np.square(lost).sum()) / size)
