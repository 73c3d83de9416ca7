"""Whole networks on the engine against ONNX Runtime in fp32: error, launches, arena, where each node goes.

    PYTHONPATH=src:benchmarks python benchmarks/native_networks.py [--only resnet50,vit_small] [--storage fp32,fp16]

Runs on the first OpenCL device: PoCL where there is no GPU, whose compiler takes up to a minute for a network. Weights
are random and seeded; the graphs are those of the onnx package and exports of PyTorch modules written here. "arena" is
the intermediate memory over the least that any arrangement needs; copies and loose elementwise launches are counted, as
each is one that layout or a pass left. Bounds: relative L2 1e-5 in fp32, 2e-3 where tensors
are stored in half.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pyopencl as cl

from wavefit.native import engine
from wavefit.native.limits import of_opencl
from wavefit.native.opencl.chooser import Chooser
from wavefit.native.opencl.executor import Executor
from wavefit.native.program import Program

_BOUNDS = {"fp32": 1e-5, "fp16": 2e-3}
_TORCH = ("mobilenet", "unet", "vit_small", "densenet", "vgg", "encoder_small", "resnet34")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--storage", default="fp32,fp16")
    parser.add_argument("--folder", type=Path, default=Path(".cache/native"))
    options = parser.parse_args()
    device = next(device for platform in cl.get_platforms() for device in platform.get_devices())
    wanted = set(filter(None, options.only.split(",")))
    for name, path in networks(options.folder, wanted):
        if wanted and name not in wanted:
            continue
        for storage in options.storage.split(","):
            print(_row(name, path, device, storage), flush=True)


def networks(folder: Path, wanted: set[str]) -> Iterator[tuple[str, Path]]:
    import _zoo

    yield from _zoo.models(folder).items()
    for name in _TORCH:
        if wanted and name not in wanted:
            continue  # an export needs torch
        yield name, _exported(name, folder)


def _exported(name: str, folder: Path) -> Path:
    """An export of one of the modules of _torch_nets.py and _torch_more_nets.py, at batch 1."""
    path = folder / f"torch_{name}.onnx"
    if path.exists():
        return path
    from importlib import import_module

    import _torch_nets
    import torch

    spec, shape = _torch_nets.nets()[name]
    module, _, factory = spec.partition(":")
    torch.manual_seed(0)
    net = getattr(import_module(module), factory)().eval()
    partial = path.with_suffix(".partial")
    sample = torch.zeros(1, *shape[1:])
    torch.onnx.export(net, (sample,), str(partial), opset_version=17, dynamo=False, input_names=["x"])
    partial.replace(path)
    return path


def _row(name: str, path: Path, device: Any, storage: str) -> str:
    shapes = _shapes(path)
    started = time.perf_counter()
    program = engine.prepare(path, shapes, Chooser(of_opencl(device, None)), half=storage == "fp16")
    if isinstance(program, tuple):
        return f"{name:16} {storage} cannot run: " + "; ".join(
            f"{each.op} {each.reason}" for each in program[:3]
        )
    planned = time.perf_counter() - started
    executor = Executor(program, device)
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(1)
    inputs = {
        each.name: rng.standard_normal(shapes[each.name]).astype(np.float32)
        if "float" in each.type
        else rng.integers(0, 100, shapes[each.name])
        for each in session.get_inputs()
    }
    got, names = executor.run(inputs), [each.name for each in session.get_outputs()]
    took = time.perf_counter() - started
    errors = [_error(got[each], want) for each, want in zip(names, session.run(names, inputs), strict=True)]
    executor.close()
    worst = float(np.max(errors))  # NaN where one of them is
    return (
        f"{name:16} {storage} error {worst:.1e} {'ok' if worst <= _BOUNDS[storage] else 'TOO LARGE'}  "
        f"{len(program.steps):4} launches {_count(program, 'Copy'):3} copies "
        f"{_count(program, 'Pointwise'):3} pointwise  arena {program.arena_bytes / 2**20:7.1f} MiB "
        f"{program.arena_bytes / max(1, program.bound_bytes):.3f}  planned in {planned:.1f} s, all {took:.0f} s"
    )


def _count(program: Program, op: str) -> int:
    """Launches of nodes that only move (Copy) or were joined to no other (Pointwise)."""
    return sum(step.op == op for step in program.steps)


def _error(got: np.ndarray, want: np.ndarray) -> float:
    scale = float(np.linalg.norm(want.astype(np.float64)))
    return float(np.linalg.norm(got.astype(np.float64) - want)) / (scale or 1.0)


def _shapes(path: Path) -> dict[str, tuple[int, ...]]:
    graph = onnx.load(str(path), load_external_data=False).graph
    weights = {each.name for each in graph.initializer}
    return {
        each.name: tuple(dim.dim_value or 1 for dim in each.type.tensor_type.shape.dim)
        for each in graph.input
        if each.name not in weights
    }


if __name__ == "__main__":
    main()
