import math
from pathlib import Path
from statistics import geometric_mean

import pytest

from wavefit.errors import InputError
from wavefit.kernels.tuner.search import Strategy
from wavefit.kernels.tuner.simulate import Measured, Replay, Space, load, save, trace

# As measured: on one NVIDIA H200 through its OpenCL, what the model ranked first of three operations; on a shared
# machine's PoCL, the tiles of one product, with every third that the templates leave out, and the ways of one
# convolution, which no constant of the search was chosen by.
SPACES = sorted(Path(__file__).parent.glob("*.json"))


def test_a_trace_is_the_best_so_far_and_goes_on() -> None:
    assert trace([None, 3.0, 4.0, 2.0], 6) == [math.inf, 3.0, 3.0, 2.0, 2.0, 2.0]
    assert trace([3.0, 1.0], 1) == [3.0]
    assert trace([], 2) == [math.inf, math.inf]


@pytest.mark.parametrize("path", SPACES, ids=lambda path: path.stem)
def test_the_whole_space_ends_in_its_best(path: Path) -> None:
    rows = [each.seconds for each in load(path).candidates if not each.pruned]
    best = min(each for each in rows if each is not None)
    replay = Replay(load(path))
    assert replay.ours(Strategy(seed=1), len(rows))[-1] == best
    assert replay.random(1, len(rows))[-1] == best


@pytest.mark.parametrize("evaluations", [5, 10, 20])
def test_beats_random_search_on_a_gpu(evaluations: int) -> None:
    """The geometric mean over spaces and seeds of the time found; left out is PoCL, whose CPU the model is not of."""
    ours, drawn = [], []
    for space in (load(path) for path in SPACES if path.stem.startswith("h200")):
        replay = Replay(space)
        ours += [replay.ours(Strategy(seed=seed), evaluations)[-1] / space.best for seed in range(8)]
        drawn += [replay.random(seed, evaluations)[-1] / space.best for seed in range(40)]
    assert geometric_mean(ours) < geometric_mean(drawn)


@pytest.mark.parametrize("pruned", [True, False])
@pytest.mark.parametrize("evaluations", [5, 10, 20])
def test_beats_random_search_where_it_was_not_tried_before(evaluations: int, pruned: bool) -> None:
    replay = Replay(load(SPACES[0].parent / "pocl_conv.json"), pruned)
    ours = [replay.ours(Strategy(seed=seed), evaluations)[-1] for seed in range(8)]
    assert geometric_mean(ours) < geometric_mean(replay.random(seed, evaluations)[-1] for seed in range(40))


def test_pruning_hides_what_was_pruned() -> None:
    rows = (
        Measured(parameters={"tile": 8}, cost=1.0, seconds=2.0),
        Measured(parameters={"tile": 16}, cost=1.0, seconds=1.0, pruned=True),
    )
    space = Space(name="s", device="d", candidates=rows)
    assert space.best == 1.0
    assert Replay(space, pruned=True).ours(Strategy(), 5)[-1] == 2.0
    assert Replay(space, pruned=False).ours(Strategy(), 5)[-1] == 1.0


def test_comes_back_from_its_file(tmp_path: Path) -> None:
    space = Space(
        name="s",
        device="d",
        candidates=(Measured(parameters={"tile": 8}, cost=1.0, seconds=None, group="g", pruned=True),),
    )
    save(space, tmp_path / "space.json")
    assert load(tmp_path / "space.json") == space


def test_says_which_file_is_no_space(tmp_path: Path) -> None:
    path = tmp_path / "space.json"
    path.write_text('{"name": "s"}')
    with pytest.raises(InputError, match=r"space\.json"):
        load(path)
