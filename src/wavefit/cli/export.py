"""``wavefit export``: an ONNX file with a dynamic batch, proven."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wavefit.cli._options import Json, ModelArgument, ModuleOptions, OnnxOutput, grouped
from wavefit.errors import RouteError

if TYPE_CHECKING:
    from wavefit.model.exported import Exported
    from wavefit.model.source import Exporting

_IN_CHILD = "wavefit.model.source:export_job"

Texts = list[str] | None


@grouped
def command(
    model: ModelArgument,
    output: OnnxOutput,
    module: ModuleOptions,
    dynamic: Annotated[
        Texts, typer.Option(metavar="NAME:AXIS", help="Another size that may vary: x:2 for the height.")
    ] = None,
    opset: Annotated[int | None, typer.Option(help="ONNX operator set; 18 unless given.")] = None,
    dynamic_batch: Annotated[
        bool, typer.Option("--dynamic-batch", help="Reopen the frozen batch of an .onnx file.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Of the random inputs of the proof.")] = 0,
    deadline: Annotated[
        float, typer.Option(metavar="SECONDS", min=1.0, help="For the whole export.")
    ] = 1800.0,
    json: Json = False,
) -> None:
    """Turn a PyTorch module into ONNX with a dynamic batch, or reopen an ONNX file whose batch is frozen.

    Nothing is written unless the new file answers as its source does at batches 1, 2, 3 and 5 (relative L2 at most
    1e-4), and at a second height and width where those may vary.
    """
    from wavefit.model.source import Exporting
    from wavefit.schema import pretty

    options = module.record(seed, dynamic, opset)
    made = _export(
        Exporting(model=model, options=options, output=str(output), dynamic_batch=dynamic_batch), deadline
    )
    typer.echo(pretty(made) if json else made.summary)


def _export(payload: Exporting, deadline_s: float) -> Exported:
    """Runs the export in a child process: the module is code of others, which may print, hang or exit.

    Raises:
        RouteError: the child ended without an answer.
    """
    from wavefit import child
    from wavefit.cli._progress import TerminalProgress
    from wavefit.cli._stop import stoppable
    from wavefit.model.exported import Exported
    from wavefit.schema import Failure

    with (
        stoppable("stopped; nothing was written"),
        tempfile.TemporaryDirectory(prefix="wavefit-") as workdir,
        TerminalProgress() as progress,
    ):
        answer = child.run(_IN_CHILD, payload, Exported, deadline_s, Path(workdir), progress.say)
    if isinstance(answer, Failure):
        raise RouteError(f"exporting {payload.model}: {answer.kind}: {answer.reason}", answer.fix)
    return answer
