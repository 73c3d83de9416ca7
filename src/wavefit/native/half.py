"""16 bits as storage: every float tensor between kernels is kept in them, while kernels go on computing in float."""

from __future__ import annotations

import numpy as np

from wavefit.native.graph import Graph, Value
from wavefit.native.layout import VIEWS

_LARGEST = float(np.finfo(np.float16).max)  # 65504


def store(graph: Graph, dtype: str) -> None:
    """Types every float32 value as one of 16 bits but the graph's inputs and outputs, which keep the model's types.

    What an output is a view of keeps its type too, as both lie in one storage.

    Args:
        graph: changed in place.
        dtype: "float16" or "bfloat16". Constants past half's largest number are held to it, infinities excepted:
            masks of -1e9 mean "very small".
    """
    kept: set[Value | None] = {*graph.inputs, *graph.outputs}
    for node in reversed(graph.nodes):
        if node.op in VIEWS and node.output in kept:
            kept.add(node.inputs[0])
    for node in graph.nodes:
        for value in (*node.inputs, *node.outputs):
            if value is not None and value.dtype == "float32" and value not in kept:
                _lower(value, dtype)


def _lower(value: Value, dtype: str) -> None:
    value.dtype = dtype
    if value.constant is None:
        return
    if dtype == "bfloat16":
        import ml_dtypes  # which numpy then knows by name

        value.constant = value.constant.astype(ml_dtypes.bfloat16)
        return
    finite = np.clip(value.constant, -_LARGEST, _LARGEST)
    value.constant = np.where(np.isinf(value.constant), value.constant, finite).astype(np.float16)
