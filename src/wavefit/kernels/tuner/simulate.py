"""Searches replayed on spaces that were measured once: how soon each finds how good a candidate."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from wavefit.kernels.tuner.search import Candidate, Search, Strategy, run
from wavefit.schema import Struct, decode


class Measured(Struct, frozen=True, kw_only=True):
    """One candidate of a recorded space."""

    parameters: dict[str, int | str]
    cost: float
    seconds: float | None  # None: it failed or was wrong
    group: str = ""
    pruned: bool = False  # the device's limits leave it out


class Space(Struct, frozen=True, kw_only=True):
    """Every candidate of one operation, measured on one device."""

    name: str
    device: str
    candidates: tuple[Measured, ...]

    @property
    def best(self) -> float:
        """Seconds of the fastest.

        Raises:
            ValueError: none worked.
        """
        return min(each.seconds for each in self.candidates if each.seconds is not None)


@dataclass(frozen=True)
class Replay:
    """A recorded space as a search sees it.

    Args:
        space: what was measured.
        pruned: whether what the device's limits leave out is left out.
    """

    space: Space
    pruned: bool = True

    @property
    def _rows(self) -> Sequence[Measured]:
        return [each for each in self.space.candidates if not (self.pruned and each.pruned)]

    def ours(self, strategy: Strategy, evaluations: int) -> list[float]:
        """See :func:`trace`; of wavefit's search."""
        rows = {self._candidate(row).identity: row.seconds for row in self._rows}
        search = Search([self._candidate(row) for row in self._rows], strategy)
        return trace(
            [seconds for _, seconds in run(search, lambda each: rows[each.identity], evaluations)],
            evaluations,
        )

    def random(self, seed: int, evaluations: int) -> list[float]:
        """See :func:`trace`; of candidates drawn without replacement."""
        drawn = [row.seconds for row in self._rows]
        random.Random(seed).shuffle(drawn)
        return trace(drawn[:evaluations], evaluations)

    @staticmethod
    def _candidate(row: Measured) -> Candidate:
        return Candidate(row.parameters, row.cost, row.group)


def trace(seconds: Sequence[float | None], evaluations: int) -> list[float]:
    """The best time after 1, 2, ... evaluations; infinite before any worked; the last one on where a search ended."""
    best, found = math.inf, []
    for one in seconds[:evaluations]:
        best = best if one is None else min(best, one)
        found.append(best)
    return found + [best] * (evaluations - len(found))


def load(path: Path) -> Space:
    """A recorded space.

    Raises:
        InputError: it is none.
    """
    return decode(path.read_bytes(), Space, str(path))


def save(space: Space, path: Path) -> None:
    path.write_bytes(msgspec.json.encode(space) + b"\n")
