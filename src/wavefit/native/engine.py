"""From an ONNX file to a program: import, passes, layout, kernels, memory. Touches no device."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from wavefit.native import passes
from wavefit.native.graph import Graph
from wavefit.native.half import store
from wavefit.native.import_onnx import load
from wavefit.native.operation import UnsupportedNode
from wavefit.native.program import Kernels, Program, compile_graph

if TYPE_CHECKING:
    import onnx_ir as ir


def prepare(
    source: Path | ir.Model,
    shapes: Mapping[str, tuple[int, ...]],
    kernels: Kernels,
    storage: str | None = None,
) -> Program | tuple[UnsupportedNode, ...]:
    """Compiles a model for fixed input shapes.

    Args:
        source: the ONNX file, or a stage of one: see :mod:`wavefit.native.partition`.
        shapes: of every input.
        kernels: the templates of one language, for one device.
        storage: "float16" or "bfloat16" keeps tensors between kernels in 16 bits; None: as the file has them.

    Returns:
        The program, or the nodes that stand in the way, each named.

    Raises:
        InputError: the file cannot be read, or the shapes do not fit it.
    """
    graph = read(source, shapes, storage)
    if isinstance(graph, tuple):
        return graph
    kernels.rewrite(graph)
    return compile_graph(graph, kernels)


def read(
    source: Path | ir.Model, shapes: Mapping[str, tuple[int, ...]], storage: str | None = None
) -> Graph | tuple[UnsupportedNode, ...]:
    """A model's graph after all passes that every language shares; see :func:`prepare`."""
    graph = load(source, shapes)
    if isinstance(graph, tuple):
        return graph
    passes.run(graph)
    if storage is not None:
        store(graph, storage)
    return graph
