"""A stream that ends early: no copy is under way when the caller goes on, and may free what it reads or writes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from wavefit.native.opencl.stream import stream


class _Queue:
    def __init__(self) -> None:
        self.pending = 0

    def flush(self) -> None:
        pass

    def finish(self) -> None:
        self.pending = 0


class _Lane:
    def upload(self, inputs: Any, queue: _Queue) -> list[str]:
        queue.pending += 1
        return ["uploaded"]

    def launch(self) -> None:
        pass

    def begin_download(self, queue: _Queue, wait_for: list[str]) -> list[str]:
        queue.pending += 1
        return ["downloaded"]

    def outputs(self, queue: _Queue) -> dict[str, np.ndarray]:
        return {}


def _started() -> tuple[Any, list[_Queue], Any]:
    made: list[_Queue] = []

    def queue(context: object, properties: int) -> _Queue:
        made.append(_Queue())
        return made[-1]

    cl = SimpleNamespace(
        CommandQueue=queue,
        enqueue_barrier=lambda *_, **__: None,
        enqueue_marker=lambda *_: "computed",
        wait_for_events=lambda _: None,
    )
    compute = SimpleNamespace(context=None, properties=0, flush=lambda: None)
    return cl, made, compute


def _faulty() -> Any:
    yield {}
    raise ValueError("the second batch is at fault")


def test_a_batch_at_fault_leaves_no_copy_under_way() -> None:
    cl, made, compute = _started()
    lanes: Any = [_Lane(), _Lane()]
    with pytest.raises(ValueError, match="second"):
        list(stream(cl, compute, lanes, _faulty()))
    assert [queue.pending for queue in made] == [0, 0]


def test_a_stream_that_is_closed_leaves_no_copy_under_way() -> None:
    cl, made, compute = _started()
    lanes: Any = [_Lane(), _Lane()]
    answers: Any = stream(cl, compute, lanes, iter([{}] * 5))
    next(answers)
    assert all(queue.pending for queue in made)
    answers.close()
    assert [queue.pending for queue in made] == [0, 0]
