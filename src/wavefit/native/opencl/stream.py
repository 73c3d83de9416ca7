"""Successive batches on three queues: uploads, computation and downloads of different batches run side by side."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from wavefit.native.opencl.lane import Lane
from wavefit.native.opencl.timeline import Timeline


def stream(
    cl: Any,
    compute: Any,
    lanes: Sequence[Lane],
    batches: Iterable[Mapping[str, np.ndarray]],
    timeline: Timeline | None = None,
) -> Iterator[dict[str, np.ndarray]]:
    """Runs batches through the lanes in turn.

    All lanes share the arena, so computations follow one another on ``compute``; a lane's inputs may be written once
    its last computation is done, its outputs once they have been read.

    Yields:
        Each batch's outputs, in order, each as soon as the next batches are under way.
    """
    up, down = (cl.CommandQueue(compute.context, properties=compute.properties) for _ in range(2))
    under_way: deque[tuple[Lane, list[Any]]] = deque()
    try:
        for number, batch in enumerate(batches):
            if len(under_way) == len(lanes):
                yield _taken(cl, *under_way.popleft(), down)
            lane = lanes[number % len(lanes)]
            uploaded = lane.upload(batch, up)
            up.flush()
            if uploaded:
                cl.enqueue_barrier(compute, wait_for=uploaded)
            launched = _launch(lane, timed=timeline is not None)
            computed = cl.enqueue_marker(compute)
            compute.flush()
            downloaded = lane.begin_download(down, [computed])
            under_way.append((lane, downloaded))
            down.flush()
            if timeline is not None:
                timeline.add("upload", number, lane.input_names, uploaded)
                timeline.add("compute", number, lane.step_names, launched)
                timeline.add("download", number, lane.output_names, downloaded)
        while under_way:
            yield _taken(cl, *under_way.popleft(), down)
    finally:  # a stream that is given up leaves no copy behind that reads or writes a lane
        up.finish()
        down.finish()


def _launch(lane: Lane, timed: bool) -> list[Any]:
    if timed:
        return lane.launch_timed()
    lane.launch()
    return []


def _taken(cl: Any, lane: Lane, downloaded: list[Any], queue: Any) -> dict[str, np.ndarray]:
    """A lane's outputs. That they have come means that its computation is done, and the lane is free again."""
    cl.wait_for_events(downloaded)
    return lane.outputs(queue)
