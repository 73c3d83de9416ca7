"""``wavefit kernel profile``: where a model's time goes on a device."""

from __future__ import annotations

import json as text
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from wavefit.cli._options import Json
from wavefit.errors import InputError, RouteError

if TYPE_CHECKING:
    from wavefit.cli._progress import TerminalProgress
    from wavefit.native.profiling import Launched, Profile
    from wavefit.schema import Device

_FUNCTIONS = {
    "opencl": "wavefit.native.opencl.profile:profile",
    "hip": "wavefit.routes._native_hip_profile:profile",
}


def command(
    model: Annotated[Path, typer.Argument(metavar="MODEL.onnx", help="The model to profile.")],
    engine: Annotated[
        Literal["opencl", "hip"], typer.Option(help="Whose kernels: OpenCL's, or Triton's.")
    ] = "opencl",
    device: Annotated[
        str | None,
        typer.Option(
            metavar="DEVICE",
            help="gpu0, cpu [default: the first GPU that the engine runs on; OpenCL: else the CPU].",
        ),
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Items that one run takes.")] = 1,
    size: Annotated[
        list[str] | None, typer.Option(metavar="NAME=N", help="The size of a symbolic dimension: seq=128.")
    ] = None,
    half: Annotated[
        bool, typer.Option("--half", help="Keep tensors in 16 bits, as --precision fp16 does.")
    ] = False,
    top: Annotated[int, typer.Option(min=1, help="How many launches to show, the longest first.")] = 20,
    trace: Annotated[
        Path | None,
        typer.Option(metavar="FILE.json", help="Write a stream of batches as a trace, for Perfetto."),
    ] = None,
    batches: Annotated[int, typer.Option(min=1, max=1000, help="How many batches the stream has.")] = 8,
    deadline: Annotated[
        float, typer.Option(metavar="SECONDS", min=1, help="For the whole, compiling included.")
    ] = 600.0,
    json: Json = False,
) -> None:
    """Time every launch of MODEL.onnx's program on a device, beside the least that it could take.

    The floor is the longer of arithmetic over the peak and bytes over the bandwidth, where both are known. The trace
    shows uploads, kernels and downloads of successive batches on their queues; OpenCL alone has one.
    """
    from wavefit.schema import pretty

    if trace is not None and trace.exists() and not trace.is_file():
        raise InputError(f"{trace} is no file", "name a file for the trace")
    if trace is not None and engine == "hip":
        raise InputError("--engine hip has no trace", "leave out --trace")
    found = _measure(engine, model, device, batch, size or [], half, batches, deadline)
    if trace is not None:
        from wavefit.native.opencl.timeline import chrome

        trace.write_text(text.dumps(chrome(found.spans)))
    if json:
        typer.echo(pretty(found))
        return
    _show(found, top, batch)
    if trace is not None:
        typer.echo(f"{trace} holds the trace: open it at ui.perfetto.dev or chrome://tracing")


def _measure(
    engine: str,
    file: Path,
    device: str | None,
    batch: int,
    sizes: list[str],
    half: bool,
    batches: int,
    deadline: float,
) -> Profile:
    from wavefit import child
    from wavefit.cli._parse import parse_sizes
    from wavefit.cli._progress import TerminalProgress
    from wavefit.cli._stop import stoppable
    from wavefit.cli.kernel import with_opencl
    from wavefit.model.load import load
    from wavefit.model.shapes import bind
    from wavefit.native.profiling import Profile, Profiling
    from wavefit.schema import Failure

    if not file.is_file():
        raise InputError(f"there is no file {file}")
    if file.suffix != ".onnx":
        raise InputError(f"{file} is no model (.onnx)")
    loaded, given = load(file), parse_sizes(sizes)
    shapes = bind(loaded, batch, given)
    with (
        stoppable("stopped"),
        TerminalProgress() as progress,
        tempfile.TemporaryDirectory(prefix="wavefit-") as folder,
    ):
        where = with_opencl(device, progress) if engine == "opencl" else _with_triton(device, progress)
        payload = Profiling(
            model=loaded, device=where, batch=batch, shapes=shapes, sizes=given, half=half, batches=batches
        )
        function = _FUNCTIONS[engine]
        answer = child.run(function, payload, Profile, deadline, Path(folder), progress.say)
    if isinstance(answer, Failure):
        raise RouteError(answer.reason, answer.fix)
    return answer


def _with_triton(name: str | None, progress: TerminalProgress) -> Device:
    """The GPU of that id, else the first that the engine runs on; the CPU, interpreted, where it is asked for."""
    from wavefit.device.measure import measured
    from wavefit.device.probe import probe
    from wavefit.device.runtimes import with_runtimes
    from wavefit.routes.native_hip import refusal

    have = [measured(each) for each in with_runtimes(probe(), progress.say)]
    wanted = [each for each in have if (each.kind == "gpu" if name is None else each.id == name)]
    if not wanted:
        missing = "no GPU is here" if name is None else f"there is no device {name!r}"
        raise InputError(missing, f"this machine has {', '.join(each.id for each in have)}")
    refused = [problem for each in wanted if (problem := refusal(each)) is not None]
    if len(refused) == len(wanted):
        raise RouteError(*refused[0])
    return next(each for each in wanted if refusal(each) is None)


def _show(found: Profile, top: int, batch: int) -> None:
    from rich.console import Console
    from rich.table import Table

    from wavefit.native.profiling import total_floor_s

    console = Console(highlight=False, markup=False, width=110)
    table = Table("node", "kernel", box=None, pad_edge=False)
    for title in ("us", "share", "floor us", "of floor", "GFLOP/s", "GB/s"):
        table.add_column(title, justify="right", no_wrap=True)
    total = found.seconds
    longest = sorted(found.launches, key=lambda each: -each.seconds)
    for each in longest[:top]:
        table.add_row(f"{each.op} {each.node}", each.kernel, *_figures(each, total))
    console.print(table)
    left = len(longest) - top
    if left > 0:
        rest = sum(each.seconds for each in longest[top:])
        console.print(f"and {left} more, {rest * 1e6:,.1f} us")
    least = total_floor_s(found.launches)
    floor = (
        "its floor is unknown until `wavefit devices --measure` measures its peaks"
        if least is None
        else f"its floor is {least * 1e3:.3f} ms"
    )
    console.print(
        f"{found.device}, batch {batch}: {len(longest)} launches take {total * 1e3:.3f} ms on the device; {floor}."
    )
    if found.graph_s is not None:
        console.print(f"As one graph they take {found.graph_s * 1e3:.3f} ms.")
    if found.batch_s is not None:
        moved = f"; data moved for {found.overlap_s * 1e3:.3f} ms while kernels ran" if found.spans else ""
        console.print(f"In a stream a batch takes {found.batch_s * 1e3:.3f} ms from host to host{moved}.")


def _figures(each: Launched, total: float) -> tuple[str, ...]:
    seconds, floor = each.seconds, each.floor_s
    worked = bool(each.flops or each.bytes) and seconds > 0
    return (
        f"{seconds * 1e6:,.1f}",
        f"{seconds / total:.1%}" if total else "-",
        "-" if floor is None else f"{floor * 1e6:,.1f}",
        "-" if floor is None or not worked else f"{floor / seconds:.0%}",
        f"{each.flops / seconds / 1e9:,.0f}" if worked else "-",
        f"{each.bytes / seconds / 1e9:,.1f}" if worked else "-",
    )
