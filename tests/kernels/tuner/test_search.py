import math
import random

import pytest

from wavefit.kernels.tuner.search import Candidate, Search, Strategy, run

Found = tuple[Candidate, float]


def space(seed: int = 0) -> list[Candidate]:
    """Tiles of two templates; the model errs by up to a factor of 2 either way."""
    rng = random.Random(seed)
    return [
        Candidate(
            {"m": m, "n": n, "k": k},
            seconds({"m": m, "n": n, "k": k}, group) * 2 ** rng.uniform(-1, 1),
            group,
        )
        for group in ("tiled", "direct")
        for m in (8, 16, 32, 64, 128)
        for n in (8, 16, 32, 64, 128)
        for k in (4, 8, 16, 32)
    ]


def seconds(parameters: dict[str, int], group: str) -> float:
    """Least at m 64, n 32, k 8 of the first template: 1 ms."""
    distance = sum(abs(math.log2(parameters[name] / best)) for name, best in (("m", 64), ("n", 32), ("k", 8)))
    return 1e-3 * (1.0 if group == "tiled" else 1.5) * 1.25**distance


def measure(candidate: Candidate) -> float | None:
    return seconds(dict(candidate.parameters), candidate.group)  # type: ignore[arg-type]


def optimum(search: Search) -> Found:
    assert search.best is not None
    return search.best


@pytest.mark.parametrize("seed", range(5))
def test_finds_the_optimum_in_a_fraction_of_the_space(seed: int) -> None:
    search = Search(space(seed), Strategy(seed=seed))
    run(search, measure, 50)
    best, found = optimum(search)
    assert (best.group, dict(best.parameters)) == ("tiled", {"m": 64, "n": 32, "k": 8})
    assert found == pytest.approx(1e-3)


def test_finds_the_optimum_without_a_model_too() -> None:
    search = Search(space(), Strategy(use_model=False))
    run(search, measure, 120)
    assert optimum(search)[1] == pytest.approx(1e-3)


def test_is_the_same_again_with_the_same_seed_and_another_with_another() -> None:
    orders = [
        [each.identity for each, _ in run(Search(space(), Strategy(seed=seed)), measure, 40)]
        for seed in (3, 3, 4)
    ]
    assert orders[0] == orders[1]
    assert orders[0] != orders[2]


def test_measures_each_candidate_once_and_all_in_the_end() -> None:
    candidates = space()
    search = Search([*candidates, *candidates], Strategy())
    done = run(search, measure, 10_000)
    assert len(done) == len({each.identity for each, _ in done}) == len(candidates) == 200
    assert search.finished
    assert search.ask() is None


def test_begins_with_the_models_favourites_of_every_template() -> None:
    candidates = space()
    first = [each for each, _ in run(Search(candidates, Strategy(first=2)), measure, 4)]
    for group in ("tiled", "direct"):
        ranked = sorted((each for each in candidates if each.group == group), key=lambda each: each.cost)
        assert [each for each in first if each.group == group] == ranked[:2]


def test_goes_on_where_everything_that_it_likes_fails() -> None:
    """Large tiles fail, and the model likes them best: the best of those that work is still found."""
    candidates = [
        Candidate(each.parameters, 1e-6 if each.parameters["m"] == 128 else each.cost, each.group)
        for each in space()
    ]

    def fails(candidate: Candidate) -> float | None:
        return None if candidate.parameters["m"] == 128 else measure(candidate)

    search = Search(candidates, Strategy())
    done = run(search, fails, 100)
    assert any(found is None for _, found in done)
    assert optimum(search)[1] == pytest.approx(1e-3)


def test_has_no_best_where_nothing_works() -> None:
    search = Search(space(), Strategy())
    assert len(run(search, lambda _: None, 1000)) == 200
    assert search.best is None


def test_loses_patience_only_after_the_favourites() -> None:
    search = Search(space(), Strategy(first=5, patience=3))
    done = run(search, lambda _: 1.0, 1000)
    assert len(done) == 10  # five of each template; no gain since the first


def test_what_was_measured_before_is_not_asked_for_again() -> None:
    first = Search(space(), Strategy())
    before = run(first, measure, 30)
    second = Search(space(), Strategy(seed=1))
    for each, found in before:
        second.tell(each, found)
    assert second.best == first.best
    after = run(second, measure, 1000)
    assert not {each.identity for each, _ in before} & {each.identity for each, _ in after}
    assert len(before) + len(after) == 200


def test_several_may_be_under_way() -> None:
    search = Search(space(), Strategy())
    asked = [search.ask() for _ in range(12)]
    assert len({each.identity for each in asked if each is not None}) == 12
    for each in reversed(asked):
        assert each is not None
        search.tell(each, measure(each))
    assert search.measured == 12


def test_a_winner_that_is_withdrawn_leaves_the_next_best() -> None:
    search = Search(space(), Strategy())
    done = run(search, measure, 30)
    ranked = sorted((found, each.identity) for each, found in done if found is not None)
    search.withdraw(optimum(search)[0])
    assert optimum(search)[1] == ranked[1][0]
    assert not {each.identity for each, _ in run(search, measure, 1000)} & {each.identity for each, _ in done}
    only = Search(space()[:1], Strategy())
    run(only, measure, 1)
    only.withdraw(optimum(only)[0])
    assert only.best is None


def test_refuses_to_be_told_of_another_space() -> None:
    with pytest.raises(KeyError):
        Search(space()).tell(Candidate({"m": 1}, 1.0, "tiled"), 1.0)


def test_an_empty_space_is_finished() -> None:
    assert Search([]).ask() is None


def test_what_is_withdrawn_is_no_longer_the_best() -> None:
    search = Search(space(), Strategy())
    run(search, measure, 60)
    first, best = optimum(search)
    search.withdraw(first)
    second, seconds_ = optimum(search)
    assert second.identity != first.identity
    assert seconds_ >= best
    for each in space():
        if each.identity != first.identity:
            search.tell(each, None)
            search.withdraw(each)
    assert search.best is None
