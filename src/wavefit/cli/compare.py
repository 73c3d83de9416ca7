"""``wavefit compare``: machines side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wavefit.cli._options import Json


def command(
    paths: Annotated[list[Path], typer.Argument(metavar="A B ...", help="Bundles, or records.jsonl files.")],
    price: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="What a column costs, in one currency for all."),
    ] = None,
    price_per: Annotated[
        str, typer.Option(metavar="hour|device", help="What --price is the price of.")
    ] = "hour",
    objective: Annotated[
        str,
        typer.Option(help="What picks a plan from a records.jsonl: latency, throughput, energy or memory."),
    ] = "latency",
    json: Json = False,
) -> None:
    """Set bundles or records of several machines side by side: speed, watts, and work per watt and per price.

    A bundle is a column with its pick. A records.jsonl is a column for each of its devices, with the best plan that
    passed. Columns of different models, precisions, batches, scenarios or meters are said not to be comparable.
    """
    from wavefit.report import columns, compare
    from wavefit.schema import pretty

    per = columns.parse_per(price_per)
    entries = columns.collect(paths, columns.parse_prices(price or []), columns.parse_objective(objective))
    if json:
        typer.echo(pretty(compare.comparison(entries, per)))
    else:
        from rich.console import Console

        Console().print(compare.table(entries, per))
