"""How long work takes on a device: repeated in one graph, so that the host's part does not show."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

_ROUNDS = 4


def seconds(work: Callable[[], None], device: Any, repeats: int, rounds: int = _ROUNDS) -> float:
    """Device seconds of one run of some work, which is enqueued on the current stream; the least of a few rounds.

    On the CPU the host's clock, of single runs.
    """
    if device.type == "cpu":
        return min(_host(work) for _ in range(2))
    import torch

    side = torch.cuda.Stream(device)
    with torch.cuda.stream(side):
        work()
    torch.cuda.synchronize(device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(repeats):
            work()
    graph.replay()
    found = []
    for _ in range(rounds):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        found.append(begin.elapsed_time(end) * 1e-3 / repeats)
    return min(found)


def of_graph(launch: Callable[[], None], device: Any, repeats: int) -> float:
    """Device seconds of one launch of a graph, the mean of several that follow one another."""
    if device.type == "cpu":
        return min(_host(launch) for _ in range(2))
    import torch

    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    launch()
    begin.record()
    for _ in range(repeats):
        launch()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) * 1e-3 / repeats


def _host(work: Callable[[], None]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
