"""What a launch costs the host: through pyopencl, by the driver's own call, and all recorded in one command buffer.

    python benchmarks/launch_overhead.py [--platform Intel] [--launches 100] [--rounds 200]

The three ways run the same kernels of four work-items in turns, in one process. ``enqueue`` is until the host is free
again, ``to the end`` until the device has run all. Ratios are over the driver's own call, of medians.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import pyopencl as cl

from wavefit.native.opencl.launch import Launch, Launcher
from wavefit.native.opencl.recording import Recording, launcher

SOURCE = "__kernel void add(__global uint *a) { a[get_global_id(0)] += 1u; }"
ITEMS = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--platform", default="", help="part of its name; the first that has it is taken")
    parser.add_argument("--launches", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=200)
    options = parser.parse_args()
    platform = next(each for each in cl.get_platforms() if options.platform in each.name)
    context = cl.Context(platform.get_devices()[:1])
    queue = cl.CommandQueue(context)
    buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, 4 * ITEMS)
    launches = made(context, buffer, options.launches)
    ways: dict[str, Callable[[], object]] = {
        "the driver's call": Launcher(queue, launches),
        "pyopencl": lambda: [cl.enqueue_nd_range_kernel(queue, *launch) for launch in launches],
    }
    recorded = launcher(queue, launches)
    if isinstance(recorded, Recording):
        ways["a command buffer"] = recorded
    print(f"{platform.name.strip()}, {platform.version.strip()}: {len(launches)} launches")
    report(measure(queue, ways, options.rounds), len(launches))
    if not isinstance(recorded, Recording):
        print("the driver records no command buffers")
    recorded.close()


def made(context: Any, buffer: Any, count: int) -> list[Launch]:
    """On a buffer that the caller keeps: a kernel does not."""
    program = cl.Program(context, SOURCE).build()
    found = []
    for _ in range(count):
        kernel = cl.Kernel(program, "add")
        kernel.set_args(buffer)
        found.append((kernel, (ITEMS,), (ITEMS,)))
    return found


def measure(
    queue: Any, ways: dict[str, Callable[[], object]], rounds: int
) -> dict[str, list[tuple[float, float]]]:
    """Seconds to the end of the enqueues, and of the work; the first round is not counted."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    order = list(ways)
    for _ in range(rounds + 1):
        order = [*order[1:], order[0]]  # none is always the first after a wait
        for name in order:
            launch = ways[name]
            started = perf_counter()
            launch()
            enqueued = perf_counter()
            queue.finish()
            times[name].append((enqueued - started, perf_counter() - started))
    return {name: found[1:] for name, found in times.items()}


def report(times: dict[str, list[tuple[float, float]]], launches: int) -> None:
    print(f"{'us a launch':24}{'enqueue':>10}{'ratio':>8}{'to the end':>12}{'ratio':>8}")
    base = next(iter(times.values()))
    for name, found in times.items():
        row = f"{name:24}"
        for column, width in ((0, 10), (1, 12)):
            mine, other = (median(each[column] for each in which) for which in (found, base))
            row += f"{mine / launches * 1e6:{width}.2f}{mine / other:8.2f}"
        print(row)


if __name__ == "__main__":
    main()
