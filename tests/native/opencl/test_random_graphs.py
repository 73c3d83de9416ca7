"""Random small graphs on the device against float64, in memory that holds NaN before the first run and after it."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from native.interpret import evaluate
from native.passes.test_random_graphs import random_graph

from wavefit.native import passes
from wavefit.native.limits import of_opencl
from wavefit.native.opencl.chooser import Chooser
from wavefit.native.opencl.executor import Executor
from wavefit.native.program import Program, compile_graph

cl = pytest.importorskip("pyopencl")


@pytest.mark.parametrize("seed", range(100, 106))
def test_nothing_is_read_that_was_not_written(seed: int) -> None:
    device = next(device for platform in cl.get_platforms() for device in platform.get_devices())
    build, graph = random_graph(seed, "float32")
    feeds = {name: array.astype(np.float32) for name, array in build.feeds().items()}
    want = evaluate(copy.deepcopy(graph), feeds)
    names = [value.name for value in graph.outputs]
    passes.run(graph)
    program = compile_graph(graph, Chooser(of_opencl(device)))
    assert isinstance(program, Program), program
    executor = Executor(program, device)
    for _ in range(2):
        if program.arena_bytes:
            cl.enqueue_fill_buffer(executor.queue, executor._arena, np.uint8(0xFF), 0, program.arena_bytes)
        got = executor.run(feeds)
        for name, right in zip(names, want, strict=True):
            scale = max(float(np.linalg.norm(right)), 1.0)  # what cancels has the error of what it is made of
            assert np.linalg.norm(got[name] - right) <= 1e-5 * scale, name
    executor.close()
