"""From an ONNX file to a program: import, passes, layout, kernels, memory. Touches no device."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from wavefit.native import passes
from wavefit.native.half import store_half
from wavefit.native.import_onnx import load
from wavefit.native.operation import UnsupportedNode
from wavefit.native.program import Kernels, Program, compile_graph

if TYPE_CHECKING:
    import onnx_ir as ir


def prepare(
    source: Path | ir.Model, shapes: Mapping[str, tuple[int, ...]], kernels: Kernels, half: bool = False
) -> Program | tuple[UnsupportedNode, ...]:
    """Compiles a model for fixed input shapes.

    Args:
        source: the ONNX file, or a stage of one: see :mod:`wavefit.native.partition`.
        shapes: of every input.
        kernels: the templates of one language, for one device.
        half: keep tensors between kernels in 16 bits.

    Returns:
        The program, or the nodes that stand in the way, each named.

    Raises:
        InputError: the file cannot be read, or the shapes do not fit it.
    """
    graph = load(source, shapes)
    if isinstance(graph, tuple):
        return graph
    passes.run(graph)
    if half:
        store_half(graph)
    kernels.rewrite(graph)
    return compile_graph(graph, kernels)
