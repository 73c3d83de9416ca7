"""The numbers that flow through a graph: the range of every float value over calibration data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from wavefit.errors import InputError
from wavefit.model.samples import Samples
from wavefit.precision.graph import Runner, constant, copy, infer, is_float
from wavefit.precision.half import accumulate
from wavefit.precision.half.value_range import Range, describe, merged

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir

MEMORY_BYTES = 512 << 20
"""Most memory that the values of one pass may take together, in bytes."""

_UNKNOWN_ELEMENTS = 1 << 22  # taken for a value whose shape could not be inferred


def observe(
    model: ir.Model, samples: Samples, say: Callable[[str], None], batch: int = 4
) -> dict[str, Range]:
    """The range of every float value of the main graph, weights and inputs among them, over all items.

    The values of one pass take at most about :data:`MEMORY_BYTES`; a larger graph is run in several passes.

    Args:
        say: told what goes on, once a pass.
        batch: most items a run, where the graph does not fix it; fewer where that saves a pass.

    Raises:
        InputError: ONNX Runtime is missing, or does not run the graph.
    """
    ranges = {str(value.name): _of_weight(value) for value in _weights(model)}
    readers = _readers(model)
    batch = frozen_batch(model) or _batch(model, samples, batch)
    passes = list(chunks(_computed(sized(model, samples, batch)), samples, batch))
    for number, names in enumerate(passes, 1):
        say(f"ranges: pass {number} of {len(passes)}, {samples.count} items")
        run = Runner(model, names)
        for inputs in batches(model, samples, batch):
            for name, array in run(inputs).items():
                _add(ranges, name, describe(array, readers.get(name, ())))
    for spec in model.graph.inputs:
        name = str(spec.name)
        if is_float(spec) and name in samples.inputs:
            _add(ranges, name, describe(samples.inputs[name], readers.get(name, ())))
    return ranges


def merge(one: Mapping[str, Range], other: Mapping[str, Range]) -> dict[str, Range]:
    """Ranges over both sets of data: of the same graph at another size, or on other items."""
    merged = dict(one)
    for name, found in other.items():
        _add(merged, name, found)
    return merged


def sized(model: ir.Model, samples: Samples, batch: int) -> ir.Model:
    """A copy whose values have the shapes that a run of ``batch`` items gives them, as far as they can be inferred."""
    import onnx_ir as ir

    copied = copy(model)
    for spec in copied.graph.inputs:
        name = str(spec.name)
        if name in samples.inputs:
            shape = samples.inputs[name].shape
            spec.shape = ir.Shape(shape if name in samples.whole else (batch, *shape[1:]))
    for node in copied.graph:
        for value in node.outputs:
            value.shape = None
    try:
        return infer(copied)
    except InputError:  # what ONNX Runtime may run nevertheless
        return copy(model)


def frozen_batch(model: ir.Model) -> int | None:
    """The first size of the first input that has axes, where the graph fixes it."""
    for spec in model.graph.inputs:
        if spec.shape is not None and len(spec.shape):
            size = spec.shape[0]
            return size if isinstance(size, int) else None
    return None


def batches(model: ir.Model, samples: Samples, batch: int) -> Iterator[dict[str, np.ndarray]]:
    """All items once, in runs of ``batch``; the last run is shorter where the graph lets it be."""
    frozen = frozen_batch(model) is not None
    for start in range(0, samples.count, batch):
        yield samples.batch(start, batch if frozen else min(batch, samples.count - start))


def chunks(
    values: Iterable[ir.Value], samples: Samples, batch: int, limit: int = MEMORY_BYTES
) -> Iterator[tuple[str, ...]]:
    """The values' names, in groups that take at most ``limit`` bytes together as far as shapes are known."""
    known = _sizes(samples, batch)
    group: list[str] = []
    taken = 0
    for value in values:
        size = 4 * _elements(value, known, batch)
        if group and taken + size > limit:
            yield tuple(group)
            group, taken = [], 0
        group.append(str(value.name))
        taken += size
    if group:
        yield tuple(group)


def _batch(model: ir.Model, samples: Samples, most: int) -> int:
    known = _sizes(samples, 1)
    item = sum(4 * _elements(value, known, 1) for value in _computed(sized(model, samples, 1)))
    return max(1, min(most, samples.count, MEMORY_BYTES // max(1, item)))


def _sizes(samples: Samples, batch: int) -> int:
    """The largest axis of any input: what a symbolic size is taken for."""
    return max((size for array in samples.inputs.values() for size in array.shape[1:]), default=batch)


def _elements(value: ir.Value, symbolic: int, batch: int) -> int:
    if value.shape is None:
        return _UNKNOWN_ELEMENTS
    sizes = [
        size if isinstance(size, int) else batch if axis == 0 else symbolic
        for axis, size in enumerate(value.shape)
    ]
    return math.prod(sizes)


def _computed(model: ir.Model) -> Iterator[ir.Value]:
    for node in model.graph:
        yield from (value for value in node.outputs if value.name and is_float(value))


def _weights(model: ir.Model) -> Iterator[ir.Value]:
    return (value for value in model.graph.initializers.values() if is_float(value))


def _of_weight(value: ir.Value) -> Range:
    array = constant(value)
    assert array is not None
    return describe(array)


def _readers(model: ir.Model) -> dict[str, list[ir.Node]]:
    """Nodes that add up their first input, by that input."""
    found: dict[str, list[ir.Node]] = {}
    for node in model.graph:
        if node.op_type in accumulate.ACCUMULATING and node.inputs and is_float(node.inputs[0]):
            assert node.inputs[0] is not None
            found.setdefault(str(node.inputs[0].name), []).append(node)
    return found


def _add(ranges: dict[str, Range], name: str, found: Range) -> None:
    ranges[name] = merged(ranges[name], found) if name in ranges else found
