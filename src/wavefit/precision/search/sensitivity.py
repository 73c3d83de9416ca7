"""How far the outputs move when one node alone is lowered: which layers a search should look at first."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from wavefit.precision.graph import nodes as by_name
from wavefit.precision.search.evaluate import Judge, Judgement
from wavefit.schema import Sensitivity

if TYPE_CHECKING:
    import onnx_ir as ir

BUDGET = 96
"""Evaluations that are taken at most."""


def measure(
    model: ir.Model,
    nodes: Sequence[str],
    lower: Callable[[frozenset[str]], ir.Model],
    judge: Judge,
    say: Callable[[str], None],
    budget: int = BUDGET,
) -> tuple[Sensitivity, ...]:
    """The relative L2 error of the outputs on held-out data with each node lowered by itself, in the order given.

    Where there are more nodes than evaluations, neighbours are lowered together, and the group with the largest error
    is halved again and again. A node of a group that was never taken apart has the error of its group.

    Args:
        nodes: names of those that may be lowered, in the graph's order.
        lower: the graph with exactly these nodes lowered.
        judge: its reference's items are run; the metric is not taken.
        budget: evaluations at most, at least 1.
    """
    looks = _Looks(lower, judge, say, min(budget, len(nodes)))
    for group in _groups(tuple(nodes), budget):
        looks.at(group)
    while looks.taken + 2 <= budget and (worst := looks.worst()) is not None:
        looks.halve(worst)
    errors = {name: _known(found.size) for group, found in looks.groups.items() for name in group}
    known = by_name(model)
    return tuple(Sensitivity(node=name, op=known[name].op_type, error=errors[name]) for name in nodes)


@dataclass
class _Looks:
    """What is known of groups of nodes, each lowered alone."""

    lower: Callable[[frozenset[str]], ir.Model]
    judge: Judge
    say: Callable[[str], None]
    most: int
    taken: int = 0
    groups: dict[tuple[str, ...], Judgement] = field(default_factory=dict)

    def at(self, group: tuple[str, ...]) -> None:
        self.taken += 1
        self.say(f"sensitivity: evaluation {self.taken} of at most {self.most}")
        self.groups[group] = self.judge.numbers(self.lower(frozenset(group)), "int8")

    def worst(self) -> tuple[str, ...] | None:
        """The group of several nodes with the largest error."""
        several = (group for group in self.groups if len(group) > 1)
        return max(several, key=lambda group: self.groups[group].size, default=None)

    def halve(self, group: tuple[str, ...]) -> None:
        del self.groups[group]
        middle = len(group) // 2
        self.at(group[:middle])
        self.at(group[middle:])


def _known(size: float) -> float | None:
    return size if math.isfinite(size) else None


def _groups(nodes: tuple[str, ...], budget: int) -> list[tuple[str, ...]]:
    """Single nodes where the budget lets them be; else groups of neighbours for half of it."""
    if len(nodes) <= budget:
        return [(name,) for name in nodes]
    wanted = max(1, budget // 2)
    ends = [round(number * len(nodes) / wanted) for number in range(wanted + 1)]
    return [nodes[start:end] for start, end in itertools.pairwise(ends) if end > start]
