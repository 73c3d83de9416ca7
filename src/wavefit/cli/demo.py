"""``wavefit demo``: the main job on the model that wavefit ships."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from wavefit.cli._options import Json

_BATCHES = (1, 8, 64)


def command(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="NAME.wavefit", help="The bundle's folder.")
    ] = Path("demo.wavefit"),
    json: Json = False,
) -> None:
    """Optimize a small classifier of handwritten digits, with 500 labelled images to guard its accuracy."""
    import wavefit.demo
    from wavefit.cli.optimize import carry_out
    from wavefit.pipeline import Order
    from wavefit.schema import Data, Request

    folder = Path(wavefit.demo.__file__).parent
    model, data = folder / "digits.onnx", folder / "digits.npz"
    words = ["wavefit", "optimize", str(model), "--data", str(data), "--batch", _batches(), "-o", str(output)]
    command = shlex.join(words)
    typer.echo(command, err=True)
    request = Request(data=Data(path=str(data)), batches=_BATCHES)
    carry_out(Order(model=str(model), request=request, folder=str(output), command=command), json)


def _batches() -> str:
    return ",".join(str(batch) for batch in _BATCHES)
