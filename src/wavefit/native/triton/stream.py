"""Successive batches on three streams: uploads, computation and downloads of different batches run side by side."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from wavefit.native.triton.lane import Lane


def stream(
    device: Any, lanes: Sequence[Lane], batches: Iterable[Mapping[str, np.ndarray]]
) -> Iterator[dict[str, np.ndarray]]:
    """Runs batches through the lanes in turn.

    All lanes share the arena, so computations follow one another; a lane's inputs may be written once its last
    computation is done, its outputs once they have been read.

    Yields:
        Each batch's outputs, in order, each as soon as the next batches are under way.
    """
    import torch

    up, compute, down = (torch.cuda.Stream(device) for _ in range(3))
    for each in (up, compute, down):
        each.wait_stream(torch.cuda.current_stream(device))
    under_way: deque[Lane] = deque()
    try:
        for number, batch in enumerate(batches):
            if len(under_way) == len(lanes):
                yield under_way.popleft().outputs()
            lane = lanes[number % len(lanes)]
            with torch.cuda.stream(up):
                lane.upload(batch)
            compute.wait_stream(up)
            with torch.cuda.stream(compute):
                lane.launch()
            down.wait_stream(compute)
            with torch.cuda.stream(down):
                lane.begin_download()
            under_way.append(lane)
        while under_way:
            yield under_way.popleft().outputs()
    finally:  # a stream that is given up leaves no copy behind that reads or writes a lane
        for each in (up, compute, down):
            each.synchronize()
