"""Half as storage: every float tensor between kernels is kept in 16 bits, while kernels go on computing in float."""

from __future__ import annotations

import numpy as np

from wavefit.native.graph import Graph, Value
from wavefit.native.layout import VIEWS

_LARGEST = float(np.finfo(np.float16).max)  # 65504


def store_half(graph: Graph) -> None:
    """Types every float32 value float16 but the graph's inputs and outputs, which keep the model's types.

    What an output is a view of keeps its type too, as both lie in one storage.

    Constants past half's largest number are held to it, infinities excepted: masks of -1e9 mean "very small".
    """
    kept: set[Value | None] = {*graph.inputs, *graph.outputs}
    for node in reversed(graph.nodes):
        if node.op in VIEWS and node.output in kept:
            kept.add(node.inputs[0])
    for node in graph.nodes:
        for value in (*node.inputs, *node.outputs):
            if value is not None and value.dtype == "float32" and value not in kept:
                _lower(value)


def _lower(value: Value) -> None:
    value.dtype = "float16"
    if value.constant is None:
        return
    finite = np.clip(value.constant, -_LARGEST, _LARGEST)
    value.constant = np.where(np.isinf(value.constant), value.constant, finite).astype(np.float16)
