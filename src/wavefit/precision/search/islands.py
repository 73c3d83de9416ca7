"""The smallest set of nodes kept back with which a graph passes: grown by attributed error, then shrunk again.

Shrinking is ddmin (Zeller and Hildebrandt, Simplifying and isolating failure-inducing input, 2002): halves, quarters,
and so on down to single nodes are released while the graph still passes. What is left is 1-minimal: no single node of
it can be released.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

Passes = Callable[[frozenset[str]], bool]

BUDGET = 200
"""Evaluations of one search: ddmin takes about 2 k log2(n/k) for k nodes that must stay out of n."""


class _Spent(Exception):
    """The budget is spent."""


class _Asked:
    """Asks no set twice and not without end, and remembers the smallest set that passed."""

    def __init__(self, passes: Passes, allows: Callable[[int], bool], everything: frozenset[str]) -> None:
        self._passes = passes
        self._allows = allows  # another evaluation after so many
        self._known: dict[frozenset[str], bool] = {
            everything: True
        }  # with everything kept nothing is lowered
        self.best = everything
        self.count = 0

    def __call__(self, kept: frozenset[str]) -> bool:
        if kept not in self._known:
            if not self._allows(self.count):
                raise _Spent
            self.count += 1
            self._known[kept] = self._passes(kept)
            if self._known[kept] and len(kept) < len(self.best):
                self.best = kept
        return self._known[kept]


def smallest(
    nodes: Sequence[str],
    passes: Passes,
    start: frozenset[str],
    order: Sequence[str],
    say: Callable[[str], None],
    left_s: Callable[[], float] = lambda: math.inf,
    budget: int = BUDGET,
) -> frozenset[str]:
    """The smallest set kept back, found so far, with which ``passes`` says yes.

    ``start`` is released like every other node where ``passes`` allows it. Whoever wants a node kept whatever the
    held-out data say leaves it out of ``nodes`` and ``start``, and adds it in ``passes``.

    Args:
        nodes: all that may be kept back. All of them kept is taken to pass, and is not asked.
        passes: whether the answers stand with those nodes kept back and all other ones lowered.
        start: kept back at first: what the numbers say cannot be lowered.
        order: nodes by how much they are to blame, most first; the ones that it leaves out come last.
        say: told how it went, and that it ended early where the budget was spent.
        left_s: seconds left; none is begun where there are none.
        budget: most evaluations.
    """
    everything = frozenset(nodes)
    ask = _Asked(passes, lambda count: count < budget and left_s() > 0, everything)
    ranked = [node for node in dict.fromkeys((*order, *nodes)) if node in everything]
    end = ""
    try:
        _shrink(ask, _grow(ask, start & everything, ranked), ranked)
    except _Spent:
        end = "; ended early, fewer might do"
    say(f"islands: {len(ask.best)} of {len(everything)} nodes kept back, {ask.count} evaluations{end}")
    return ask.best


def _grow(ask: _Asked, start: frozenset[str], ranked: Sequence[str]) -> frozenset[str]:
    """``start`` and as few of the most to blame as make it pass: their number is doubled, then bisected."""
    more = [node for node in ranked if node not in start]
    fails, count = -1, 0
    while not ask(start | frozenset(more[:count])):
        fails, count = count, min(max(1, 2 * count), len(more))
    while count - fails > 1:
        middle = (fails + count) // 2
        if ask(start | frozenset(more[:middle])):
            count = middle
        else:
            fails = middle
    return start | frozenset(more[:count])


def _shrink(ask: _Asked, kept: frozenset[str], ranked: Sequence[str]) -> None:
    """Releases chunks, the least to blame first, until neither a node, a quarter nor a half can be released."""
    parts = 1
    while parts < len(kept):
        kept = _release(ask, kept, ranked, parts)
        parts *= 2
    while True:
        smaller = _release(ask, kept, ranked, len(kept))
        for parts in (1, 2, 4):
            if smaller == kept:
                smaller = _release(ask, kept, ranked, parts)
        if smaller == kept:
            return
        kept = smaller


def _release(ask: _Asked, kept: frozenset[str], ranked: Sequence[str], parts: int) -> frozenset[str]:
    """``kept`` without those of its ``parts`` chunks that can be released one after another."""
    items = [node for node in reversed(ranked) if node in kept]
    size = -(-len(items) // max(parts, 1)) or 1
    for first in range(0, len(items), size):
        smaller = kept - frozenset(items[first : first + size])
        if ask(smaller):
            kept = smaller
    return kept
