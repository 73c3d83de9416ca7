"""The engine's matrix products on a CPU through OpenCL (PoCL) beside numpy's OpenBLAS: GFLOP/s, in turns, in one run.

    env -u OPENBLAS_CORETYPE PYTHONPATH=src python benchmarks/native_gemm_cpu.py [--sizes 512,1024,1000] [--most 24]

``first`` is the configuration that is taken without tuning, ``best`` the fastest of the ``--most`` that the model ranks
first and of as many others drawn from all. Both libraries use every core that they find. Seconds are wall-clock for
OpenBLAS and the device's own for OpenCL, random data, the least of rounds.
"""

from __future__ import annotations

import argparse
import os
import random
from collections.abc import Iterator
from time import perf_counter
from typing import Any

import numpy as np
import pyopencl as cl

from wavefit.native.limits import of_opencl
from wavefit.native.opencl import kernels
from wavefit.native.opencl.chooser import Chooser
from wavefit.native.opencl.trial import Candidate, Trial
from wavefit.native.operation import Config, Limits, Operation, View

TOLERANCE = 1e-4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--sizes", type=lambda text: [int(each) for each in text.split(",")], default=[512, 1024, 1000]
    )
    parser.add_argument("--most", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    core = os.environ.get("OPENBLAS_CORETYPE")
    if core:
        parser.error(f"OPENBLAS_CORETYPE={core} holds OpenBLAS to one CPU's kernels: unset it")
    device = _cpu()
    print(f"{device.platform.name.strip()} {device.driver_version.strip()}, {device.max_compute_units} cores")
    for size in options.sizes:
        print(_row(size, device, options.most, options.rounds), flush=True)


def _cpu() -> Any:
    devices = (each for platform in cl.get_platforms() for each in platform.get_devices())
    return next(each for each in devices if each.type & cl.device_type.CPU)


def _row(size: int, device: Any, most: int, rounds: int) -> str:
    view = View(shape=(size, size), strides=(size, 1))
    operation = Operation(op="MatMul", inputs=(view, view), outputs=(view,), own=2, constant=(False, True))
    trial, limits = Trial(operation, cl.Context([device])), of_opencl(device)
    made = Chooser(limits).build(operation)
    first = trial.compile(made.template, made.config)
    others = _compiled(trial, _drawn(operation, limits, most))
    right = [each for each in (first, *others) if trial.error(each) < TOLERANCE]
    best = min(right, key=trial.seconds)
    a, b = np.random.default_rng(0).standard_normal((2, size, size), np.float32)
    times: dict[str, list[float]] = {"OpenBLAS": [], "first": [], "best": []}
    for _ in range(rounds):
        times["OpenBLAS"].append(_numpy(a, b))
        times["first"].append(trial.seconds(first))
        times["best"].append(trial.seconds(best))
    trial.close()
    found = {name: min(each) for name, each in times.items()}
    rates = ", ".join(f"{name} {2e-9 * size**3 / seconds:.1f}" for name, seconds in found.items())
    shares = ", ".join(f"{name} {found['OpenBLAS'] / found[name]:.2f}" for name in ("first", "best"))
    return (
        f"sgemm {size}: {rates} GFLOP/s; share of OpenBLAS's speed: {shares} "
        f"(of {len(right)}; {best.template} {'/'.join(map(str, best.config.values()))})"
    )


def _drawn(operation: Operation, limits: Limits, most: int) -> Iterator[tuple[str, Config]]:
    for name in kernels.claiming(operation, limits):
        configs = list(kernels.get(name).configurations(operation, limits))
        others = configs[most:]
        random.Random(0).shuffle(others)
        yield from ((name, config) for config in configs[:most] + others[:most])


def _compiled(trial: Trial, drawn: Iterator[tuple[str, Config]]) -> Iterator[Candidate]:
    for template, config in drawn:
        try:
            yield trial.compile(template, config)
        except cl.Error as error:
            print(f"    {template} {config}: {str(error)[:200]}")


def _numpy(a: np.ndarray, b: np.ndarray, runs: int = 3) -> float:
    a @ b
    started = perf_counter()
    for _ in range(runs):
        a @ b
    return (perf_counter() - started) / runs


if __name__ == "__main__":
    main()
