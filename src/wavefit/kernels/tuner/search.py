"""Which candidate to measure next: the model's favourites, what it says once corrected, and now and then another one.

The order of the model decides first. Then the model is corrected by what was measured: the ratio of measured to
predicted time is shared out among the values of the parameters, which tells of candidates that nobody measured
(ridge regression of the logarithms on one-hot parameters: Hoerl and Kennard, Technometrics 12, 1970).

Tried on recorded spaces and left out: neighbours of the best in one parameter, which find no more.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

Parameters = Mapping[str, int | str]

_BETTER = 0.99  # times the best: less of a gain is noise
_RIDGE = 2.0
_FAILED = 8.0  # times slower than the model had it: what the correction takes from a candidate that failed
_AFAR = 0.05  # of the steps: a candidate drawn from all that are left, for where the model errs about all it likes


@dataclass(frozen=True)
class Candidate:
    """Something to measure.

    Args:
        parameters: equal ones are one candidate.
        cost: predicted; any unit, only ratios matter.
        group: of the candidates that the model ranks among each other well: a template's.
    """

    parameters: Parameters
    cost: float
    group: str = ""

    @property
    def identity(self) -> tuple[object, ...]:
        return (self.group, *sorted(self.parameters.items()))


@dataclass(frozen=True)
class Strategy:
    """How a search goes.

    Args:
        first: candidates of every group that are measured in the model's order before anything else.
        hopeless: a group is passed over in that where its cheapest costs so many times the cheapest of all.
        patience: measurements without a gain after which it ends; None: it never does.
        use_model: whether the predicted costs are looked at; without, the order is random.
        seed: of what is drawn.
    """

    first: int = 2
    hopeless: float = 4.0
    patience: int | None = None
    use_model: bool = True
    seed: int = 0


@dataclass
class Search:
    """Asked for a candidate, told its time; several may be under way at once.

    Args:
        candidates: the space; of equal ones the first counts.
        strategy: how to go through it.
    """

    candidates: Sequence[Candidate]
    strategy: Strategy = field(default_factory=Strategy)

    def __post_init__(self) -> None:
        distinct = {each.identity: each for each in reversed(self.candidates)}
        self.candidates = sorted(distinct.values(), key=lambda each: (each.cost, repr(each.identity)))
        self._number = {each.identity: n for n, each in enumerate(self.candidates)}
        self._random = random.Random(self.strategy.seed)
        self._order = self._first_order()
        self._asked: set[int] = set()
        self._told: dict[int, float | None] = {}
        self._features = _one_hot(self.candidates)
        self._since_gain = 0
        self.best: tuple[Candidate, float] | None = None

    def _first_order(self) -> list[int]:
        """The first few of every group, turn by turn, the group with the cheapest candidate first."""
        if not self.strategy.use_model:
            everyone = list(range(len(self.candidates)))
            self._random.shuffle(everyone)
            return everyone[: self.strategy.first]
        groups: dict[str, list[int]] = {}
        for number, each in enumerate(self.candidates):
            groups.setdefault(each.group, []).append(number)
        most = self.strategy.hopeless * self.candidates[0].cost if self.candidates else 0.0
        hopeful = [group for group in groups.values() if self.candidates[group[0]].cost <= most]
        return [group[turn] for turn in range(self.strategy.first) for group in hopeful if turn < len(group)]

    @property
    def measured(self) -> int:
        """How many candidates it was told of."""
        return len(self._told)

    @property
    def finished(self) -> bool:
        """Whether every candidate was asked for, or patience has run out."""
        patience = self.strategy.patience
        tired = patience is not None and self._since_gain >= patience and self._first_left() is None
        return tired or len(self._asked | self._told.keys()) == len(self.candidates)

    def ask(self) -> Candidate | None:
        """The next candidate; None where it has finished."""
        if self.finished:
            return None
        number = self._first_left()
        if number is None:
            number = self._next()
        self._asked.add(number)
        return self.candidates[number]

    def tell(self, candidate: Candidate, seconds: float | None) -> None:
        """What came of a candidate, asked for or known from before; None: it failed.

        Raises:
            KeyError: it is none of the space.
        """
        self._told[self._number[candidate.identity]] = seconds
        gained = seconds is not None and (self.best is None or seconds < _BETTER * self.best[1])
        self._since_gain = 0 if gained else self._since_gain + 1
        if seconds is not None and (self.best is None or seconds < self.best[1]):
            self.best = candidate, seconds

    def withdraw(self, candidate: Candidate) -> None:
        """Takes back what was told of a candidate: it counts as one that failed."""
        self._told[self._number[candidate.identity]] = None
        worked = [(seconds, number) for number, seconds in self._told.items() if seconds is not None]
        self.best = (self.candidates[min(worked)[1]], min(worked)[0]) if worked else None

    def _first_left(self) -> int | None:
        return next((n for n in self._order if n not in self._asked and n not in self._told), None)

    def _next(self) -> int:
        left = [n for n in range(len(self.candidates)) if n not in self._asked and n not in self._told]
        if self._random.random() < _AFAR:
            return self._random.choice(left)
        expected = self._expected()
        return min(left, key=lambda n: (expected[n], n))

    def _expected(self) -> np.ndarray:
        """The logarithm of each candidate's time: the model's, corrected by what was measured."""
        costs = np.array([each.cost if self.strategy.use_model else 1.0 for each in self.candidates])
        predicted = np.log(np.maximum(costs, 1e-12))
        if not self._told:
            return predicted
        rows = sorted(self._told)
        seconds = [self._told[n] for n in rows]
        worst = max((s for s in seconds if s is not None), default=1.0)
        measured = np.array([math.log(_FAILED * worst if s is None else max(s, 1e-12)) for s in seconds])
        off = measured - predicted[rows]
        x = self._features[rows]
        mean = off.mean()
        kernel = x @ x.T + _RIDGE * np.eye(len(rows))
        return predicted + mean + self._features @ (x.T @ np.linalg.solve(kernel, off - mean))


def _one_hot(candidates: Sequence[Candidate]) -> np.ndarray:
    """A column for every group and for every value of a parameter of it."""
    columns: dict[tuple[object, ...], int] = {}
    held = []
    for each in candidates:
        names = [(each.group,), *((each.group, *pair) for pair in sorted(each.parameters.items()))]
        held.append([columns.setdefault(name, len(columns)) for name in names])
    features = np.zeros((len(candidates), len(columns)))
    for row, mine in enumerate(held):
        features[row, mine] = 1.0
    return features


def run(
    search: Search, measure: Callable[[Candidate], float | None], evaluations: int
) -> list[tuple[Candidate, float | None]]:
    """Measures one candidate after another.

    Returns:
        What was measured, in order.
    """
    done: list[tuple[Candidate, float | None]] = []
    while len(done) < evaluations:
        candidate = search.ask()
        if candidate is None:
            break
        done.append((candidate, measure(candidate)))
        search.tell(*done[-1])
    return done
