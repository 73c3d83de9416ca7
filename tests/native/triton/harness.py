"""Runs one implementation in Triton's interpreter, with canaries round every buffer and NaN where nothing is.

The interpreter wants a process in which Triton was never imported as a compiler: one such serves all tests.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from wavefit.native.operation import Config, Operation


@cache
def _worker() -> ProcessPoolExecutor:
    from wavefit.native.triton.interpreter import activate

    spawn = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(1, mp_context=spawn, initializer=activate)


def submit(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function answers in the process in which Triton interprets."""
    return _worker().submit(function, *arguments).result()


def run(
    template: str,
    operation: Operation,
    config: Config,
    arrays: Sequence[np.ndarray | None],
    runs: int = 1,
) -> list[np.ndarray]:
    """The outputs of an operation, computed by one configuration of a template.

    Args:
        template: the file's name in triton/kernels/.
        operation: its views say how the arrays lie in their buffers.
        config: of the template.
        arrays: one for each input, of the view's shape; elements of a buffer that no view shows are NaN.
        runs: how often; later runs must find what the first left.

    Raises:
        AssertionError: bytes outside a buffer, or elements that no output's view shows, were written.
    """
    outputs, trespasses = submit(_run, template, operation, config, arrays, runs)
    assert not trespasses
    return outputs


def _run(
    template: str, operation: Operation, config: Config, arrays: Sequence[np.ndarray | None], runs: int
) -> tuple[list[np.ndarray], tuple[str, ...]]:
    import torch

    from wavefit.native.triton import bench, kernels

    made = kernels.get(template).build(operation, config)
    done = bench.run(operation, made, kernels.get(template), arrays, torch.device("cpu"), Path(), runs)
    return list(done.outputs), done.trespasses
