"""Which nodes are to blame for what a lower precision does to the answers, most first.

A node's own error is what it makes of fp32 inputs when it alone is rounded: one run finds it for all nodes, by a
rounded twin of each beside it. How far that reaches the outputs is found by lowering neighbours together, a few runs;
a group's error at the outputs is shared out among its nodes by their own errors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from wavefit.model.samples import Samples
from wavefit.precision.graph import Runner, is_float
from wavefit.precision.graph import nodes as by_name
from wavefit.precision.half.emulate import emulated
from wavefit.precision.half.ranges import batches, chunks, frozen_batch, sized
from wavefit.schema import Precision

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir

ITEMS = 4
"""Most items that are run."""

GROUPS = 16
"""Most groups that are lowered on their own."""

_WORST = 1e30  # stands for NaN and Inf, which have no order


def attribute(model: ir.Model, nodes: Sequence[str], samples: Samples, low: Precision = "fp16") -> list[str]:
    """``nodes`` by how much of the outputs' error they cause when they are lowered, most first.

    Args:
        nodes: those that may be lowered, in the graph's order.
        samples: the first few items are run.

    Raises:
        InputError: ONNX Runtime is missing, or does not run the graph.
    """
    few = _few(model, samples)
    own = own_errors(model, nodes, few, low)
    blame: dict[str, float] = {}
    size = max(1, -(-len(nodes) // GROUPS))
    expected = _outputs(model, few)
    for start in range(0, len(nodes), size):
        group = nodes[start : start + size]
        reached = _apart(expected, _outputs(emulated(model, dict.fromkeys(group, low)), few))
        whole = math.sqrt(sum(own[name] ** 2 for name in group))
        blame |= {name: reached * own[name] / whole if whole else 0.0 for name in group}
    return sorted(nodes, key=lambda name: (-blame[name], -own[name]))


def own_errors(
    model: ir.Model, nodes: Sequence[str], samples: Samples, low: Precision = "fp16"
) -> dict[str, float]:
    """Each node's relative L2 error when it alone is lowered and its inputs are those of fp32; 1e30 for NaN or Inf."""
    batch = frozen_batch(model) or samples.count
    twins = sized(model, samples, batch)
    pairs = _add_twins(twins, nodes)
    rounded = emulated(twins, {f"{name}{_TWIN}": low for name in nodes})
    errors = dict.fromkeys(nodes, 0.0)
    for names in chunks((value for value, _ in pairs), samples, 2 * batch):
        wanted = {name: node for value, node in pairs for name in names if str(value.name) == name}
        run = Runner(rounded, (*names, *(f"{name}{_TWIN}" for name in names)))
        for inputs in batches(model, samples, batch):
            found = run(inputs)
            for name, node in wanted.items():
                errors[node] = max(errors[node], _relative(found[name], found[f"{name}{_TWIN}"]))
    return errors


_TWIN = "__lowered"


def _add_twins(model: ir.Model, nodes: Sequence[str]) -> list[tuple[ir.Value, str]]:
    """Beside each node one with the same inputs; its float outputs and the node's name."""
    import onnx_ir as ir

    known = by_name(model)
    pairs: list[tuple[ir.Value, str]] = []
    for name in nodes:
        node = known[name]
        outputs = [
            ir.Value(name=f"{value.name}{_TWIN}" if value.name else "", type=value.type, shape=value.shape)
            for value in node.outputs
        ]
        twin = ir.Node(
            node.domain,
            node.op_type,
            node.inputs,
            node.attributes.values(),
            outputs=outputs,
            version=node.version,
            name=f"{name}{_TWIN}",
        )
        model.graph.insert_after(node, twin)
        pairs += [(value, name) for value in node.outputs if value.name and is_float(value)]
    return pairs


def _few(model: ir.Model, samples: Samples) -> Samples:
    import numpy as np

    count = min(samples.count, max(ITEMS, frozen_batch(model) or 1))
    return Samples(samples.pick(np.arange(count)), None, samples.source, samples.whole)


def _outputs(model: ir.Model, samples: Samples) -> list[dict[str, np.ndarray]]:
    run = Runner(model)
    return [run(inputs) for inputs in batches(model, samples, frozen_batch(model) or samples.count)]


def _apart(expected: Sequence[Mapping[str, np.ndarray]], actual: Sequence[Mapping[str, np.ndarray]]) -> float:
    """The largest relative L2 error of any output."""
    return max(
        _relative(one[name], other[name])
        for one, other in zip(expected, actual, strict=True)
        for name in one
        if one[name].dtype.kind == "f"
    )


def _relative(expected: np.ndarray, actual: np.ndarray) -> float:
    import numpy as np

    d = expected.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        same = d == actual  # Inf in both is no error
        error = float(np.linalg.norm(np.where(same, 0.0, d - actual)))
    size = float(np.linalg.norm(d[np.isfinite(d)]))
    if not math.isfinite(error):
        return _WORST
    return error / size if size else (_WORST if error else 0.0)
