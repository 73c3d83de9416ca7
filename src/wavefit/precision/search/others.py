"""Quantisers of others, where they are installed: judged by the same guard, kept as variants of their own."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from wavefit.errors import InputError
from wavefit.precision.graph import nodes
from wavefit.precision.int8 import quark
from wavefit.precision.int8.targets import Target
from wavefit.precision.search.material import Draft, Material, counts
from wavefit.schema import Precision

if TYPE_CHECKING:
    import onnx_ir as ir


def by_others(material: Material, target: Target) -> tuple[list[Draft], tuple[str, ...]]:
    """Drafts that pass, and in words why one that is installed gave none."""
    version = quark.version()
    if version is None:
        return [], ()
    if material.keep:
        return [], ("AMD Quark was not asked: it is told of no node that stays",)
    name = f"AMD Quark {version} {quark.CONFIGURATION}"
    material.say(f"int8: {name}")
    try:
        with tempfile.TemporaryDirectory() as folder:
            graph = quark.quantized(
                material.graph, material.split.calibration, Path(folder), material.judge.batch
            )
            judgement = material.judge(graph, "int8")
    except InputError as error:
        return [], (f"{name}: {error.what}",)
    if not judgement.passed:
        return [], (f"{name} does not pass: {judgement.reasons[0]}",)
    assignment: dict[str, Precision] = dict.fromkeys(_lowered(graph, nodes(material.graph)), "int8")
    draft = Draft(
        graph=graph,
        precision="int8",
        target=target.name,
        judgement=judgement,
        assignment=assignment,
        nodes=counts(material.graph, assignment),
        recipe={"quantiser": name},
        notes=material.split.notes,
    )
    return [draft], ()


def _lowered(graph: ir.Model, known: dict[str, ir.Node]) -> list[str]:
    """The model's nodes that read what was dequantised."""
    found = []
    for name, node in nodes(graph).items():
        makers = [value.producer() for value in node.inputs if value is not None]
        if name in known and any(
            maker is not None and maker.op_type == "DequantizeLinear" for maker in makers
        ):
            found.append(name)
    return found
