"""Which search finds a fast kernel in few evaluations: replayed on recorded spaces, all searches on the same ones.

    PYTHONPATH=src python benchmarks/tuner.py SPACE.json ... [--evaluations 50] [--seeds 20]

Spaces are made by ``tuner_record.py``; some lie in tests/kernels/tuner/. A row gives, after 5, 10, 20, ...
evaluations, the best time found over the best of the whole space, the geometric mean over spaces and seeds; a search
that has found nothing yet counts as one that found the slowest. ``unpruned`` searches also what the tuner's own space
leaves out for the device's limits. Beside ours stand random search and Kernel Tuner (pip install kernel-tuner;
left out where it is not installed), in its simulation mode, each strategy with its defaults.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

from _tuner_peers import Peers  # type: ignore[import-not-found]

from wavefit.kernels.tuner.search import Strategy
from wavefit.kernels.tuner.simulate import Replay, Space, load, trace

STRATEGIES = (
    "genetic_algorithm",
    "diff_evo",
    "greedy_ils",
    "mls",
    "pso",
    "simulated_annealing",
    "dual_annealing",
    "firefly_algorithm",
    "bayes_opt",
    "hybrid_vndx",
    "adaptive_tabu_greywolf",
)
MARKS = (1, 5, 10, 20, 30, 50, 100, 200)
Run = Callable[[int], list[float]]
"""The best time after each evaluation, by seed."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("spaces", nargs="+", type=Path)
    parser.add_argument("--evaluations", type=int, default=50)
    parser.add_argument("--seeds", type=int, default=20)
    options = parser.parse_args()
    spaces = [load(path) for path in options.spaces]
    marks = [mark for mark in MARKS if mark <= options.evaluations]
    for space in spaces:
        _describe(space)
    for pruned in (True, False):
        print(f"\n{'pruned' if pruned else 'unpruned':38}" + "".join(f"{mark:>8}" for mark in marks))
        kinds = [dict(_runs(space, pruned, options.evaluations)) for space in spaces]
        for name in kinds[0]:
            runs = [each[name] for each in kinds]
            try:
                cells = list(_row(spaces, runs, options.seeds, marks))
            except (
                IndexError,
                ValueError,
                TimeoutError,
            ) as error:  # some fail, or never end, where a space is small
                cells = [f"   failed: {error}"]
            print(f"  {name:36}" + "".join(cells), flush=True)


def _describe(space: Space) -> None:
    kept = [each for each in space.candidates if not each.pruned]
    best = min(each.seconds for each in kept if each.seconds is not None)
    print(
        f"{space.name} on {space.device}: {len(space.candidates)} candidates, {len(kept)} after pruning; best "
        f"{space.best * 1e6:.1f} us, {best * 1e6:.1f} us after pruning"
    )


def _runs(space: Space, pruned: bool, evaluations: int) -> Iterator[tuple[str, Run]]:
    replay = Replay(space, pruned)
    yield "wavefit", lambda seed: replay.ours(Strategy(seed=seed), evaluations)
    yield (
        "wavefit, no cost model",
        lambda seed: replay.ours(Strategy(seed=seed, use_model=False), evaluations),
    )
    yield "random", lambda seed: replay.random(seed, evaluations)
    if find_spec("kernel_tuner") is None:
        return
    peers = Peers(space, pruned)
    for name in _known(STRATEGIES):
        yield (
            f"Kernel Tuner {name}",
            lambda seed, name=name: trace(peers.run(name, seed, evaluations), evaluations),
        )


def _known(names: tuple[str, ...]) -> list[str]:
    from kernel_tuner.interface import strategy_map

    return [name for name in names if name in strategy_map]


def _row(spaces: list[Space], runs: list[Run], seeds: int, marks: list[int]) -> Iterator[str]:
    logs: dict[int, list[float]] = {mark: [] for mark in marks}
    for space, run in zip(spaces, runs, strict=True):
        slowest = max(each.seconds for each in space.candidates if each.seconds is not None)
        for seed in range(seeds):
            found = run(seed)
            for mark in marks:
                logs[mark].append(math.log(min(found[mark - 1], slowest) / space.best))
    for mark in marks:
        yield f"{math.exp(sum(logs[mark]) / len(logs[mark])):8.3f}"


if __name__ == "__main__":
    main()
