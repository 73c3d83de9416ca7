"""Measures the whole space of one operation, also what the device's limits and the templates leave out, into a file.

    PYTHONPATH=src python benchmarks/tuner_record.py matmul:1000x1000x1000 SPACE.json [--splits 1,2,4] [--most 2000]
    PYTHONPATH=src python benchmarks/tuner_record.py conv:1x128x28x28:128x3 SPACE.json

Takes the first OpenCL device. ``benchmarks/tuner.py`` replays searches on such files. Of the tiled templates every
power of two is tried; ``pruned`` marks what a tuner would not have tried.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pyopencl as cl

from wavefit.kernels.tuner.simulate import Measured, Space, save
from wavefit.native import specimens
from wavefit.native.limits import of_opencl
from wavefit.native.opencl import compilers, kernels
from wavefit.native.opencl.compilers import Compilers
from wavefit.native.opencl.kernels import _tiles
from wavefit.native.opencl.trial import Trial
from wavefit.native.operation import Config, Limits, Operation
from wavefit.schema import fingerprint

_TILED = ("matmul", "conv_gemm")
_TOLERANCE = 1e-4
_COMPILE_S = 120.0
_AHEAD = 2  # submissions for each compiler


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("operation", help="matmul:MxKxN or conv:NxCxHxW:OxK")
    parser.add_argument("output", type=Path)
    parser.add_argument("--splits", type=lambda text: [int(each) for each in text.split(",")], default=[1])
    parser.add_argument("--most", type=int, default=4000, help="candidates")
    options = parser.parse_args()
    device = cl.get_platforms()[0].get_devices()[0]
    operation, limits = parsed(options.operation), of_opencl(device, None)
    candidates = list(space(operation, limits, options.splits))[: options.most]
    print(
        f"{len(candidates)} candidates, {sum(pruned for *_, pruned in candidates)} of them pruned", flush=True
    )
    measured = measure(device, operation, candidates, limits)
    found = Space(name=options.operation, device=device.name.strip(), candidates=tuple(measured))
    save(found, options.output)
    print(f"best {found.best * 1e6:.1f} us, {sum(each.seconds is None for each in measured)} failed")


def parsed(text: str) -> Operation:
    kind, *sizes = text.split(":")
    first = [int(each) for each in sizes[0].split("x")]
    if kind == "matmul":
        rows, depth, columns = first
        return specimens.matmul(specimens.rows(rows, depth), specimens.rows(depth, columns))
    outs, kernel = (int(each) for each in sizes[1].split("x"))
    return specimens.conv(specimens.image(*first), outs, (kernel, kernel), pad=kernel // 2)


def space(operation: Operation, limits: Limits, splits: list[int]) -> Iterator[tuple[str, Config, bool]]:
    """Template, configuration, and whether the tuner's own space lacks it."""
    for name in kernels.claiming(operation):
        own = list(kernels.get(name).configurations(operation, limits))
        yield from ((name, config, False) for config in own)
        if name in _TILED:
            wide = (config for config in _tiled(splits, limits) if config not in own)
            yield from ((name, config, True) for config in wide if _builds(name, operation, config))


def _tiled(splits: list[int], limits: Limits) -> Iterator[Config]:
    sides, depths, items = (8, 16, 32, 64, 128), (4, 8, 16, 32), (1, 2, 4, 8)
    for m, n, k, item_m, item_n, split in product(sides, sides, depths, items, (4, 8), splits):
        tile = _tiles.Tile(m, n, k, item_m, item_n, split)
        work_group = item_m <= m and item_n <= n and 8 <= tile.items <= limits.work_group
        if work_group and tile.local_bytes <= limits.local_bytes and _tiles.fits(tile, (4, 4)):
            yield _tiles.config(tile)


def _builds(name: str, operation: Operation, config: Config) -> bool:
    tile = _tiles.tile(config)
    depth = operation.input(0).shape[1 if operation.op == "Conv" else -1]
    return tile.split == 1 or depth >= 2 * tile.split * tile.k


def measure(
    device: Any, operation: Operation, candidates: list[tuple[str, Config, bool]], limits: Limits
) -> Iterator[Measured]:
    """Each candidate, in order; equal kernels are measured once."""
    trial = Trial(operation, cl.Context([device]))
    pool = Compilers(compilers.where(device), compilers.workers())
    made = [kernels.get(name).build(operation, config) for name, config, _ in candidates]
    sources = [[launch.kernel.source for launch in each.launches] for each in made]
    known: dict[str, float | None] = {}
    pending: list[Any] = []
    for number, (name, config, pruned) in enumerate(candidates):
        while len(pending) < min(len(candidates), number + _AHEAD * compilers.workers()):
            pending.append(pool.submit(sources[len(pending)]))
        binaries = pool.result(pending[number], sources[number], _COMPILE_S)
        digest = fingerprint(made[number].launches)
        if digest not in known:
            known[digest] = None if isinstance(binaries, str) else _seconds(trial, name, config, binaries)
        cost = kernels.get(name).cost(operation, config, limits)
        yield Measured(parameters=config, cost=cost, seconds=known[digest], group=name, pruned=pruned)
    pool.close()
    trial.close()


def _seconds(trial: Trial, name: str, config: Config, binaries: dict[str, bytes]) -> float | None:
    try:
        ready = trial.compile(name, config, binaries)
        return trial.seconds(ready) if trial.difference(ready) <= _TOLERANCE else None
    except cl.Error:
        return None


if __name__ == "__main__":
    main()
