"""The steps as PyTorch runs them: operators that its ONNX exporter took apart are put together again.

The exporter names what an operator of the exported program makes after its node, and what is made on the way
`val_0`, `val_1`, ... (torch/onnx/_internal/exporter: _core.py, _building.py). So a linear layer's MatMul and Add, the
five nodes of GELU, and attention's scores are one operator each. What lies between its nodes, PyTorch never
holds as a tensor: fused attention makes no scores (aten::scaled_dot_product_attention), which was seen of a vision
transformer on an H200.
"""

from __future__ import annotations

import re
from collections import Counter

from wavefit.plan.peaks import MATRIX_OPS
from wavefit.plan.trace import Step, Trace

FUSED_ATTENTION = "Attention"
_ON_THE_WAY = re.compile(r"val_\d+")


def as_torch(trace: Trace) -> list[Step]:
    """The steps, those of one operator joined where its last one stands."""
    steps = _linear(trace)
    readers = Counter(name for step in steps for name in step.inputs)
    parts: dict[str, set[int]] = {}  # what an operator has made on the way, and by which steps
    found: list[Step] = []
    for index, step in enumerate(steps):
        group = {index}.union(*(parts[name] for name in step.inputs if name in parts))
        if _inside(step, trace, readers):
            parts[step.outputs[0]] = group
        else:
            found.append(_one([steps[each] for each in sorted(group)]))
    return found


def _inside(step: Step, trace: Trace, readers: Counter[str]) -> bool:
    """Whether the step's only output goes on to another step of its operator."""
    names = step.outputs
    return (
        len(names) == 1
        and bool(_ON_THE_WAY.fullmatch(names[0]))
        and names[0] not in trace.outputs
        and (readers[names[0]] > 0)
    )


def _one(group: list[Step]) -> Step:
    """One step that reads what none of the group makes; its kind is that of the node that does most of the work."""
    if len(group) == 1:
        return group[0]
    made = {name for step in group for name in step.outputs}
    kinds = {step.op: step for step in group}
    chosen = next((step for step in group if step.op in MATRIX_OPS), kinds.get("Erf", group[-1]))
    kind = FUSED_ATTENTION if "Softmax" in kinds and chosen.op == "MatMul" else chosen.op
    return group[-1]._replace(
        op=kind,
        inputs=tuple(dict.fromkeys(name for step in group for name in step.inputs if name not in made)),
        weights=tuple(dict.fromkeys(name for step in group for name in step.weights)),
        attributes=chosen.attributes,
    )


def _linear(trace: Trace) -> list[Step]:
    """A MatMul by a weight and the Add of its bias are one operator in PyTorch, and make one buffer."""
    steps: list[Step] = []
    made: dict[str, int] = {}
    for step in trace.steps:
        alone = step.op == "Add" and len(step.inputs) == 1 and step.weights
        index = made.get(step.inputs[0]) if alone else None
        if index is not None:
            steps[index] = steps[index]._replace(outputs=step.outputs)
            continue
        if step.op == "MatMul" and step.weights:
            made[step.outputs[0]] = len(steps)
        steps.append(step)
    return steps
