"""What one value of a graph holds: its range, what half loses of it, and what sums over it reach."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from wavefit.precision.half import accumulate
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

_MOMENT_ELEMENTS = 1 << 18  # of one array, evenly over it, that moments and shares are taken from


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


def describe(array: np.ndarray, readers: Iterable[ir.Node] = ()) -> Range:
    """The range of one array, its moments and shares from a part of it where it is large.

    ``readers`` are the nodes that take it as their first input and add it up.
    """
    import numpy as np

    wide = array.astype(np.float32, copy=False).reshape(-1)
    low, high = (float(wide.min()), float(wide.max())) if wide.size else (0.0, 0.0)
    if not math.isfinite(high - low):
        wide = wide[np.isfinite(wide)]
        low, high = (float(wide.min()), float(wide.max())) if wide.size else (0.0, 0.0)
    some = wide[:: max(1, wide.size // _MOMENT_ELEMENTS) | 1]  # odd: no multiple of a power of two channels
    size = np.abs(some)
    used = size[size > 0]
    sums = {str(node.name): accumulate.largest_sum(node, array) for node in readers}
    divisors = {str(node.name): accumulate.smallest_divisor(node, array) for node in readers}
    peaks = {str(node.name): accumulate.lowest_peak(node, array) for node in readers}
    return Range(
        low=low,
        high=high,
        max_abs=max(high, -low),
        smallest=_smallest(wide, low, high),
        mean_abs=float(size.mean(dtype=np.float64)) if size.size else 0.0,
        mean_square=float(np.square(size, dtype=np.float64).mean()) if size.size else 0.0,
        subnormal_share=_share(used, HALF_SMALLEST_NORMAL),
        lost_share=_share(used, HALF_SMALLEST),
        half_error=_half_error(some[size <= HALF_MAX]),
        elements=int(array.size),
        unbounded=int(array.size - wide.size),
        sums=_known(sums),
        divisors=_known(divisors),
        peaks=_known(peaks),
    )


def merged(a: Range, b: Range) -> Range:
    """The range of both together."""
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


def _smallest(values: np.ndarray, low: float, high: float) -> float:
    """The smallest non-zero magnitude; 0 where there is none."""
    import numpy as np

    if low > 0 or high < 0:
        return min(abs(low), abs(high))
    sizes = np.abs(values)
    found = float(sizes.min(initial=math.inf, where=sizes > 0))
    return found if math.isfinite(found) else 0.0


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
