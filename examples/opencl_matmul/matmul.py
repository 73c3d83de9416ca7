"""The tutorial's matrix product beside the engine's, on an OpenCL device: both checked, both timed by its clock.

python matmul.py [--size 1024] [--device 0] [--most 8]
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl

from wavefit.native.limits import of_opencl
from wavefit.native.opencl import kernels
from wavefit.native.opencl.trial import Candidate, Trial
from wavefit.native.operation import Operation, View

TILE = 16
ROUNDS = 5
MOST_ERROR = 1e-5  # relative L2; float32 sums of a few thousand products err by less than 1e-6


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Args:
        name: of the kernel.
        seconds: least of a few runs.
        error: relative L2 to the product in float64.
    """

    name: str
    seconds: float
    error: float


def main(arguments: list[str] | None = None) -> list[Row]:
    options = _options(arguments)
    device = devices()[options.device]
    print(
        f"{device.name.strip()}, {device.platform.name.strip()}, {options.size} x {options.size} x {options.size}"
    )
    rows = compare(device, options.size, options.most)
    flops = 2 * options.size**3
    for row in rows:
        times = rows[0].seconds / row.seconds
        print(
            f"{row.name:44} {row.seconds * 1e3:9.3f} ms {flops / row.seconds * 1e-9:9.1f} GFLOP/s "
            f"{times:6.1f} x  error {row.error:.0e}"
        )
    if wrong := [row.name for row in rows if not row.error < MOST_ERROR]:
        sys.exit(f"wrong: {', '.join(wrong)}")
    return rows


def devices() -> list[Any]:
    """Every OpenCL device, GPUs first."""
    found = [device for platform in cl.get_platforms() for device in platform.get_devices()]
    return sorted(found, key=lambda device: not device.type & cl.device_type.GPU)


def compare(device: Any, size: int, most: int) -> list[Row]:
    """The tutorial's kernel, the engine's as it is taken untuned, the best of ``most`` of its, and numpy's.

    Raises:
        ValueError: the tutorial's kernel cannot do the size.
    """
    if size % TILE or size < TILE:
        raise ValueError(
            f"the tutorial's kernel writes past its buffer unless the size is a multiple of {TILE}"
        )
    context = cl.Context([device])
    view = View(shape=(size, size), strides=(size, 1))
    operation = Operation(op="MatMul", inputs=(view, view), outputs=(view,), own=2, constant=(False, True))
    trial = Trial(operation, context)
    a, b = (np.ascontiguousarray(array) for array in trial.logical() if array is not None)
    trial.reference = a.astype(np.float64) @ b.astype(np.float64)
    rows = [tutorial(context, a, b, trial.reference)]
    configs = islice(kernels.get("matmul").configurations(operation, of_opencl(device)), most)
    tried = [_tried(trial, trial.compile("matmul", config)) for config in configs]
    trial.close()
    rows.append(Row(f"wavefit, untuned: {tried[0].name}", tried[0].seconds, tried[0].error))
    if len(tried) > 1:
        best = min(tried, key=lambda row: row.seconds)
        rows.append(Row(f"wavefit, best of {len(tried)}: {best.name}", best.seconds, best.error))
    return [*rows, on_the_host(a, b, trial.reference)]


def tutorial(context: Any, a: np.ndarray, b: np.ndarray, want: np.ndarray) -> Row:
    """The tutorial's kernel, of square matrices."""
    size = len(a)
    queue = cl.CommandQueue(context, properties=cl.command_queue_properties.PROFILING_ENABLE)
    given = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
    factors = [cl.Buffer(context, given, hostbuf=each) for each in (a, b)]  # a kernel keeps no argument alive
    out = cl.Buffer(context, cl.mem_flags.WRITE_ONLY, a.nbytes)
    source = Path(__file__).with_name("tutorial.cl").read_text()
    kernel = cl.Kernel(cl.Program(context, source).build(["-cl-std=CL1.2", "-cl-mad-enable"]), "matmul")
    kernel.set_args(*factors, out, np.int32(size))
    runs = [cl.enqueue_nd_range_kernel(queue, kernel, (size, size), (TILE, TILE)) for _ in range(ROUNDS + 1)]
    got = np.empty_like(a)
    cl.enqueue_copy(queue, got, out)
    seconds = min(run.profile.end - run.profile.start for run in runs[1:]) * 1e-9
    return Row("tutorial, 16x16", seconds, _error(got, want))


def on_the_host(a: np.ndarray, b: np.ndarray, want: np.ndarray) -> Row:
    """numpy's product, which a BLAS library computes on the CPU."""
    seconds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        got = a @ b
        seconds.append(time.perf_counter() - start)
    return Row("numpy on the CPU", min(seconds), _error(got, want))


def _tried(trial: Trial, candidate: Candidate) -> Row:
    error = trial.error(candidate)
    config = candidate.config
    tile = "x".join(str(config[name]) for name in ("tile_m", "tile_n", "tile_k"))
    split = f" split {config['split']}" if config["split"] != 1 else ""
    name = f"{tile}, {config['item_m']}x{config['item_n']}{split}"
    return Row(name, trial.seconds(candidate), error)


def _error(got: np.ndarray, want: np.ndarray) -> float:
    return float(np.linalg.norm(got - want) / np.linalg.norm(want))


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--device", type=int, default=0, help="number among the OpenCL devices, GPUs first")
    parser.add_argument("--most", type=int, default=8, help="of the engine's configurations that are tried")
    options = parser.parse_args(arguments)
    if options.size < TILE or options.size % TILE:
        parser.error(f"--size must be a multiple of {TILE}: the tutorial's kernel has no edges")
    if not 0 <= options.device < len(devices()):
        parser.error(f"--device: there are {len(devices())} OpenCL devices, numbered from 0")
    if options.most < 1:
        parser.error("--most must be at least 1")
    return options


if __name__ == "__main__":
    main(sys.argv[1:])
