"""PyTorch's two exporters, called so that each gives an ONNX file or a reason."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wavefit.model import torch_sources
from wavefit.model.foreign import attempt
from wavefit.model.torch_source import TorchSource, described
from wavefit.schema import TensorSpec

if TYPE_CHECKING:
    import numpy as np

DEFAULT_OPSET = 18
"""The dynamo exporter writes 18 and converts from there; converting down often fails."""

EXTERNAL_BYTES = 1_800_000_000
"""Above it weights go to a file of their own: protobuf ends at 2 GiB."""

TORCHSCRIPT_OPSETS = range(7, 21)


@dataclass(frozen=True)
class Wanted:
    """What the ONNX file should be like.

    Attributes:
        example: one array for each input, with a batch of 2.
        axes: for each input its dynamic axes and their names; {} where none is.
        outputs: names of the outputs.
    """

    example: Sequence[np.ndarray]
    axes: Sequence[dict[int, str]]
    outputs: Sequence[str]
    opset: int = DEFAULT_OPSET
    external: bool = False


@dataclass(frozen=True)
class Attempt:
    """What an exporter did: it wrote the file (``reason`` is ""), or why it did not."""

    reason: str = ""
    program: Any = None  # the ExportedProgram on the way, also where the ONNX file failed
    data_dependent: bool = False  # what the module does depends on its input's values


def program(source: TorchSource, wanted: Wanted) -> Attempt:
    """torch.export alone, with the wanted dynamic axes; a source that is a program already is that program."""
    import torch

    found = source.program
    if found is None:
        with quiet(), contextlib.redirect_stderr(io.StringIO()), attempt() as tried:
            found = torch.export.export(
                source.module, _tensors(wanted.example), dynamic_shapes=_shapes(source, wanted)
            )
        if tried.error is not None:
            return Attempt(
                reason=guard(tried.error) + _frozen_at(source, wanted, tried.error),
                data_dependent="DataDependent" in type(tried.error).__name__,
            )
    frozen = _frozen(found, wanted)
    return Attempt(reason=frozen) if frozen else Attempt(program=found)


def dynamo(source: TorchSource, wanted: Wanted, path: Path) -> Attempt:
    """torch.export, then the ONNX exporter that is built on it."""
    import torch

    made = program(source, wanted)
    if made.reason:
        return made
    with quiet(), attempt() as tried:
        onnx_program = torch.onnx.export(
            made.program,
            _tensors(wanted.example),
            dynamo=True,
            opset_version=wanted.opset,
            input_names=[spec.name for spec in source.inputs],
            output_names=list(wanted.outputs),
            optimize=True,
            verbose=False,
        )
        torch_sources.note(onnx_program.model, onnx_program.exported_program, made.program)
        onnx_program.save(str(path), external_data=wanted.external)
    if tried.error is not None:
        return Attempt(reason=_cause(tried.error), program=made.program)
    return Attempt(reason=_opset_reason(path, wanted.opset), program=made.program)


def torchscript(source: TorchSource, wanted: Wanted, path: Path) -> Attempt:
    """The older exporter, which records one run of the module."""
    import torch

    if source.module is None:
        return Attempt(reason="it exports modules only, not exported programs")
    if wanted.external:
        return Attempt(reason="it cannot write more than 2 GB")
    if wanted.opset not in TORCHSCRIPT_OPSETS:
        return Attempt(reason=f"it writes opsets 7 to 20, not {wanted.opset}")
    names = [spec.name for spec in source.inputs]
    axes = {name: found for name, found in zip(names, wanted.axes, strict=True) if found}
    with quiet(), _no_output(), attempt() as tried:
        torch.onnx.export(
            source.module,
            _tensors(wanted.example),
            str(path),
            dynamo=False,
            opset_version=wanted.opset,
            input_names=names,
            output_names=list(wanted.outputs),
            dynamic_axes={**axes, **{name: {0: "batch"} for name in wanted.outputs}},
            do_constant_folding=True,
        )
    return Attempt(reason=described(tried.error) if tried.error else "")


def guard(error: BaseException) -> str:
    """What froze a dimension, in torch.export's own words: the constraint or guard, and the user's line."""
    text = str(error)
    place = re.findall(r'File "([^"]+)", line (\d+), in \w+', text)
    said = re.search(r"(Could not guard on [^\n]+|- You marked [^\n]+|- Not all values [^\n]+)", text)
    if said is None:
        return described(error)
    clause = re.split(r"\.\s|\(unhinted", said.group(1).removeprefix("- "))[0].strip(" .")
    where = f" (at {Path(place[-1][0]).name}:{place[-1][1]})" if place else ""
    return clause + where


def _frozen_at(source: TorchSource, wanted: Wanted, error: BaseException) -> str:
    """ " by the guard Eq(s77, 2) at net.py:12": torch.export does not say where, its draft does."""
    import torch

    if "specialized it to be a constant" not in str(error):
        return ""
    with quiet(), contextlib.redirect_stderr(io.StringIO()), attempt():
        draft = torch.export.draft_export(
            source.module, _tensors(wanted.example), dynamic_shapes=_shapes(source, wanted)
        )
        report = str(draft._report).split("Locals:")[0]
        said = re.search(r"guard was added: (.+?), where", report)
        places = re.findall(r"File (.+), lineno (\d+)", report)
        if said and places:
            return f" by the guard {said[1]} (at {Path(places[-1][0]).name}:{places[-1][1]})"
    return ""


def _shapes(source: TorchSource, wanted: Wanted) -> Any:
    """dynamic_shapes for torch.export: the batch must stay dynamic, heights and widths are looked at afterwards."""
    from torch.export import Dim

    batch = Dim("batch")
    shapes = tuple(
        {axis: batch if axis == 0 else Dim.AUTO for axis in axes} if axes else None for axes in wanted.axes
    )
    if _is_variadic(source.module):
        return (shapes,)
    return shapes


def _is_variadic(module: Any) -> bool:
    import inspect

    parameters = list(inspect.signature(module.forward).parameters.values())
    return bool(parameters) and parameters[0].kind is inspect.Parameter.VAR_POSITIONAL


def _frozen(program: Any, wanted: Wanted) -> str:
    """Which dynamic axis torch.export made a constant, "" where all are symbols still."""
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    for name, axes in zip(program.graph_signature.user_inputs, wanted.axes, strict=True):
        shape = nodes[name].meta["val"].shape
        for axis in axes:
            if isinstance(shape[axis], int):
                return f"torch.export made axis {axis} of input {name!r} a constant {shape[axis]}"
    return ""


def _opset_reason(path: Path, opset: int) -> str:
    import onnx

    model = onnx.load(str(path), load_external_data=False)
    found = next((entry.version for entry in model.opset_import if not entry.domain), None)
    return "" if found == opset else f"it wrote opset {found} and could not convert that to {opset}"


def _cause(error: BaseException) -> str:
    """The exporter wraps what happened in several errors: the innermost one tells."""
    while error.__cause__ is not None:
        error = error.__cause__
    return described(error)


def _tensors(arrays: Sequence[np.ndarray]) -> tuple[Any, ...]:
    import torch

    return tuple(torch.from_numpy(array.copy()) for array in arrays)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """The exporters log and warn at length; what matters of it comes back as a reason."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


@contextlib.contextmanager
def _no_output() -> Iterator[None]:
    """TorchScript's C++ prints whole graphs to file descriptor 1, where --json belongs."""
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def weight_bytes(source: TorchSource) -> int:
    """Bytes of parameters and buffers."""
    holder = source.module if source.module is not None else source.program
    tensors = (*holder.parameters(), *holder.buffers())
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def batch_axes(inputs: Sequence[TensorSpec]) -> tuple[bool, ...]:
    """Which inputs have the batch on axis 0: those whose first size is the first input's."""
    first = inputs[0].shape[0] if inputs[0].shape else None
    return tuple(bool(spec.shape) and spec.shape is not None and spec.shape[0] == first for spec in inputs)


def name_sizes(path: Path, wanted: Wanted) -> None:
    """Gives the exporter's symbols ("s77") their names ("batch"), and drops paths of the user's machine.

    Of the exporter's notes only those of :mod:`wavefit.model.torch_sources` stay.
    """
    import onnx

    model = onnx.load(str(path), load_external_data=False)
    names: dict[str, str] = {}
    for entry, axes in zip(model.graph.input, wanted.axes, strict=False):
        for axis, name in axes.items():
            dim = entry.type.tensor_type.shape.dim[axis]
            names.setdefault(dim.dim_param, name) if dim.dim_param else None
    for entry in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        for dim in entry.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_param = re.sub(
                    r"[A-Za-z_]\w*", lambda found: names.get(found[0], found[0]), dim.dim_param
                )
    del model.metadata_props[:]
    del model.graph.metadata_props[:]
    for item in (*model.graph.node, *model.graph.value_info, *model.graph.input, *model.graph.output):
        kept = [entry for entry in item.metadata_props if entry.key == torch_sources.SOURCES]
        del item.metadata_props[:]
        item.metadata_props.extend(kept)
    onnx.save(model, str(path))
