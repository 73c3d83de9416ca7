"""How far a candidate's outputs are from the reference, and in words what is wrong with them.

The error of an item is its relative L2 distance, ``|c - d| / max(|d|, rms / 10)`` with the root mean square of all
items' norms, so that an item that is nearly zero is held to the size of its neighbours. The worst item counts, so
that one wrong position in a large batch is not averaged away. What is allowed is said in :mod:`wavefit.guard.limits`.

No single element may be off by more than 8 times the allowed share of its item's largest value: the largest of 10^8
normal errors is 6 times their root mean square, so this only finds what is not rounding, as a corrupted tile.
Where all that is fine, no channel may be lost: see :mod:`wavefit.guard.lost`.
Other outputs (integers, booleans, text) must be equal in fp32, and in 99 % of elements in lower precisions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from wavefit.guard.limits import Limits
from wavefit.guard.lost import Channels
from wavefit.schema import OutputError

_SPIKE = 8.0
_SMALL_ITEM = 0.1  # of the root mean square of all items' norms
_SAME_SHARE = 0.99  # of integer elements, in lower precisions
_EQUAL_ROWS = 1e-6  # relative


@dataclass(frozen=True)
class Comparison:
    """One output's errors, and in words what is wrong with it and what could not be proven."""

    error: OutputError
    reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass
class Tally:
    """Gathers one output's errors batch by batch, so that no batch has to be kept.

    Args:
        name: the output's.
        limits: what is allowed.
        reference: the fp32 reference for all items, or for the first batch: gives the size of an ordinary item.
    """

    name: str
    limits: Limits
    reference: np.ndarray
    _elements: int = 0
    _rel: float = 0.0
    _rel_exact: float | None = None
    _ref_exact: float | None = None
    _max_abs: float = 0.0
    _spike: float = 0.0  # largest error of an element over the largest value of its item
    _cosine: float = 1.0
    _rows: int = 0
    _agreeing: int = 0
    _differing: int = 0  # integer elements
    _nan: int = 0
    _inf: int = 0
    _new_bad: int = 0  # NaN or Inf where the reference is finite, or the other way round
    _reference_bad: int = 0
    _worst: int = 0
    _items: int = 0
    _shapes: list[str] = field(default_factory=list)
    _channels: Channels = field(default_factory=Channels)
    _rms: float = field(init=False)

    def __post_init__(self) -> None:
        self._rms = _rms_norm(self.reference)

    def add(self, actual: np.ndarray | None, expected: np.ndarray, exact: np.ndarray | None) -> None:
        """Compares one batch.

        Args:
            actual: the candidate's output; None where it is missing.
            expected: the fp32 reference for the same positions.
            exact: float64 for the first of these positions, or None.
        """
        if actual is None or actual.shape != expected.shape:
            self._shapes.append(
                "is missing" if actual is None else f"has shape {actual.shape}, not {expected.shape}"
            )
            return
        self._elements += expected.size
        if not is_float(expected):
            self._differing += int((actual != expected).sum())
            return
        rows, wanted = _items(actual), _items(expected)
        true = _items(exact) if exact is not None else wanted[:0]
        for index, (have, want) in enumerate(zip(rows, wanted, strict=True)):
            self._add_item(have, want, true[index] if index < len(true) else None)
            self._items += 1
        self._add_classes(actual, expected)
        self._channels.add(actual, expected, exact)

    def _add_item(self, actual: np.ndarray, expected: np.ndarray, exact: np.ndarray | None) -> None:
        have, want = actual.astype(np.float64).ravel(), expected.astype(np.float64).ravel()
        self._nan += int(np.isnan(have).sum())
        self._inf += int(np.isinf(have).sum())
        fine = np.isfinite(want)
        self._reference_bad += int((~fine).sum())
        good = fine & np.isfinite(have)
        same_bad = ~fine & ((np.isnan(want) & np.isnan(have)) | (want == have))
        self._new_bad += int((~good & ~same_bad).sum())
        if not good.all():
            have, want = have[good], want[good]
        difference = np.abs(have - want)
        size = float(np.linalg.norm(want))
        rel = _relative(float(np.linalg.norm(difference)), size, self._rms)
        if rel > self._rel:
            self._rel, self._worst = rel, self._items
        largest = float(difference.max(initial=0.0))
        self._max_abs = max(self._max_abs, largest)
        ordinary = self._rms / math.sqrt(max(1, want.size))
        self._spike = max(self._spike, _relative(largest, float(np.abs(want).max(initial=0.0)), ordinary))
        if size > 0:
            length = size * float(np.linalg.norm(have))
            self._cosine = min(self._cosine, float(have @ want) / length if length > 0 else 0.0)
        if exact is not None:
            self._add_exact(have, want, exact.ravel()[good])

    def _add_exact(self, have: np.ndarray, want: np.ndarray, exact: np.ndarray) -> None:
        size = float(np.linalg.norm(exact))
        mine = _relative(float(np.linalg.norm(have - exact)), size, self._rms)
        theirs = _relative(float(np.linalg.norm(want - exact)), size, self._rms)
        self._rel_exact = max(self._rel_exact or 0.0, mine)
        self._ref_exact = max(self._ref_exact or 0.0, theirs)

    def _add_classes(self, actual: np.ndarray, expected: np.ndarray) -> None:
        if expected.ndim < 2 or expected.shape[-1] < 2 or not expected.size:
            return
        same = actual.argmax(-1) == expected.argmax(-1)
        self._rows += same.size
        self._agreeing += int(same.sum())

    def result(self) -> Comparison:
        """The errors over everything added, the reasons against the candidate, and what was not proven."""
        exact = not is_float(self.reference)
        measured = not self._shapes and not exact and self._items > 0
        error = OutputError(
            output=self.name,
            elements=self._elements,
            rel_l2=self._rel if measured else None,
            rel_l2_float64=self._rel_exact,
            reference_rel_l2_float64=self._ref_exact,
            allowed_rel_l2=self.limits.allowed(self._ref_exact) if measured else None,
            cosine=self._cosine if measured else None,
            max_abs=self._max_abs if measured else None,
            argmax_agreement=self._agreeing / self._rows if self._rows else None,
            nan=self._nan,
            inf=self._inf,
            all_equal=all_equal(self.reference),
        )
        return Comparison(error, tuple(self._reasons(exact)), tuple(self._warnings(error)))

    def _reasons(self, exact: bool) -> list[str]:
        where = f"output {self.name!r}"
        if self._shapes:
            return [f"{where} {self._shapes[0]}"]
        reasons = []
        if exact and self._differing > self._elements * (1 - self._same_share):
            share = self._differing / self._elements
            reasons.append(f"{where}: {self._differing} of {self._elements} elements differ ({share:.2%})")
        if self._new_bad:
            reasons.append(
                f"{where} has {self._nan} NaN and {self._inf} Inf, {self._new_bad} elements unlike the reference"
            )
        allowed = self.limits.allowed(self._ref_exact)
        if self._rel_exact is not None and self._rel_exact > allowed:
            reasons.append(
                f"{where} is {self._rel_exact:.2e} (relative L2) from float64, {self.limits.precision} may be "
                f"{allowed:.2e} (the fp32 reference is {self._ref_exact:.2e})"
            )
        elif self._rel > allowed + (self._ref_exact or 0.0):
            reasons.append(
                f"{where} is {self._rel:.2e} (relative L2) from the fp32 reference at sample {self._worst}, "
                f"{self.limits.precision} may be {allowed:.2e}"
            )
        elif self._spike > _SPIKE * (allowed + (self._ref_exact or 0.0)):
            reasons.append(
                f"{where} has an element off by {self._max_abs:.2e}, {self._spike:.1e} of its sample's largest value, "
                "more than rounding explains"
            )
        lost = self._channels.reason(self.limits) if not reasons else None
        return [f"{where} {lost}"] if lost is not None else reasons

    @property
    def _same_share(self) -> float:
        return 1.0 if self.limits.precision == "fp32" else _SAME_SHARE

    def _warnings(self, error: OutputError) -> list[str]:
        where = f"output {self.name!r}"
        warnings = []
        if error.all_equal:
            warnings.append(f"{where} is the same for every sample: comparing it proves nothing")
        if self._reference_bad:
            warnings.append(
                f"{where}: {self._reference_bad} elements are NaN or Inf in the reference itself and were left out"
            )
        if error.argmax_agreement is not None and error.argmax_agreement < 1:
            warnings.append(f"{where}: the top class differs in {1 - error.argmax_agreement:.1%} of rows")
        if self._differing:
            warnings.append(f"{where}: {self._differing} of {self._elements} integers differ")
        return warnings


def compare(
    actual: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray], limits: Limits
) -> tuple[Comparison, ...]:
    """One batch against the fp32 reference, output by output."""
    found = []
    for name, want in expected.items():
        tally = Tally(name, limits, want)
        tally.add(actual.get(name), want, None)
        found.append(tally.result())
    return tuple(found)


def all_equal(reference: np.ndarray) -> bool:
    """Whether all items on axis 0 are the same to 1e-6 of the largest value; of one item, whether its elements are."""
    rows = reference if reference.ndim and len(reference) > 1 else reference.reshape(-1)
    if len(rows) < 2 or not is_float(reference):
        return len(rows) > 1 and bool((rows == rows[0]).all())
    values = rows.astype(np.float64)
    largest = float(np.abs(values[np.isfinite(values)]).max(initial=0.0))
    return bool(np.isclose(values, values[:1], rtol=0, atol=_EQUAL_ROWS * largest, equal_nan=True).all())


def is_float(array: np.ndarray) -> bool:
    """Whether an output is compared by distance: float16 to float64, bfloat16, float8."""
    return array.dtype.kind == "f" or array.dtype.name.startswith(("bfloat", "float"))


def _items(array: np.ndarray) -> np.ndarray:
    return array if array.ndim else array.reshape(1)


def _rms_norm(reference: np.ndarray) -> float:
    """Root mean square of the items' L2 norms, NaN and Inf left out."""
    if not is_float(reference) or not reference.size:
        return 0.0
    values = _items(reference).astype(np.float64)
    values = np.where(np.isfinite(values), values, 0.0)
    return float(np.linalg.norm(values)) / math.sqrt(len(values))


def _relative(error: float, size: float, ordinary: float) -> float:
    """Error over size, an item's size being at least a tenth of an ordinary one's."""
    scale = max(size, _SMALL_ITEM * ordinary)
    if error == 0:
        return 0.0
    return error / scale if scale > 0 else math.inf
