"""Checks on a parsed ONNX model: versions, operators, names, inputs and outputs, shapes that would eat the memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from wavefit.errors import InputError
from wavefit.model import graph as walk
from wavefit.model.tensors import EXTERNAL, TYPES, elements
from wavefit.schema import Dim, TensorSpec

MAX_TENSOR_BYTES = 1 << 36  # 64 GiB in one tensor: a mistake or an attack, not a model

# Domains that ONNX Runtime brings its own operators for; the package onnx has no schemas of them.
_RUNTIME_DOMAINS = ("com.microsoft", "com.microsoft.nchwc", "com.ms.internal.nhwc", "ai.onnx.contrib")

_NEEDS_TENSOR = (
    "wavefit feeds and compares plain tensors: export the model with dense tensor inputs and outputs"
)


def check_versions(model: Any) -> None:
    """Refuses versions that the installed package onnx does not know, and models without a graph or opset."""
    import onnx

    if not model.HasField("graph") or not model.ir_version:
        raise InputError("it holds no ONNX graph", "export or download the model again")
    if model.ir_version < 3:
        raise InputError(
            f"it has IR version {model.ir_version}, from before ONNX 1.0", "export the model again"
        )
    if model.ir_version > onnx.IR_VERSION:
        raise InputError(
            f"it has IR version {model.ir_version}, the installed onnx {onnx.__version__} reads up to "
            f"{onnx.IR_VERSION}",
            "pip install -U onnx, or export with an older opset",
        )
    newest = onnx.defs.onnx_opset_version()
    version = walk.opset(model)
    if not model.opset_import:
        raise InputError("it imports no operator set", "export the model again")
    if version is not None and not 1 <= version <= newest:
        raise InputError(
            f"it uses opset {version}, the installed onnx {onnx.__version__} knows 1 to {newest}",
            "pip install -U onnx, or export with an older opset",
        )


def check_text(model: Any) -> None:
    """Refuses names that are not UTF-8: the protobuf reader hands those out as bytes."""
    graphs = list(walk.graphs(model.graph))
    nodes = [node for graph in graphs for node in graph.node]
    nodes += [node for function in model.functions for node in walk.function_nodes(function)]
    texts = [model.producer_name, model.producer_version, *(entry.domain for entry in model.opset_import)]
    for node in nodes:
        texts += [node.name, node.op_type, node.domain, *node.input, *node.output]
        texts += [attribute.name for attribute in node.attribute]
    for graph in graphs:
        for entry in (*graph.input, *graph.output, *graph.value_info):
            texts += [entry.name, *(dim.dim_param for dim in entry.type.tensor_type.shape.dim)]
    for item in walk.stored(model):
        texts.append(item.tensor.name)
        texts += [text for entry in item.tensor.external_data for text in (entry.key, entry.value)]
    for function in model.functions:
        texts += [function.name, function.domain, *(entry.domain for entry in function.opset_import)]
    if any(isinstance(text, bytes) for text in texts):
        raise InputError("it has a name that is no text", "the file is damaged: export or download it again")


def check_operators(model: Any) -> None:
    """Refuses operators that neither ONNX, ONNX Runtime nor a function of the model defines."""
    functions = {(function.domain, function.name) for function in model.functions}
    imports = {entry.domain: entry.version for entry in model.opset_import}
    _check_nodes(walk.nodes(model.graph), imports, functions)
    for function in model.functions:
        own = imports | {entry.domain: entry.version for entry in function.opset_import}
        _check_nodes(walk.function_nodes(function), own, functions)


def _check_nodes(nodes: Iterable[Any], imports: dict[str, int], functions: set[tuple[str, str]]) -> None:
    import onnx

    seen: set[tuple[str, str]] = set()
    for node in nodes:
        kind = (node.domain, node.op_type)
        if kind in seen or kind in functions or node.domain in _RUNTIME_DOMAINS:
            continue
        seen.add(kind)
        domain = "" if node.domain in walk.DEFAULT_DOMAINS else node.domain
        names = walk.DEFAULT_DOMAINS if not domain else (domain,)
        version = next((imports[name] for name in names if name in imports), 1)
        if not onnx.defs.has(node.op_type, version, domain):
            raise InputError(
                f"{walk.called(node)} uses the operator {node.op_type!r} of domain {domain or 'ai.onnx'!r}, "
                f"which opset {version} does not have",
                "replace it by standard operators, or define it as a function in the model",
            )


def check_names(model: Any) -> None:
    """Refuses names that are given twice or lead nowhere, at the model's own level."""
    graph = model.graph
    groups = {"input": graph.input, "output": graph.output, "initializer": graph.initializer}
    for what, entries in groups.items():
        seen: set[str] = set()
        for entry in entries:
            if not entry.name:
                raise InputError(f"an {what} of the graph has no name", "export the model again")
            if entry.name in seen:
                raise InputError(f"the {what} name {entry.name!r} is there twice", "export the model again")
            seen.add(entry.name)
    made = {name for node in graph.node for name in node.output}
    made.update(entry.name for part in (graph.input, graph.initializer) for entry in part)
    for entry in graph.output:
        if entry.name not in made:
            raise InputError(f"no node makes the output {entry.name!r}", "export the model again")


def check_dense(model: Any) -> None:
    """Refuses sparse tensors: their declared shape says nothing about their bytes."""
    sparse = any(len(graph.sparse_initializer) for graph in walk.graphs(model.graph))
    if sparse:
        raise InputError("it stores sparse initializers", "export the model with dense weights")
    for node in walk.nodes(model.graph):
        if any(attribute.HasField("sparse_tensor") for attribute in node.attribute):
            raise InputError(
                f"{walk.called(node)} holds a sparse tensor", "export the model with dense weights"
            )


def inputs(model: Any) -> tuple[TensorSpec, ...]:
    """The inputs that a caller gives: those of the graph without the ones that an initializer fills.

    Raises:
        InputError: there are none, or one is no dense tensor, or has a dimension below 1 or is too big.
    """
    filled = {tensor.name for tensor in model.graph.initializer}
    specs = tuple(_spec("input", entry) for entry in model.graph.input if entry.name not in filled)
    if not specs:
        raise InputError(
            "it has no inputs", "wavefit measures models that take data: export it with an input"
        )
    for spec in specs:
        if 0 in (spec.shape or ()):
            raise InputError(
                f"input {spec.name!r} has a dimension of size 0: {list(spec.shape or ())}",
                "export it with a real size or a symbolic one",
            )
        fixed = [dim for dim in spec.shape or () if isinstance(dim, int)]
        _check_bytes(f"input {spec.name!r}", fixed, _bits(spec.dtype))
    return specs


def outputs(model: Any) -> tuple[TensorSpec, ...]:
    """The outputs.

    Raises:
        InputError: there are none, or one is no dense tensor.
    """
    if not model.graph.output:
        raise InputError("it has no outputs", "export it with the outputs that are wanted")
    return tuple(_spec("output", entry) for entry in model.graph.output)


def _spec(what: str, entry: Any) -> TensorSpec:
    kind = entry.type.WhichOneof("value")
    if kind != "tensor_type":
        said = (kind or "undeclared type").removesuffix("_type").replace("_", " ")
        raise InputError(f"{what} {entry.name!r} is no plain tensor (it is: {said})", _NEEDS_TENSOR)
    tensor = entry.type.tensor_type
    if tensor.elem_type not in TYPES:
        raise InputError(
            f"{what} {entry.name!r} has no known element type ({tensor.elem_type})", _NEEDS_TENSOR
        )
    if not tensor.HasField("shape"):
        raise InputError(
            f"{what} {entry.name!r} has no shape",
            "run onnx.shape_inference.infer_shapes on the model, or export it again",
        )
    shape = tuple(_dim(what, entry.name, dim) for dim in tensor.shape.dim)
    return TensorSpec(name=entry.name, dtype=TYPES[tensor.elem_type][0], shape=shape)


def _dim(what: str, name: str, dim: Any) -> Dim:
    if not dim.HasField("dim_value"):
        return dim.dim_param or None
    if dim.dim_value < 0:
        raise InputError(
            f"{what} {name!r} has a dimension of size {dim.dim_value}",
            "a dynamic dimension takes a name (dim_param) in place of a number: export it again",
        )
    return int(dim.dim_value)


def check_bombs(model: Any) -> None:
    """Refuses nodes that would make a tensor of more than 64 GiB out of a stored shape.

    Only what is cheap to know: ConstantOfShape and Expand whose shape is an initializer or a Constant.
    """
    for graph in walk.graphs(model.graph):
        stored = {tensor.name: tensor for tensor in graph.initializer}
        stored |= dict(_constants(graph.node))
        for node in graph.node:
            index = {"ConstantOfShape": 0, "Expand": 1}.get(node.op_type)
            if index is None or index >= len(node.input):
                continue
            shape = _small_ints(stored.get(node.input[index]))
            if shape is not None:
                _check_bytes(walk.called(node), shape, 32)


def _constants(nodes: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    for node in nodes:
        if node.op_type == "Constant" and node.output:
            for attribute in node.attribute:
                if attribute.name == "value" and attribute.HasField("t"):
                    yield node.output[0], attribute.t


def _small_ints(tensor: Any) -> list[int] | None:
    """The values of a stored int64 vector of at most 16 elements (a shape), None for anything else."""
    if tensor is None or tensor.data_type != 7 or tensor.data_location == EXTERNAL or elements(tensor) > 16:
        return None
    if tensor.HasField("raw_data"):
        raw = tensor.raw_data
        return [int.from_bytes(raw[at : at + 8], "little", signed=True) for at in range(0, len(raw), 8)]
    return list(tensor.int64_data)


def _check_bytes(what: str, shape: Sequence[int], bits: int) -> None:
    size = math.prod(max(dim, 1) for dim in shape) * bits // 8
    if size > MAX_TENSOR_BYTES:
        raise InputError(
            f"{what} makes a tensor of {size} bytes ({'x'.join(map(str, shape))}), more than 64 GiB",
            "check its shape and export the model again",
        )


def _bits(dtype: str) -> int:
    return next(bits for name, bits, _ in TYPES.values() if name == dtype)
