"""``wavefit kernel``: what kernels take of GPUs that are not here, and whether the engine's are right on one here."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from wavefit.cli import _kernel_profile, _kernel_tune
from wavefit.cli._options import Json
from wavefit.errors import InputError, RouteError
from wavefit.schema import Device

if TYPE_CHECKING:
    from wavefit.kernels.audit import Row, Source
    from wavefit.kernels.toolchain import Toolchain

group = typer.Typer(
    help="Compile kernels for AMD GPUs that are not here; test, tune and profile the engine's on one that is.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

group.command("tune")(_kernel_tune.command)
group.command("profile")(_kernel_profile.command)


@group.command("audit")
def audit(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE.cl|MODEL.onnx]",
            help="OpenCL C, or a model of which the engine's kernels are compiled "
            "[default: the engine's kernels on known layers].",
        ),
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(metavar="GFX", help="gfx1103 (may be repeated) [default: nine GPUs]."),
    ] = None,
    size: Annotated[
        list[str] | None, typer.Option(metavar="NAME=N", help="The size of a symbolic dimension: seq=128.")
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="The batch of a MODEL.onnx.")] = 1,
    half: Annotated[bool, typer.Option("--half", help="Keep a model's tensors in 16 bits.")] = False,
    work_group: Annotated[
        int | None, typer.Option(min=1, max=1024, help="Work-items that a FILE.cl is launched with.")
    ] = None,
    engine: Annotated[
        Literal["opencl", "hip"], typer.Option(help="Whose kernels of a MODEL.onnx: OpenCL's, or Triton's.")
    ] = "opencl",
    toolchain: Annotated[str | None, typer.Option(help="zig or clang-19 [default: the first here].")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Show kernels that keep the rules too.")] = False,
    json: Json = False,
) -> None:
    """Compile kernels for AMD targets and hold them to rules; no GPU is needed.

    Rules: no scratch memory, no spilled registers, local memory that the target has, 4 waves a SIMD or more.
    """
    from wavefit.cli._progress import TerminalProgress
    from wavefit.cli._stop import stoppable
    from wavefit.kernels import audit as lab

    if engine == "hip":
        rows, version = _audited_hip(file, target, size or [], batch, half)
        _report(rows, version, everything, json)
        return
    targets = lab.check_targets(target or lab.TARGETS)
    compiler = _compiler(toolchain)
    jobs = _jobs(file, targets, size or [], batch, half, work_group)
    with (
        stoppable("stopped; what was compiled is kept, and the same command goes on from there"),
        TerminalProgress() as progress,
    ):
        rows = lab.audit(jobs, compiler, progress.say)
    _report(rows, compiler.version, everything or (file is not None and file.suffix == ".cl"), json)


def _report(rows: list[Row], version: str, everything: bool, json: bool) -> None:
    from wavefit.schema import pretty

    if json:
        typer.echo(pretty(rows))
    else:
        _show(rows, everything, version)
    if not all(row.good for row in rows):
        raise typer.Exit(1)


def _audited_hip(
    file: Path | None, target: list[str] | None, sizes: list[str], batch: int, half: bool
) -> tuple[list[Row], str]:
    """The rows of a model's program in Triton, and the compiler's version."""
    import importlib.util

    from wavefit.cli._parse import parse_sizes
    from wavefit.cli._progress import TerminalProgress
    from wavefit.cli._stop import stoppable
    from wavefit.kernels.audit import check_targets
    from wavefit.model.load import load
    from wavefit.model.shapes import bind
    from wavefit.native.triton import audit as triton
    from wavefit.native.triton.versions import triton_version
    from wavefit.routes.native_hip import TARGETS

    if importlib.util.find_spec("triton") is None:
        raise RouteError("Triton is not installed", "pip install 'wavefit[hip]'")
    if file is None or file.suffix != ".onnx" or not file.is_file():
        raise InputError("--engine hip audits the program of a model", "name a MODEL.onnx")
    targets = check_targets(target or triton.TARGETS)
    refused = [each for each in targets if each not in TARGETS]
    if refused:
        raise InputError(f"Triton has no code for {refused[0]}", "audit it without --engine hip")
    shapes = bind(load(file), batch, parse_sizes(sizes))
    with stoppable("stopped; what was compiled is kept"), TerminalProgress() as progress:
        jobs = triton.of_model(file, shapes, targets, "float16" if half else None)
        return triton.audit(jobs, progress.say), f"Triton {triton_version()}"


def _compiler(name: str | None) -> Toolchain:
    from wavefit.kernels import toolchain

    found = toolchain.find(name)
    if isinstance(found, toolchain.Missing):
        raise RouteError(found.reason, found.fix)
    return found


def _jobs(
    file: Path | None,
    targets: tuple[str, ...],
    sizes: list[str],
    batch: int,
    half: bool,
    work_group: int | None,
) -> list[tuple[Source, str]]:
    from wavefit.cli._parse import parse_sizes
    from wavefit.kernels.audit import Source, every
    from wavefit.native.opencl.audit import of_model, of_operations
    from wavefit.native.specimens import layers

    if file is None:
        return of_operations(layers(), targets)
    if not file.is_file():
        raise InputError(f"there is no file {file}")
    if file.suffix == ".cl":
        try:
            text = file.read_text("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"{file} is no text in UTF-8") from error
        return every([Source(name=file.name, text=text, work_group=work_group)], targets)
    if file.suffix != ".onnx":
        raise InputError(f"{file} is neither OpenCL C (.cl) nor a model (.onnx)")
    from wavefit.model.load import load
    from wavefit.model.shapes import bind

    return of_model(file, bind(load(file), batch, parse_sizes(sizes)), targets, half)


def _show(rows: list[Row], everything: bool, version: str) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, markup=False, width=110)
    shown = [row for row in rows if everything or not row.good]
    if shown:
        table = Table("kernel", "target", box=None, pad_edge=False)
        for title in ("VGPR", "SGPR", "LDS", "scratch", "spills", "waves"):
            table.add_column(title, justify="right", no_wrap=True)
        for row in shown:
            table.add_row(
                f"{row.name} ({row.kernel})" if row.kernel else row.name, row.target, *_figures(row)
            )
        console.print(table)
        for text in dict.fromkeys(row.problems[0] for row in shown if row.kernel is None):
            console.print(text)
    bad = sum(not row.good for row in rows)
    console.print(f"{len(rows) - bad} of {len(rows)} kernels keep the rules ({version}; nothing was run).")


def _figures(row: Row) -> tuple[str, ...]:
    kernel, held = row.resources, row.occupancy
    if kernel is None:
        return ("-",) * 6
    waves = "?" if held is None else f"{held.waves:.3g}/{held.most} {held.bound}"
    numbers = (kernel.vgprs, kernel.sgprs, kernel.lds_bytes, kernel.scratch_bytes)
    return (*map(str, numbers), str(kernel.vgpr_spills + kernel.sgpr_spills), waves)


@group.command("selftest")
def selftest(
    device: Annotated[
        str | None,
        typer.Option(metavar="DEVICE", help="gpu0, cpu [default: the first GPU with OpenCL, else the CPU]."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where results go [default: wavefit-selftest-DEVICE.jsonl]."),
    ] = None,
    deadline: Annotated[
        float, typer.Option(metavar="SECONDS", min=1, help="For the kernels of one template together.")
    ] = 120.0,
) -> None:
    """Run every kernel of the engine on an OpenCL device against references, and write one file about it.

    A kernel that hangs or crashes is written down, and the test goes on after it; run again, it goes on where it was.
    The file holds what the device, driver and system are, errors and times: owners of GPUs we lack may send it to us.
    """
    from wavefit.cli._progress import TerminalProgress
    from wavefit.cli._stop import stoppable
    from wavefit.native.opencl.selftest import selftest as test

    with stoppable("stopped; run it again and it goes on"), TerminalProgress() as progress:
        where = with_opencl(device, progress)
        file = output or Path(f"wavefit-selftest-{where.id}.jsonl")
        with tempfile.TemporaryDirectory(prefix="wavefit-") as workdir:
            summary = test(where, file, Path(workdir), progress.say, deadline)
    typer.echo(f"{summary.sentence} {file}")
    if summary.not_right:
        raise typer.Exit(1)


def with_opencl(name: str | None, progress: object) -> Device:
    """The device of that id, else a GPU, else the CPU, of those that OpenCL shows; with its measured peaks."""
    from wavefit.cli._progress import TerminalProgress
    from wavefit.device.measure import measured
    from wavefit.device.probe import probe
    from wavefit.device.runtimes import with_runtimes

    assert isinstance(progress, TerminalProgress)
    have = [measured(each) for each in with_runtimes(probe(), progress.say) if _seen(each)]
    if not have:
        raise RouteError(
            "no OpenCL driver shows a device",
            "wavefit doctor says what is missing; pip install 'wavefit[pocl]' for the CPU",
        )
    if name is None:
        return next((each for each in have if each.kind == "gpu"), have[0])
    found = next((each for each in have if each.id == name), None)
    if found is None:
        raise InputError(
            f"OpenCL shows no device {name!r}", f"it shows {', '.join(each.id for each in have)}"
        )
    return found


def _seen(device: Device) -> bool:
    return any(each.name == "opencl" and each.index is not None for each in device.runtimes)
