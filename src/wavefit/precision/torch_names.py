"""From nodes of an exported ONNX file to those of the PyTorch program beside it."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from wavefit.errors import InputError
from wavefit.model.torch_sources import SOURCES
from wavefit.schema import Model, Unsupported, Variant

_ROUTE = "torch_gpu"


def to_program(model: Model, nodes: Iterable[str]) -> tuple[str, ...]:
    """The nodes of ``model.exported_program`` that these nodes of ``model.path`` came from, in the program's order.

    A node that was decomposed is named by each of its parts; one that was fused away, by what it was fused into.

    Args:
        model: as wavefit exported it.
        nodes: names as :func:`wavefit.precision.graph.load` gives them.

    Raises:
        InputError: the file does not tell of a node where it came from: another exporter wrote it, or it is not the
            exporter's.
    """
    sources = _sources(model)
    known = {
        name: place
        for place, name in enumerate(dict.fromkeys(name for found in sources.values() for name in found))
    }
    wanted: set[str] = set()
    for node in nodes:
        if node not in sources:
            raise InputError(
                f"{model.path} does not tell which node of the PyTorch program {node!r} came from",
                "export the model again with wavefit export",
            )
        wanted.update(sources[node])
    return tuple(sorted(wanted, key=known.__getitem__))


def for_torch(model: Model, variant: Variant) -> Model | Unsupported:
    """The variant as PyTorch can run it: the model's program with the variant's islands in fp32.

    Stretches that the variant scales stay in fp32 as well, since the program has no scaling.

    Args:
        model: the fp32 model that the variant was made of.
        variant: in fp16 or bf16.

    Returns:
        ``variant.model`` with ``exported_program`` and ``program_fp32`` set, or why there is none.
    """
    kept = [node.node for node in variant.kept if node.precision == "fp32"]
    kept += [node for scaled in variant.scaled for node in scaled.nodes]
    if model.exported_program is None:
        return _refusal("the model came as an ONNX file, PyTorch runs its own programs only", "")
    try:
        names = to_program(model, kept)
    except InputError as error:
        return _refusal(error.what, error.fix)
    return msgspec.structs.replace(variant.model, exported_program=model.exported_program, program_fp32=names)


def _sources(model: Model) -> dict[str, tuple[str, ...]]:
    """For each node of the file that tells it, the program's nodes."""
    import onnx

    graph = onnx.load(model.path, load_external_data=False).graph
    found = {}
    for node in graph.node:
        for entry in node.metadata_props:
            if entry.key == SOURCES and node.name:
                found[node.name] = tuple(entry.value.split(","))
    return found


def _refusal(reason: str, fix: str) -> Unsupported:
    return Unsupported(route=_ROUTE, reason=reason, fix=fix)
