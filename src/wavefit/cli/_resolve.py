"""A model as the user gave it, read for the verbs that only look at it."""

from __future__ import annotations

from pathlib import Path

from wavefit.errors import RouteError
from wavefit.schema import Failure, Model, TensorSpec

_IN_CHILD = "wavefit.bench.prepare:resolve_model"
_LONGEST_S = 1800.0  # for an export


def resolve_model(model: str, inputs: tuple[TensorSpec, ...], workdir: Path) -> Model:
    """An ONNX file is read here; anything else runs code of others, which may print, hang or exit: in a child.

    Raises:
        InputError: it cannot be read.
        RouteError: the child ended without an answer.
    """
    from wavefit import child
    from wavefit.bench.prepare import Resolving
    from wavefit.cli._progress import TerminalProgress
    from wavefit.model.source import resolve

    payload = Resolving(model=model, inputs=inputs, folder=str(workdir / "model"))
    with TerminalProgress() as progress:
        if Path(model).suffix.lower() == ".onnx":
            return resolve(model, inputs, workdir, progress.say)
        answer = child.run(_IN_CHILD, payload, Model, _LONGEST_S, workdir / "tmp", progress.say)
    if isinstance(answer, Failure):
        raise RouteError(f"reading {model}: {answer.kind}: {answer.reason}", answer.fix)
    return answer
