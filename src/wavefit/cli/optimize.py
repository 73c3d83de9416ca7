"""``wavefit optimize``: the main job."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wavefit.cli._options import (
    DataOptions,
    GoalOptions,
    Json,
    LoadOptions,
    ModelArgument,
    ShapeOptions,
    WhereOptions,
    build_request,
    grouped,
)

if TYPE_CHECKING:
    from wavefit.pipeline import Order

Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="NAME.wavefit", help="The bundle's folder.", show_default=False),
]

_STOPPED = "stopped; what was measured is kept, and the same command goes on from there"


@grouped
def command(
    model: ModelArgument,
    shapes: ShapeOptions,
    data: DataOptions,
    where: WhereOptions,
    load: LoadOptions,
    goal: GoalOptions,
    output: Output = None,
    json: Json = False,
) -> None:
    """Take MODEL to a proven, measured, packed result: NAME.wavefit, with a table and a report.

    Every route that could run it here is tried in a process of its own; what moved the answers is refused. An
    interrupted run goes on where it stopped when the same command is given again.
    """
    from wavefit.pipeline import Order

    request = build_request(shapes, data, where, load, goal)
    folder = str(output or default_name(model))
    words = shlex.join(["wavefit", *sys.argv[1:]])
    carry_out(Order(model=model, inputs=shapes.specs(), request=request, folder=folder, command=words), json)


def carry_out(order: Order, json: bool = False) -> None:
    """Optimizes, shows the result, and exits with 1 where no plan could be picked."""
    from wavefit.cli._stop import stoppable

    with stoppable(_STOPPED):
        _carry_out(order, json)


def _carry_out(order: Order, json: bool) -> None:
    from wavefit.cli._progress import TerminalProgress
    from wavefit.pipeline import optimize
    from wavefit.report.terminal import summary
    from wavefit.schema import pretty

    with TerminalProgress() as progress:
        bundle, records = optimize(order, progress)
    if json:
        typer.echo(pretty({"folder": order.folder, "bundle": bundle, "records": records}))
    else:
        from rich.console import Console

        Console().print(summary(Path(order.folder), bundle, records))
    if bundle.choice.pick is None:
        raise typer.Exit(1)


def default_name(model: str) -> str:
    """``models/resnet50.onnx`` and ``zoo.resnet:resnet50`` both make ``resnet50.wavefit``."""
    stem = model.rpartition(":")[2] if ":" in model and not Path(model).exists() else Path(model).stem
    return f"{stem or 'model'}.wavefit"
