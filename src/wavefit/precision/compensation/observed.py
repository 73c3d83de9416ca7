"""What flows through a graph on calibration data, item by item: for compensation that looks at more than ranges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from wavefit.model.samples import Samples
from wavefit.precision.graph import Runner, copy
from wavefit.precision.half.ranges import batches, chunks, frozen_batch

if TYPE_CHECKING:
    import onnx_ir as ir

_BATCH = 4


def spread(samples: Samples, count: int) -> Samples:
    """At most that many items, evenly over all: data sorted by class would else give one class."""
    items = np.unique(np.linspace(0, samples.count - 1, min(count, samples.count)).round().astype(int))
    labels = samples.labels[items] if samples.labels is not None else None
    return Samples(samples.pick(items), labels, samples.source, samples.whole)


def values(model: ir.Model, samples: Samples, wanted: Iterable[ir.Value]) -> Iterator[tuple[str, np.ndarray]]:
    """The arrays of values by name, a batch at a time, in as many runs as memory wants; inputs of the graph as well.

    Raises:
        InputError: ONNX Runtime is missing, or does not run the graph.
    """
    batch = frozen_batch(model) or min(_BATCH, samples.count)
    computed = []
    for value in dict.fromkeys(wanted):
        if value.is_graph_input():
            yield str(value.name), samples.inputs[str(value.name)]
        else:
            computed.append(value)
    for names in chunks(computed, samples, batch):
        run = Runner(until(model, names), names)
        for inputs in batches(model, samples, batch):
            yield from run(inputs).items()


def until(model: ir.Model, names: Iterable[str]) -> ir.Model:
    """A copy that ends in these values: what they do not depend on is left out. Its inputs stay."""
    import onnx_ir.passes.common as passes

    model = copy(model)
    known = {value.name: value for node in model.graph for value in node.outputs}
    model.graph.outputs.clear()
    model.graph.outputs.extend(known[name] for name in names)
    passes.RemoveUnusedNodesPass()(model)
    return model


def channel_means(array: np.ndarray, axis: int) -> np.ndarray:
    """The mean of each channel, float64 of shape (channels,)."""
    others = tuple(each for each in range(array.ndim) if each != axis % array.ndim)
    return array.mean(axis=others, dtype=np.float64)
