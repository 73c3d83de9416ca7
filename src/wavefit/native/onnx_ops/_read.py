"""Reading an ONNX file for the engine: functions inlined, constants as initializers, nodes sorted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from wavefit.errors import InputError

if TYPE_CHECKING:
    import onnx_ir as ir


def read(path: Path) -> ir.Model:
    """The model, its weights in memory.

    Raises:
        InputError: onnx-ir is missing; the graph has no nodes, no outputs or a cycle, or reads what nobody makes.
    """
    try:
        import onnx_ir as ir
        import onnx_ir.passes.common as passes
    except ImportError as error:
        raise InputError("the OpenCL engine needs onnx-ir", "pip install 'wavefit[opencl]'") from error
    model = ir.external_data.load_to_model(ir.load(path))
    if "ai.onnx" in model.opset_imports:  # the default domain's other name
        model.opset_imports[""] = model.opset_imports.pop("ai.onnx")
    passes.InlinePass()(model)
    passes.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    passes.RemoveInitializersFromInputsPass()(model)
    _check(path, model)
    return model


def _check(path: Path, model: ir.Model) -> None:
    graph = model.graph
    if not len(graph) or not graph.outputs:
        raise InputError(
            f"{path}: the graph has no {'outputs' if len(graph) else 'nodes'}", "export the model again"
        )
    try:
        graph.sort()
    except ValueError as error:
        raise InputError(f"{path}: the graph has a cycle", "export the model again") from error
    known = set(graph.inputs) | set(graph.initializers.values())
    for node in graph:
        for value in node.inputs:
            if value is not None and value.name and value.producer() is None and value not in known:
                raise InputError(
                    f"{path}: {node.op_type} node {node.name!r} reads {value.name!r}, which nobody makes",
                    "export the model again",
                )
