"""MODEL, whatever the user gave, becomes a checked ONNX file."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import msgspec

from wavefit.child.main import Reporter
from wavefit.errors import InputError
from wavefit.model import export, reopen, tensorflow, torch_source
from wavefit.model.export_plan import Options
from wavefit.model.exported import Exported
from wavefit.model.load import load
from wavefit.schema import Model, Struct, TensorSpec

_FACTORY_LIKE = re.compile(r"[\w.\-]*:[\w.\-]*")
_FILE = re.compile(r"[\\/]|^[A-Za-z]:[\\/]|\.(onnx|pt2|pt|pth|pkl|tflite|pb|engine|plan|safetensors)$")


def resolve(spec: str, inputs: tuple[TensorSpec, ...], workdir: Path, say: Callable[[str], None]) -> Model:
    """A checked Model from an ONNX file, a PyTorch factory, an exported program or a TensorFlow model.

    Everything but an ONNX file is converted: ``workdir/model.onnx`` is written, and ``workdir/model.pt2`` beside it
    where the source was PyTorch and torch.export could keep the batch dynamic. Runs the user's code and exporters,
    which may hang or crash: call it in a child process.

    Args:
        spec: a path, or ``package.module:factory``.
        inputs: names, types and shapes, where the source does not tell them.
        workdir: a folder that is there.
        say: progress for people.

    Raises:
        InputError: the model cannot be read, converted or proven; one sentence says why.
    """
    if torch_source.is_factory(spec) or Path(spec).suffix.lower() == ".pt2":
        return _from_torch(spec, inputs, workdir, say)
    _refuse_factory_like(spec)
    if tensorflow.is_tensorflow(Path(spec)):
        made = tensorflow.convert(Path(spec), workdir / "model.onnx", say)
        return msgspec.structs.replace(load(made), name=Path(spec).stem, source=spec)
    if not Path(spec).exists() and not Path(spec).suffix:
        raise InputError(
            f"{spec} is neither a file nor a PyTorch factory",
            "write package.module:function, as in resnet50:resnet50",
        )
    if inputs:
        raise InputError(f"--input is for PyTorch models; {spec} tells its own inputs", "leave it out")
    return load(Path(spec))


class Exporting(Struct, frozen=True, kw_only=True):
    """An export for a child process, as it runs code of others."""

    model: str
    options: Options
    output: str
    dynamic_batch: bool = False


def export_job(payload: Exporting, say: Reporter) -> Exported:
    """See :func:`export_model`."""
    say.stage("export")
    return export_model(payload.model, payload.options, Path(payload.output), payload.dynamic_batch, say)


def export_model(
    spec: str, options: Options, out: Path, dynamic_batch: bool, say: Callable[[str], None]
) -> Exported:
    """What ``wavefit export`` does: PyTorch to ONNX, or a frozen ONNX file to a dynamic one.

    Raises:
        InputError: the model is of another kind, or cannot be exported; one sentence says why.
    """
    if torch_source.is_factory(spec) or Path(spec).suffix.lower() == ".pt2":
        return export.export_torch(_torch(spec, options.inputs), options, out, say)
    _refuse_factory_like(spec)
    if Path(spec).suffix.lower() == ".onnx" and not dynamic_batch:
        raise InputError(f"{spec} is an ONNX file already", "add --dynamic-batch to reopen its frozen batch")
    return reopen.reopen(Path(spec), options, out, say)


def _from_torch(
    spec: str, inputs: tuple[TensorSpec, ...], workdir: Path, say: Callable[[str], None]
) -> Model:
    source = _torch(spec, inputs)
    made = export.export_torch(
        source, Options(inputs=inputs), workdir / "model.onnx", say, program=workdir / "model.pt2"
    )
    for note in made.notes:
        say(note)
    return msgspec.structs.replace(
        load(Path(made.path)), name=source.name, source=spec, exported_program=made.exported_program
    )


def _torch(spec: str, inputs: tuple[TensorSpec, ...]) -> torch_source.TorchSource:
    if torch_source.is_factory(spec):
        return torch_source.from_factory(spec, inputs)
    return torch_source.from_program(Path(spec))


def _refuse_factory_like(spec: str) -> None:
    if _FACTORY_LIKE.fullmatch(spec) and not _FILE.search(spec) and not Path(spec).exists():
        raise InputError(
            f"{spec} names no PyTorch factory", "write package.module:function, as in resnet50:resnet50"
        )
