"""``wavefit convert``: a model's file in a lower precision, for this machine or another."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from msgspec.structs import replace

from wavefit.cli._options import DataOptions, Json, Keep, ModelArgument, OnnxOutput, ShapeOptions, grouped
from wavefit.cli._parse import LONGEST_S, above_zero, choice
from wavefit.errors import InputError, RouteError

if TYPE_CHECKING:
    from wavefit.pipeline import Order
    from wavefit.precision.search.records import Wanted
    from wavefit.schema import Model, Precision, Variant

_SHOWN = 12  # kept nodes that are named without --json

_FOR_CPU = "its types are those of ort_cpu, which runs on every machine: for a GPU give --target"
_Lower = Literal["fp16", "bf16", "int8"]
_Integer = Literal["ort_cpu", "ort_migraphx", "ort_directml"]  # routes that have int8 kernels


@dataclass(frozen=True)
class ConvertOptions:
    """What is made."""

    precision: Annotated[str, typer.Option(metavar="P", help="fp16, bf16 or int8; int8 needs --data.")]
    output: OnnxOutput
    target: Annotated[
        str | None,
        typer.Option(
            metavar="ROUTE",
            help="What int8 is for: ort_cpu, ort_migraphx or ort_directml  [default: ort_cpu].",
        ),
    ] = None
    keep: Keep = None
    deadline: Annotated[float, typer.Option(metavar="SECONDS", help="For the search.")] = 1800.0


@grouped
def command(
    model: ModelArgument,
    options: ConvertOptions,
    shapes: ShapeOptions,
    data: DataOptions,
    json: Json = False,
) -> None:
    """Write MODEL in fp16, bf16 or int8, with as many nodes lowered as keep its answers; nothing is measured.

    The device that it is for need not be here. The nodes that have to stay are searched for as optimize does, judged
    by the same rule on data that are held out, and shown with the reason for each. Its inputs and outputs keep their
    types.
    """
    from wavefit.model.exported import check_out
    from wavefit.pipeline import Order
    from wavefit.schema import Request, pretty

    above_zero("--deadline", options.deadline, LONGEST_S)
    precision = choice("--precision", options.precision, _Lower)
    check_out(options.output)
    _check_not_the_same(model, options.output)
    request = Request(
        precisions=(precision,),
        keep=tuple(options.keep or ()),
        sizes=shapes.sizes(),
        max_drop=data.max_drop,
        data=data.record(),
        deadline_s=options.deadline,
    )
    wanted = _wanted(precision, options.target, request.data.path)
    with _beside(options.output) as folder:
        order = Order(model=model, inputs=shapes.specs(), request=request, folder=str(folder), command="")
        source, variant = _convert(order, wanted, options.output)
    if precision == "int8" and options.target is None:
        variant = replace(variant, notes=(*variant.notes, _FOR_CPU))
    if json:
        typer.echo(pretty({"path": variant.model.path, "source": source, "variant": variant}))
    else:
        from rich.console import Console

        from wavefit.report.terminal import variant as shown

        Console(highlight=False).print(shown(variant, source, str(options.output), _SHOWN))


def _wanted(precision: Precision, target: str | None, data: str | None) -> Wanted:
    """fp16 and bf16 are the same everywhere; int8 is stored as what runs it takes.

    Raises:
        InputError: int8 without data; a target of another precision.
    """
    from wavefit.precision.search.records import Wanted
    from wavefit.schema import Device

    if precision != "int8":
        if target not in (None, "any"):
            raise InputError(
                f"--target {target} is of int8 alone", f"leave it out: {precision} is the same on every route"
            )
        return Wanted(precision=precision, route="any", device=Device(id="any", kind="cpu"))
    if data is None:
        raise InputError(
            "--precision int8 needs data to calibrate on", "give --data, and --labels where you can"
        )
    route = choice("--target", target or "ort_cpu", _Integer)
    kind: Literal["cpu", "gpu"] = "cpu" if route == "ort_cpu" else "gpu"
    # nothing is known of that device: of a CPU's weights then 7 bits are used, which are right on all of them
    return Wanted(precision=precision, route=route, device=Device(id="any", kind=kind))


def _check_not_the_same(model: str, out: Path) -> None:
    if Path(model).exists() and out.exists() and Path(model).samefile(out):
        raise InputError(f"--output {out} is the model itself", "give another name")


@contextmanager
def _beside(out: Path) -> Iterator[Path]:
    """A folder for the work on the output's own disk, so that a finished file is moved to its name at once.

    Raises:
        InputError: the output's folder is not there, or cannot be written.
    """
    from wavefit.model.exported import folder_of

    parent = folder_of(out)
    try:
        folder = tempfile.TemporaryDirectory(prefix=".wavefit-", dir=parent)
    except OSError as error:
        raise InputError(
            f"{parent} cannot be written: {error.strerror}", "choose another --output"
        ) from error
    with folder as name:
        yield Path(name)


def _convert(order: Order, wanted: Wanted, out: Path) -> tuple[Model, Variant]:
    """The model, and its variant as it lies at ``out``.

    Raises:
        RouteError: no variant passes.
    """
    from wavefit.cli._progress import TerminalProgress
    from wavefit.cli._stop import stoppable
    from wavefit.pipeline import convert
    from wavefit.precision.publish import publish

    with stoppable("stopped; nothing was written"):
        with TerminalProgress() as progress:
            source, made = convert(order, (wanted,), progress)
        if not made.variants:
            refusal = made.refusals[0]
            raise RouteError(refusal.reason, refusal.fix)
        return source, publish(made.variants[0], out)
