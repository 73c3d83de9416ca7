"""``wavefit demo``: the main job on the model that wavefit ships."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_BATCHES = "1,8,64"


def command(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="NAME.wavefit", help="The bundle's folder.")
    ] = Path("demo.wavefit"),
) -> None:
    """Optimize a small classifier of handwritten digits, with 500 labelled images to guard its accuracy."""
    import wavefit.demo
    from wavefit.cli._options import DataOptions, GoalOptions, LoadOptions, ShapeOptions, WhereOptions
    from wavefit.cli.optimize import command as optimize

    folder = Path(wavefit.demo.__file__).parent
    model, data = folder / "digits.onnx", folder / "digits.npz"
    typer.echo(f"wavefit optimize {model} --data {data} --batch {_BATCHES} --output {output}", err=True)
    optimize(
        model=str(model),
        shapes=ShapeOptions(),
        data=DataOptions(data=data),
        where=WhereOptions(batch=_BATCHES),
        load=LoadOptions(),
        goal=GoalOptions(),
        output=output,
        json=False,
    )
