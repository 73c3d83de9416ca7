"""What PyTorch's host side takes: Python and dispatch for each operator, a graph's launches, copies of NumPy's arrays.

Small models are bound by these: the GPU waits for the next operator longer than it works on the last one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wavefit.device.measure.order import Reading
from wavefit.device.measure.timing import bandwidth, launch, mib, seconds

_GRAPH_NODES = 256
_HOST_BYTES = 64 << 20
_CHANNELS = 16


def measure(torch: Any, gpu: Any) -> dict[str, Reading]:
    """ "dispatch_s", "dispatch_matmul_s", "dispatch_conv_s": one operator after another, each too small to wait for.

    "graph_node_s" is what a kernel in a captured graph takes at least, "round_trip_s" a query of four bytes: pinned to
    the device, one graph, back, and the wait. "host_to_pinned" and "pinned_to_host" are bytes a second.
    """
    with torch.no_grad():
        return _dispatch(torch, gpu) | _graphs(torch, gpu) | _staging(torch)


def _dispatch(torch: Any, gpu: Any) -> dict[str, Reading]:
    """Operators as an exported program calls them, by their overload."""
    ops, wait = torch.ops.aten, torch.cuda.synchronize
    row, square = torch.rand(1, _CHANNELS, device=gpu), torch.rand(_CHANNELS, _CHANNELS, device=gpu)
    bias = torch.rand(_CHANNELS, device=gpu)
    image, filters = (
        torch.rand(n, _CHANNELS, side, side, device=gpu) for n, side in ((1, 8), (_CHANNELS, 3))
    )
    calls: dict[str, tuple[str, Callable[[], object]]] = {
        "dispatch_s": ("relu", lambda: ops.relu.default(row)),
        "dispatch_matmul_s": ("linear", lambda: ops.linear.default(row, square, bias)),
        "dispatch_conv_s": ("conv2d", lambda: ops.conv2d.default(image, filters, bias, [1, 1], [1, 1])),
    }
    searches = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = (
        torch.version.hip is None
    )  # as the route has it: another path through cuDNN
    try:
        return {name: launch(seconds(call, wait), f"small {what}") for name, (what, call) in calls.items()}
    finally:
        torch.backends.cudnn.benchmark = searches


def _graphs(torch: Any, gpu: Any) -> dict[str, Reading]:
    one = torch.rand(1, device=gpu)
    here, back = torch.rand(1).pin_memory(), torch.rand(1).pin_memory()
    many, single = (_captured(torch, gpu, one, count) for count in (_GRAPH_NODES, 1))

    def query() -> None:
        one.copy_(here, non_blocking=True)
        single.replay()
        back.copy_(one, non_blocking=True)
        torch.cuda.synchronize()

    node_s = seconds(many.replay, torch.cuda.synchronize) / _GRAPH_NODES
    return {
        "graph_node_s": launch(node_s, f"a graph of {_GRAPH_NODES} additions of one element"),
        "round_trip_s": launch(seconds(query, lambda: None), "a query of 4 bytes, one kernel, and the wait"),
    }


def _captured(torch: Any, gpu: Any, one: Any, count: int) -> Any:
    stream = torch.cuda.Stream(gpu)
    with torch.cuda.stream(stream):
        one.add_(1)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            one.add_(1)
    return graph


def _staging(torch: Any) -> dict[str, Reading]:
    """An array of the caller's into page-locked memory by PyTorch's threads, and an answer out into a new one."""
    import numpy as np

    array = np.random.default_rng(0).random(_HOST_BYTES // 4, dtype=np.float32)
    pinned = torch.empty(array.shape).pin_memory()
    into = seconds(lambda: pinned.copy_(torch.from_numpy(array)), lambda: None)
    out = seconds(lambda: pinned.numpy().copy(), lambda: None)
    how = f"copy of {mib(array.nbytes)}"
    return {
        "host_to_pinned": bandwidth(array.nbytes, into, f"{how} with {torch.get_num_threads()} threads"),
        "pinned_to_host": bandwidth(array.nbytes, out, f"{how} into new memory"),
    }
