"""Loading an ONNX file: checked before anything big is read, described in a Model."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from pathlib import Path
from typing import Any

from wavefit.errors import InputError
from wavefit.model import graph as walk
from wavefit.model.formats import check_file
from wavefit.model.shapes import batch_dim, dynamic_dims
from wavefit.schema import Model, Precision

_NOT_PARAMETERS = ("int64", "bool", "string")  # shapes, indices, axes
_FLOATS: dict[int, Precision] = {1: "fp32", 10: "fp16", 16: "bf16"}  # onnx.TensorProto.DataType
_QUANTIZING = {"QuantizeLinear", "QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger"}
_LONGEST = 300  # characters quoted from another program's message


def load(path: Path) -> Model:
    """Checks an ONNX file and describes it. Weights in external files are not loaded, only looked through.

    Raises:
        InputError: the file is not an ONNX model that can be run safely; one sentence says what, where, what to do.
    """
    path = Path(path)
    check_file(path)
    path = path.absolute()  # not resolved: external data lie beside the name that was given
    proto = parse(path)
    try:
        return _load(path, proto)
    except InputError as error:
        raise InputError(f"{path}: {walk.printable(error.what)}", walk.printable(error.fix)) from error


def parse(path: Path) -> Any:
    """The onnx.ModelProto of a file, without its external data.

    Raises:
        InputError: the file cannot be read, or is no ONNX protobuf.
    """
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    model = onnx.ModelProto()
    try:
        model.ParseFromString(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    except DecodeError as error:
        raise InputError(
            f"{path} is no ONNX model, or only a part of one", "export or download it again"
        ) from error
    return model


def _load(path: Path, proto: Any) -> Model:
    from wavefit.model import checks

    checks.check_versions(proto)
    checks.check_text(proto)
    checks.check_dense(proto)
    checks.check_names(proto)
    inputs, outputs = checks.inputs(proto), checks.outputs(proto)
    external = _check_tensors(path, proto)
    checks.check_operators(proto)
    checks.check_bombs(proto)
    _check_onnx(path)
    parameters, weight_bytes = _weigh(proto)
    types = Counter(node.op_type for node in walk.nodes(proto.graph))
    return Model(
        name=path.stem,
        path=str(path),
        sha256=_sha256(path, external),
        opset=walk.opset(proto) or 1,
        ir_version=proto.ir_version,
        producer=" ".join((proto.producer_name, proto.producer_version)).strip() or None,
        inputs=inputs,
        outputs=outputs,
        nodes=sum(types.values()),
        nodes_by_type=dict(types.most_common()),
        parameters=parameters,
        weight_bytes=weight_bytes,
        dynamic=dynamic_dims(inputs),
        batch=batch_dim(inputs),
        external=external,
        precision=precision_of(proto),
    )


def _check_tensors(path: Path, proto: Any) -> tuple[str, ...]:
    """Sizes of all tensors first, then their values; returns the external files, relative to the folder."""
    from wavefit.model import tensors

    found = list(walk.stored(proto))
    for item in found:
        tensors.check_size(item, path.parent)
    outside = [item for item in found if item.tensor.data_location == tensors.EXTERNAL]
    if outside and path.is_symlink():
        # ONNX Runtime looks for the data beside the file that the link leads to, the package onnx beside the link.
        raise InputError(
            "it is a link, and its weights are separate files", f"give the real path: {path.resolve()}"
        )
    for item in found:
        tensors.check_finite(item, path.parent)
    files = {tensors.external_range(item, path.parent)[0] for item in outside}
    return tuple(sorted(file.relative_to(path.parent).as_posix() for file in files))


def _check_onnx(path: Path) -> None:
    """The package onnx's own checker, by path, so that weights over 2 GB need not be in memory."""
    import onnx

    try:
        onnx.checker.check_model(str(path))
    except (onnx.checker.ValidationError, RuntimeError, ValueError) as error:
        said = walk.printable(str(error).split("==> Context")[0], _LONGEST).rstrip(".")
        raise InputError(f"the ONNX checker says: {said}", "export the model again") from error


def _weigh(proto: Any) -> tuple[int, int]:
    """Parameters (elements of float and quantized tensors) and bytes of everything stored."""
    from wavefit.model import tensors

    parameters = weight_bytes = 0
    for tensor, _, _ in walk.stored(proto):
        weight_bytes += tensors.needed_bytes(tensor)
        if tensors.TYPES[tensor.data_type][0] not in _NOT_PARAMETERS:
            parameters += math.prod(tensor.dims)
    return parameters, weight_bytes


def precision_of(proto: Any) -> Precision:
    """What a file computes in: int8 where it quantizes, else the type of most of its float weights (inputs if none)."""
    kinds = {node.op_type for node in walk.nodes(proto.graph)}
    if kinds & _QUANTIZING:
        return "int8"
    elements: Counter[int] = Counter()
    for tensor, _, _ in walk.stored(proto):
        elements[tensor.data_type] += math.prod(tensor.dims)
    for value in proto.graph.input:
        elements[value.type.tensor_type.elem_type] += 0
    floats = {kind: elements[number] for number, kind in _FLOATS.items() if number in elements}
    return max(floats, key=lambda kind: floats[kind], default="fp32")


def _sha256(path: Path, external: tuple[str, ...]) -> str:
    """The file's own SHA-256; with external data, that of the digests of all files in the order of their names."""
    digests = [_digest(path), *(_digest(path.parent / name) for name in external)]
    return digests[0].hex() if len(digests) == 1 else hashlib.sha256(b"".join(digests)).hexdigest()


def _digest(path: Path) -> bytes:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.digest()
