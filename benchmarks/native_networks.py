"""Whole networks on the engine against ONNX Runtime in fp32: error, launches, arena.

    PYTHONPATH=src:benchmarks:examples/resnet50 python benchmarks/native_networks.py [--only resnet50,vit_b] [--batch 1]
    ... native_networks.py --plan --batch 1,8        # the arena alone: no device, nothing is compiled or run

Runs on the first OpenCL device: PoCL where there is no GPU, whose compiler takes up to a minute for a network. The
networks are those of _networks.py, seeded. "arena" is the intermediate memory over the least that any arrangement
needs; copies and loose elementwise launches are counted, as each is one that layout or a pass left; "varies" is how far
the answers to two inputs are apart, relative to one of them: where they were equal, an error of 0 would say nothing.
Bounds: relative L2 1e-5 in fp32, 2e-3 where tensors are stored in half, of each output; of a detector's boxes and
scores each.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import _networks
import numpy as np
import onnxruntime as ort

from wavefit.native import engine
from wavefit.native.limits import of_gfx, of_opencl
from wavefit.native.opencl.chooser import Chooser
from wavefit.native.program import Program

BOUNDS = {"fp32": 1e-5, "fp16": 2e-3}
_PLANNED_FOR = "gfx1103"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--storage", default="fp32,fp16")
    parser.add_argument("--batch", default="1")
    parser.add_argument("--small", action="store_true", help="the networks as tests run them")
    parser.add_argument("--plan", action="store_true", help=f"plan for {_PLANNED_FOR}, run nothing")
    parser.add_argument("--folder", type=Path, default=Path(".cache/networks"))
    options = parser.parse_args()
    every = list(_networks.TORCH) if options.small else _networks.names()
    for name in filter(None, options.only.split(",")) if options.only else every:
        path = _networks.file(name, options.folder, options.small)
        for batch in map(int, options.batch.split(",")):
            for row in rows(path, batch, options.storage.split(","), options.plan):
                print(f"{name:18} {batch:3} {row}", flush=True)


def rows(path: Path, batch: int, storages: list[str], plan: bool) -> Iterator[str]:
    """A line for each storage."""
    feeds = [_networks.feeds(path, batch, seed) for seed in (1, 2)]
    for storage in storages:
        started = time.perf_counter()
        program = compiled(path, feeds[0], storage, None if plan else device())
        if isinstance(program, tuple):
            yield f"{storage} cannot run: " + "; ".join(f"{each.op} {each.reason}" for each in program[:3])
            continue
        took = time.perf_counter() - started
        yield f"{storage} {'' if plan else _answers(path, program, feeds, storage)}{_figures(program)}  {took:.1f} s"


def compiled(path: Path, feeds: dict[str, np.ndarray], storage: str, on: Any) -> Program | tuple[Any, ...]:
    """For an OpenCL device, or where that is None for a target that is not here."""
    limits = of_gfx(_PLANNED_FOR) if on is None else of_opencl(on, None)
    shapes = {name: array.shape for name, array in feeds.items()}
    return engine.prepare(path, shapes, Chooser(limits), storage="float16" if storage == "fp16" else None)


def device() -> Any:
    """The first that OpenCL shows."""
    import pyopencl as cl

    return next(device for platform in cl.get_platforms() for device in platform.get_devices())


def errors(path: Path, program: Program, feeds: list[dict[str, np.ndarray]]) -> tuple[float, float]:
    """The largest error of an output for the first of ``feeds``, and how far apart the answers to both are.

    A detector's boxes, in pixels, would hide what is wrong with its scores: they are outputs of their own here.
    """
    from wavefit.native.opencl.executor import Executor

    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_outputs()]
    want, other = (dict(zip(names, session.run(names, each), strict=True)) for each in feeds)
    executor = Executor(program, device())
    got = executor.run(feeds[0])
    executor.close()
    if path.name.startswith("yolo"):
        axis = 1 if "v8" in path.name else 2
        got, want, other = (_split(each, axis) for each in (got, want, other))
    worst = float(np.max([error(got[name], want[name]) for name in want]))  # NaN where one of them is
    return worst, min(error(other[name], want[name]) for name in want)


def _split(outputs: dict[str, np.ndarray], axis: int) -> dict[str, np.ndarray]:
    """Boxes and scores apart."""
    parts = {name: np.split(array, [4], axis) for name, array in outputs.items()}
    return {f"{name} {part}": array for name, both in parts.items() for part, array in enumerate(both)}


def error(got: np.ndarray, want: np.ndarray) -> float:
    """Relative L2."""
    scale = float(np.linalg.norm(want.astype(np.float64)))
    return float(np.linalg.norm(got.astype(np.float64) - want)) / (scale or 1.0)


def _answers(path: Path, program: Program, feeds: list[dict[str, np.ndarray]], storage: str) -> str:
    worst, varies = errors(path, program, feeds)
    return f"error {worst:.1e} {'ok' if worst <= BOUNDS[storage] else 'TOO LARGE'} varies {varies:.2f}  "


def _figures(program: Program) -> str:
    return (
        f"{len(program.steps):4} launches {loose(program, 'Copy'):3} copies {loose(program, 'Pointwise'):3} pointwise  "
        f"arena {program.arena_bytes / 2**20:7.1f} MiB {program.arena_bytes / max(1, program.bound_bytes):.3f}"
    )


def loose(program: Program, op: str) -> int:
    """Launches of nodes that only move (Copy) or were joined to no other (Pointwise)."""
    return sum(step.op == op for step in program.steps)


if __name__ == "__main__":
    main()
