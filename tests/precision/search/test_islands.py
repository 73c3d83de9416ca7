"""The smallest set that passes, where that set is known."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from wavefit.precision.search.islands import smallest

NODES = [f"n{i}" for i in range(200)]


class Needs:
    """Passes where all of ``needed`` are kept; counts how often it is asked."""

    def __init__(self, *needed: str) -> None:
        self.needed = frozenset(needed)
        self.asked = 0

    def __call__(self, kept: frozenset[str]) -> bool:
        self.asked += 1
        return self.needed <= kept


@pytest.mark.parametrize("needed", [(), ("n7",), ("n3", "n4", "n150"), tuple(NODES[60:70])])
@pytest.mark.parametrize("start", [(), ("n3", "n4", "n5"), tuple(NODES)])
@pytest.mark.parametrize("seed", [None, 0])
def test_finds_exactly_what_is_needed(
    needed: tuple[str, ...], start: tuple[str, ...], seed: int | None
) -> None:
    order = list(NODES)
    if seed is not None:
        random.Random(seed).shuffle(order)
    passes = Needs(*needed)
    assert smallest(NODES, passes, frozenset(start), order, quiet) == frozenset(needed)
    assert passes.asked <= 200


def test_a_right_start_is_only_confirmed() -> None:
    passes = Needs("n3", "n4")
    assert smallest(NODES, passes, frozenset(("n3", "n4")), [], quiet) == {"n3", "n4"}
    assert passes.asked <= 4  # the start, nothing kept, and each of the two released


def test_a_good_order_saves_evaluations() -> None:
    needed = tuple(NODES[180:184])
    good, bad = Needs(*needed), Needs(*needed)
    first = [*needed, *NODES]
    assert smallest(NODES, good, frozenset(), first, quiet) == smallest(NODES, bad, frozenset(), NODES, quiet)
    assert good.asked < bad.asked / 2


def test_either_of_two_is_enough() -> None:
    def passes(kept: frozenset[str]) -> bool:
        return "n5" in kept or "n9" in kept

    assert smallest(NODES, passes, frozenset(("n5", "n9")), ["n9", "n5"], quiet) == {"n9"}


def test_nodes_that_only_go_together_are_released_together() -> None:
    def passes(kept: frozenset[str]) -> bool:  # keeping one of the pair alone is worse than keeping neither
        return ("n5" in kept) == ("n9" in kept)

    assert smallest(NODES, passes, frozenset(("n5", "n9")), [], quiet) == frozenset()


def test_nothing_passes_but_everything() -> None:
    nodes = NODES[:8]
    assert smallest(nodes, lambda kept: len(kept) == 8, frozenset(), nodes, quiet) == frozenset(nodes)


def test_says_that_it_ended_early_and_returns_what_passed() -> None:
    said: list[str] = []
    passes = Needs(*NODES[::10])
    found = smallest(NODES, passes, frozenset(), NODES, said.append, budget=10)
    assert passes.asked == 10
    assert passes.needed <= found
    assert "ended early" in said[-1]
    assert "10 evaluations" in said[-1]


def test_asks_about_no_set_twice() -> None:
    seen: list[frozenset[str]] = []

    def passes(kept: frozenset[str]) -> bool:
        seen.append(kept)
        return {"n1", "n60", "n61"} <= kept

    smallest(NODES, passes, frozenset(), NODES, quiet)
    assert len(seen) == len(set(seen))


def test_no_nodes() -> None:
    never: Callable[[frozenset[str]], bool] = lambda kept: False  # noqa: E731
    assert smallest([], never, frozenset(("x",)), [], quiet) == frozenset()


def quiet(_: str) -> None:
    pass


def test_no_evaluation_is_begun_without_time_and_the_smallest_that_passed_is_given() -> None:
    left = iter([9.0, 9.0, 9.0, 0.0])
    asked: list[frozenset[str]] = []

    def passes(kept: frozenset[str]) -> bool:
        asked.append(kept)
        return len(kept) >= 2

    said: list[str] = []
    found = smallest(NODES, passes, frozenset(), NODES, said.append, lambda: next(left))
    assert len(asked) == 3
    assert len(found) == min(len(kept) for kept in asked if len(kept) >= 2)
    assert "ended early" in said[-1]
