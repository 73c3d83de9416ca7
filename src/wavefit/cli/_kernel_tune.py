"""``wavefit kernel tune``: the fastest kernels for a model on a device, found by trying them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wavefit.cli._options import Json
from wavefit.errors import InputError

if TYPE_CHECKING:
    from wavefit.native.opencl.tuned import Choice
    from wavefit.native.operation import Operation
    from wavefit.schema import Device

_STOPPED = "stopped; what was measured is kept, and the same command goes on from there"


def command(
    model: Annotated[Path, typer.Argument(metavar="MODEL.onnx", help="The model to tune for.")],
    device: Annotated[
        str | None,
        typer.Option(metavar="DEVICE", help="gpu0, cpu [default: the first GPU with OpenCL, else the CPU]."),
    ] = None,
    budget: Annotated[
        float, typer.Option(metavar="SECONDS", min=1, help="For all operations together.")
    ] = 120.0,
    batch: Annotated[int, typer.Option(min=1, help="Items that one run takes.")] = 1,
    size: Annotated[
        list[str] | None, typer.Option(metavar="NAME=N", help="The size of a symbolic dimension: seq=128.")
    ] = None,
    half: Annotated[
        bool, typer.Option("--half", help="Keep tensors in 16 bits, as --precision fp16 does.")
    ] = False,
    json: Json = False,
) -> None:
    """Try kernels for MODEL.onnx's operations on an OpenCL device, and keep the fastest in the user's cache.

    From then on the native_opencl route takes them. What was measured is kept at once: interrupted, the same command
    goes on where it was; with a larger --budget it looks further.
    """
    from wavefit.cli._progress import TerminalProgress
    from wavefit.cli._stop import stoppable
    from wavefit.cli.kernel import with_opencl
    from wavefit.native.limits import of_opencl
    from wavefit.native.opencl.devices import find
    from wavefit.native.opencl.tune import tune

    with stoppable(_STOPPED), TerminalProgress() as progress:
        where = with_opencl(device, progress)
        found = find(where)
        progress.say(f"compiling {model.name} for {where.id}")
        operations = _operations(model, batch, size or [], half, where, found)
        limits = of_opencl(found, where)
        choices = tune(operations, found, budget, progress.say, limits=limits)
    _show(operations, choices, budget, json)


def _operations(
    file: Path, batch: int, sizes: list[str], half: bool, where: Device, found: Any
) -> list[Operation]:
    from wavefit.cli._parse import parse_sizes
    from wavefit.model.load import load
    from wavefit.model.shapes import bind
    from wavefit.native import engine
    from wavefit.native.limits import of_opencl
    from wavefit.native.opencl.chooser import Chooser

    if not file.is_file():
        raise InputError(f"there is no file {file}")
    if file.suffix != ".onnx":
        raise InputError(f"{file} is no model (.onnx)")
    shapes = bind(load(file), batch, parse_sizes(sizes))
    program = engine.prepare(file, shapes, Chooser(of_opencl(found, where)), "float16" if half else None)
    if isinstance(program, tuple):
        first = program[0]
        raise InputError(f"{first.op} node {first.node!r}: {first.reason}", first.fix)
    return [operation for operation, _ in program.operations]


def _show(operations: list[Operation], choices: dict[str, Choice], budget: float, json: bool) -> None:
    from collections import Counter

    from wavefit.schema import pretty

    if json:
        typer.echo(pretty(list(choices.values())))
        return
    counts = Counter(operation.key for operation in operations)
    labels = {operation.key: operation.label for operation in operations}
    before = after = 0.0
    for key, choice in choices.items():
        if choice.seconds is None:
            continue
        before += counts[key] * (choice.default_s or choice.seconds)
        after += counts[key] * choice.seconds
        typer.echo(
            f"{choice.seconds * 1e6:10.1f} us  {choice.gain:5.2f}x  {counts[key]:3} times  "
            f"{choice.template:15} {labels[key]}"
        )
    faster = sum(choice.source == "tuned" for choice in choices.values())
    gained = (
        f", {faster} run faster than predicted kernels: {before * 1e3:.3f} ms became {after * 1e3:.3f} ms"
    )
    typer.echo(f"{len(choices)} of {len(counts)} operations were tuned{gained if before else ''}.")
    if left := len(counts) - len(choices):
        typer.echo(f"{left} were not reached within {budget:g} s: give the same command a larger --budget.")
