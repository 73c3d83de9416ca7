"""onnx's own test cases of the operators that the engine claims, at the level of single nodes.

Used for the importer with the interpreter, and again on devices.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import numpy as np
import onnx
from onnx import numpy_helper

from wavefit.native.onnx_ops import operators
from wavefit.native.onnx_ops.refused import REFUSED

_OLDEST = 7  # operator sets before this one broadcast by attributes


class Case(NamedTuple):
    """One node, and what it makes of its inputs."""

    name: str
    model: onnx.ModelProto
    inputs: dict[str, np.ndarray]
    outputs: dict[str, np.ndarray]


def cases() -> Iterator[Case]:
    """Every case of a claimed operator; what a case gives as data that must be known is an initializer here."""
    claimed = set(operators()) - REFUSED
    for case in _all():
        node = case.model.graph.node[0]
        opset = max((entry.version for entry in case.model.opset_import if not entry.domain), default=1)
        alone = len(case.model.graph.node) == 1 and not node.domain
        if alone and node.op_type in claimed and opset >= _OLDEST and _tensors(case):
            yield _case(case)


@cache
def _all() -> list[object]:
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return collect_testcases(None)


_KNOWN = {  # inputs that the engine must know before running, by number
    "CumSum": (1,),
    "Dropout": (1, 2),
    "Expand": (1,),
    "OneHot": (1,),
    "Pad": (1, 2, 3),
    "Reshape": (1,),
    "Resize": (1, 2, 3),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "Squeeze": (1,),
    "Tile": (1,),
    "Trilu": (1,),
    "Unsqueeze": (1,),
    "Upsample": (1,),
}


def _tensors(case: object) -> bool:
    """Whether all that goes in and out are tensors with elements: the engine takes no sequences."""
    inputs, outputs = case.data_sets[0]
    return all(isinstance(each, (np.ndarray, np.generic)) and np.size(each) for each in (*inputs, *outputs))


def _case(case: object) -> Case:
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    given, wanted = ([np.asarray(each) for each in part] for part in case.data_sets[0])
    names = [entry.name for entry in model.graph.input]
    inputs = dict(zip(names, given, strict=True))
    node = model.graph.node[0]
    for index in (1,) if node.op_type.startswith("Reduce") else _KNOWN.get(node.op_type, ()):
        if index < len(node.input) and node.input[index] in inputs:
            name = node.input[index]
            model.graph.initializer.append(numpy_helper.from_array(inputs.pop(name), name))
    outputs = {entry.name: array for entry, array in zip(model.graph.output, wanted, strict=True)}
    return Case(case.name, model, inputs, outputs)
