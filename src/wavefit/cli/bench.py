"""``wavefit bench``: measurements alone."""

from __future__ import annotations

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


@grouped
def command(
    model: ModelArgument,
    shapes: ShapeOptions,
    data: DataOptions,
    where: WhereOptions,
    load: LoadOptions,
    goal: GoalOptions,
    json: Json = False,
) -> None:
    """Measure MODEL, or the pick of a bundle, with MLPerf's scenarios; write nothing.

    The answers are checked all the same: a plan whose answers moved is not measured.
    """
    from wavefit.cli._progress import TerminalProgress
    from wavefit.cli._stop import stoppable
    from wavefit.pipeline import Order, bench
    from wavefit.report.terminal import measurements
    from wavefit.schema import pretty

    request = build_request(shapes, data, where, load, goal)
    order = Order(model=model, inputs=shapes.specs(), request=request, folder="", command="")
    with stoppable("stopped; nothing was kept"), TerminalProgress() as progress:
        records, refusals = bench(order, progress)
    if json:
        typer.echo(pretty({"records": records, "refusals": refusals}))
    else:
        from rich.console import Console

        Console().print(measurements(records, refusals))
    if not any(record.passed for record in records):
        raise typer.Exit(1)
