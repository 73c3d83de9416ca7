"""A model's graph for editing: functions inlined, every node named, constants as initializers, types inferred."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wavefit.errors import InputError
from wavefit.model.graph import printable

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir

_WIDE = "__as_fp32"
_LARGEST_PROTO_BYTES = 1 << 30  # protobuf ends at 2 GiB; larger graphs keep their weights in a file beside
_READ_BY_INFERENCE_BYTES = 4096  # shapes, scales, indices: what inference reads the numbers of is small


def load(path: Path) -> ir.Model:
    """Reads a checked ONNX file.

    Node names are the file's; a node without one, or with one that another has already, is called by its first
    output. Values have their types and, as far as they can be inferred, their shapes. An initializer is a constant:
    old files list theirs among the inputs, where another value might be given. See also
    :mod:`wavefit.precision.simplify`.

    Raises:
        InputError: onnx-ir is missing, or the types of the graph do not fit together.
    """
    from wavefit.precision.simplify import simplify

    ir, passes = _onnx_ir()
    # weights in a file of their own are named relative to the model's folder, where no edited graph lies
    model = ir.external_data.load_to_model(ir.load(path))
    if "ai.onnx" in model.opset_imports:  # the default domain's other name, which onnx-ir gives to no node
        model.opset_imports[""] = model.opset_imports.pop("ai.onnx")
    passes.InlinePass()(model)
    passes.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    passes.RemoveInitializersFromInputsPass()(model)
    model.ir_version = max(model.ir_version, 4)  # until 3 every initializer had to be an input
    _name(model.graph)
    simplify(model)
    try:
        return infer(model)
    except InputError:  # shapes that an edit of the file left behind, which ONNX Runtime passes over
        _forget_shapes(model)
        return infer(model)


def _forget_shapes(model: ir.Model) -> None:
    for graph in model.graphs():
        for node in graph:
            for value in node.outputs:
                value.shape = None


def infer(model: ir.Model) -> ir.Model:
    """Infers types and shapes of every value anew, in place.

    Raises:
        InputError: they do not fit together; the message names the operator.
    """
    ir, _ = _onnx_ir()
    import onnx.shape_inference

    # onnx-ir's own pass logs an inference that failed and goes on with the types as they were
    try:
        proto = onnx.shape_inference.infer_shapes(
            ir.to_proto(_without_weights(model)), check_type=True, strict_mode=True, data_prop=True
        )
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError) as error:
        raise InputError(
            f"the types of the graph do not fit together: {printable(str(error), 300)}"
        ) from error
    for graph, inferred in zip(model.graphs(), ir.from_proto(proto).graphs(), strict=True):
        found = ir.convenience.create_value_mapping(inferred)
        for name, value in ir.convenience.create_value_mapping(graph).items():
            if name in found and found[name].type is not None:
                value.type = found[name].type
            if name in found and found[name].shape is not None:
                value.shape = found[name].shape
    return model


def _without_weights(model: ir.Model) -> ir.Model:
    """A copy with large constants as inputs: inference reads their types and shapes, and protobuf ends at 2 GiB."""
    light = copy(model)
    for name, value in list(light.graph.initializers.items()):
        if value.const_value is not None and value.const_value.nbytes > _READ_BY_INFERENCE_BYTES:
            del light.graph.initializers[name]
            if not value.is_graph_input():
                light.graph.inputs.append(value)
    return light


def copy(model: ir.Model) -> ir.Model:
    """A copy whose nodes and values may be changed; tensors are shared."""
    return model.clone()


def save(model: ir.Model, path: Path) -> None:
    """Writes the graph and holds it to onnx's full check and strict type inference.

    Raises:
        InputError: the check fails; the message names the node.
    """
    ir, _ = _onnx_ir()
    import onnx

    path.parent.mkdir(parents=True, exist_ok=True)
    external = f"{path.name}.data" if weight_bytes(model) > _LARGEST_PROTO_BYTES else None
    ir.save(model, path, external_data=external)
    try:
        onnx.checker.check_model(str(path), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError, RuntimeError) as error:
        raise InputError(f"{path} does not pass onnx's check: {printable(str(error), 300)}") from error


def weight_bytes(model: ir.Model) -> int:
    """Bytes of all stored tensors of the main graph."""
    values = model.graph.initializers.values()
    return sum(value.const_value.nbytes for value in values if value.const_value is not None)


def nodes(model: ir.Model) -> dict[str, ir.Node]:
    """The nodes of the main graph by name, in the graph's order."""
    return {str(node.name): node for node in model.graph}


def is_float(value: ir.Value | None) -> bool:
    """Whether a value is a tensor of a floating type of at most 32 bits: one that a precision may be chosen for."""
    ir, _ = _onnx_ir()
    kinds = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
    return value is not None and isinstance(value.type, ir.TensorType) and value.dtype in kinds


def constant(value: ir.Value | None) -> np.ndarray | None:
    """The array of an initializer; None for anything that is computed or given."""
    if value is None or value.const_value is None or value.producer() is not None:
        return None
    if value.is_graph_input():
        return None
    return value.const_value.numpy()


def float_nodes(model: ir.Model) -> Iterator[ir.Node]:
    """The nodes of the main graph that make a floating-point value."""
    return (node for node in model.graph if any(is_float(value) for value in node.outputs))


class Runner:
    """Runs a graph on the CPU with ONNX Runtime's optimisations off: one node after another, as the graph says.

    Args:
        model: the graph.
        outputs: values wanted, by name; the graph's outputs where left out.

    Raises:
        InputError: ONNX Runtime is missing, or does not take the graph.
    """

    def __init__(self, model: ir.Model, outputs: tuple[str, ...] = ()) -> None:
        ort = _onnxruntime()
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 4
        self.outputs = outputs or tuple(str(value.name) for value in model.graph.outputs)
        model, self._fetched = _widened(model, self.outputs)
        with _translated():
            self._session = ort.InferenceSession(
                serialized(model, self._fetched), options, providers=["CPUExecutionProvider"]
            )

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """One run; arrays by value name.

        Raises:
            InputError: the run failed.
        """
        with _translated():
            return dict(zip(self.outputs, self._session.run(list(self._fetched), dict(inputs)), strict=True))


def _widened(model: ir.Model, outputs: tuple[str, ...]) -> tuple[ir.Model, tuple[str, ...]]:
    """A graph and the names to ask it for: bfloat16 comes through a Cast to fp32, as numpy has no such type."""
    ir, _ = _onnx_ir()
    bfloat = {
        str(value.name)
        for node in model.graph
        for value in node.outputs
        if value.dtype == ir.DataType.BFLOAT16 and value.name in outputs
    }
    if not bfloat:
        return model, outputs
    model = copy(model)
    made = {value.name: value for node in model.graph for value in node.outputs}
    for name in sorted(bfloat):
        wide = ir.Value(name=f"{name}{_WIDE}", type=ir.TensorType(ir.DataType.FLOAT), shape=made[name].shape)
        cast = ir.node("Cast", [made[name]], {"to": int(ir.DataType.FLOAT)}, outputs=[wide])
        model.graph.append(cast)
    return model, tuple(f"{name}{_WIDE}" if name in bfloat else name for name in outputs)


def serialized(model: ir.Model, outputs: tuple[str, ...] = ()) -> bytes:
    """The model's bytes, with those outputs in place of its own.

    Raises:
        InputError: they are more than one message can hold.
    """
    ir, _ = _onnx_ir()
    if weight_bytes(model) > _LARGEST_PROTO_BYTES:
        raise InputError("the model is larger than 1 GiB, the most that a lower precision is searched for")
    proto = ir.to_proto(model)
    if not outputs:
        return bytes(proto.SerializeToString(deterministic=True))
    known = {value.name: value for value in (*proto.graph.output, *proto.graph.value_info)}
    del proto.graph.output[:]
    for name in outputs:
        if name in known:
            proto.graph.output.append(known[name])
        else:
            proto.graph.output.add(name=name)
    return bytes(proto.SerializeToString())


class _translated:
    """Turns what ONNX Runtime raises into an InputError."""

    def __enter__(self) -> None:
        from wavefit.model.prove import runtime_errors

        self._errors = runtime_errors()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None and isinstance(error, self._errors):
            said = printable(str(error).removeprefix("[ONNXRuntimeError] : "), 300)
            raise InputError(f"ONNX Runtime on the CPU does not run this graph: {said}") from error


def _name(graph: ir.Graph) -> None:
    taken: set[str] = set()
    for node in graph:
        candidates = (node.name, node.outputs[0].name if node.outputs else None)
        name = next((each for each in candidates if each and each not in taken), None)
        number = 0
        while name is None or name in taken:
            number += 1
            name = f"{node.op_type}_{number}"
        node.name = name
        taken.add(name)


def _onnx_ir() -> tuple[Any, Any]:
    try:
        import onnx_ir
        import onnx_ir.passes.common as passes
    except ImportError as error:
        raise InputError("a lower precision needs onnx-ir", "pip install 'wavefit[cpu]'") from error
    return onnx_ir, passes


def _onnxruntime() -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise InputError("a lower precision needs ONNX Runtime", "pip install 'wavefit[cpu]'") from error
    return onnxruntime
