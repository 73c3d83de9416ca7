"""``wavefit plan``: what a model will take on a device, before anything is run."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wavefit.cli._options import Json, ModelArgument, ShapeOptions, grouped, precisions
from wavefit.cli._parse import parse_batches
from wavefit.errors import InputError
from wavefit.schema import Device

if TYPE_CHECKING:
    from wavefit.plan.outlook import Outlook


@grouped
def command(
    model: ModelArgument,
    shapes: ShapeOptions,
    device: Annotated[
        str | None,
        typer.Option(
            metavar="DEVICE",
            help="A device of this machine (gpu0), or one that is not here: gfx1103, 'RX 7900 XTX' "
            "[default: the first GPU, else the CPU].",
        ),
    ] = None,
    batch: Annotated[str | None, typer.Option(metavar="N,N", help="Batches to look at: 1,8,64.")] = None,
    precision: Annotated[
        str, typer.Option(metavar="P,P", help="fp32, fp16, bf16, int8; auto: all but bf16.")
    ] = "fp32",
    route: Annotated[
        str | None,
        typer.Option(help="The route whose memory and time are predicted [default: ort_cpu or torch_gpu]."),
    ] = None,
    memory: Annotated[
        float | None,
        typer.Option(
            metavar="GIB", min=0.1, help="What the device may use, where that is not known or differs."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Predict memory, transfer and time of a model on a device; nothing is run.

    Every figure is predicted, and says where the peak that it rests on comes from.
    """
    from wavefit.cli._resolve import resolve_model
    from wavefit.cli._stop import stoppable
    from wavefit.plan.batch import with_memory
    from wavefit.schema import pretty

    _check_route(route)
    wanted = precisions(precision, auto=("fp32", "fp16", "int8"))
    batches = parse_batches(batch) if batch else ()
    where, cpu = find(device)
    if memory is not None:
        where, cpu = with_memory(where, memory), None
    with stoppable("stopped"), tempfile.TemporaryDirectory(prefix="wavefit-") as workdir:
        found = resolve_model(model, shapes.specs(), Path(workdir))
        from wavefit import routes
        from wavefit.cli._progress import TerminalProgress
        from wavefit.plan.outlook import Question, outlook
        from wavefit.plan.predict import Planner

        planner = Planner(found, routes.refine(found))
        sizes = shapes.sizes()
        questions = [
            Question(device=where, cpu=cpu, precision=each, batches=batches, sizes=sizes, route=route)
            for each in wanted
        ]
        with TerminalProgress() as progress:
            answers = [outlook(planner, question, progress.say) for question in questions]
    if json:
        typer.echo(pretty(answers))
    else:
        _show(answers)


def _check_route(route: str | None) -> None:
    from wavefit import routes

    if route is not None and route not in routes.names():
        raise InputError(f"there is no route {route!r}", f"the routes are {', '.join(routes.names())}")


def find(name: str | None) -> tuple[Device, Device | None]:
    """The device, and this machine's CPU where the device is in this machine.

    Raises:
        InputError: neither this machine nor the catalogue has it.
    """
    from wavefit.device.catalogue import device_of
    from wavefit.device.measure import measured
    from wavefit.device.probe import probe

    here = probe()
    if name is None:
        return measured(here[1] if len(here) > 1 else here[0]), here[0]
    for each in here:
        if each.id == name:
            return measured(each), here[0]
    try:
        return device_of(name), None
    except InputError as error:
        ids = ", ".join(each.id for each in here)
        raise InputError(f"--device: {error.what}", f"{error.fix}; this machine has {ids}") from error


def _show(answers: list[Outlook]) -> None:
    from rich.console import Console

    from wavefit.cli import _plan_view as view

    console = Console(highlight=False, width=80, markup=False)
    console.print(view.heading(answers[0]))
    for answer in answers:
        console.print()
        console.print(f"{answer.precision}, route {answer.route}: memory, predicted")
        console.print(view.memory(answer))
        console.print()
        console.print(f"{answer.precision}: time of one batch, predicted")
        console.print(view.time(answer))
        console.print()
        console.print(view.notes(answer))
        rows = view.nodes(answer)
        if rows is not None:
            console.print()
            console.print(rows)
