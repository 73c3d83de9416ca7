"""``wavefit run``: a bundle on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wavefit.cli._options import Json


def command(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="A folder that optimize made.")],
    input: Annotated[
        list[str] | None,
        typer.Option(metavar="[NAME=]FILE", help="An .npy, .npz or image; several items run in batches."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE.npz", help="Where the outputs go.")
    ] = None,
    plan: Annotated[str | None, typer.Option(help="A runner-up of the bundle in place of its pick.")] = None,
    resize: Annotated[
        str | None, typer.Option(help="Images of another size: crop or stretch [default: as optimize did].")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="How many of the largest values to show.")] = 5,
    json: Json = False,
) -> None:
    """Run BUNDLE on this machine and show its outputs.

    Without --input, a sample that fits the model is made. A bundle whose files were changed is refused, and what
    differs from the machine that it was measured on is said.
    """
    from wavefit.bundle.inputs import read_inputs, with_resize
    from wavefit.bundle.outputs import describe, lines, save
    from wavefit.bundle.runner import open_bundle
    from wavefit.schema import pretty

    with open_bundle(bundle, plan, say=lambda text: typer.echo(text, err=True)) as runner:
        for line in runner.differences:
            typer.echo(f"note: {line}", err=True)
        request = with_resize(runner.bundle.request, resize)
        outputs = runner(read_inputs(runner.model, request, input or []))
    if output is not None:
        save(output, outputs)
    described = describe(outputs, top)
    if json:
        typer.echo(pretty(described))
    else:
        typer.echo("\n".join([runner.record.plan.label, *lines(described)]))
