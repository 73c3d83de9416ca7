"""Options in groups: a verb takes a few small frozen groups in place of a long list of parameters."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from wavefit.cli._parse import (
    LONGEST_S,
    above_zero,
    all_above_zero,
    choice,
    choices,
    floats,
    parse_batches,
    parse_sizes,
    zero_or_above,
)
from wavefit.errors import InputError
from wavefit.schema import Constraints, Data, Load, Objective, Precision, Request, ScenarioName, TensorSpec

if TYPE_CHECKING:
    from wavefit.model.export_plan import Options as ExportOptions

ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", help="An .onnx or .pt2 file, or package.module:factory of a PyTorch module."
    ),
]
Keep = Annotated[
    list[str] | None,
    typer.Option(metavar="NODE", help="A node of the ONNX file that stays in fp32 (may be repeated)."),
]
OnnxOutput = Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The .onnx file to write.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

_AUTO = "auto"
_LARGEST_SEED = 2**63 - 1  # of LoadGen's settings


def grouped(function: Callable[..., None]) -> Callable[..., None]:
    """Lets a verb's function take dataclasses of options: each field becomes an option of the command line."""
    hints = get_type_hints(function, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(function).parameters.items():
        kind = hints[name]
        expanded = _fields(kind) if name in groups else [parameter.replace(annotation=kind)]
        parameters += [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in expanded]

    @functools.wraps(function)
    def call(**values: Any) -> None:
        built = {
            name: kind(**{field.name: values.pop(field.name) for field in fields(kind)})
            for name, kind in groups.items()
        }
        function(**built, **values)

    del call.__wrapped__
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return call


def _fields(kind: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    found = []
    for field in fields(kind):
        default = field.default_factory() if field.default_factory is not MISSING else field.default
        found.append(
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if default is MISSING else default,
                annotation=hints[field.name],
            )
        )
    return found


@dataclass(frozen=True)
class ShapeOptions:
    """What the model itself does not tell."""

    input: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME:SHAPE", help="An input of a PyTorch module: x:1x3x224x224."),
    ] = None
    size: Annotated[
        list[str] | None, typer.Option(metavar="NAME=N", help="The size of a symbolic dimension: seq=128.")
    ] = None

    def specs(self) -> tuple[TensorSpec, ...]:
        from wavefit.model.inputs import parse_inputs

        return parse_inputs(self.input or [])

    def sizes(self) -> dict[str, int]:
        return parse_sizes(self.size or [])


@dataclass(frozen=True)
class ModuleOptions:
    """What a PyTorch module does not tell of its inputs and outputs."""

    input: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME:SHAPE[:TYPE]", help="An input of the module: x:1x3x224x224."),
    ] = None
    output_name: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A name for each output, in order.")
    ] = None

    def record(self, seed: int, dynamic: list[str] | None = None, opset: int | None = None) -> ExportOptions:
        from wavefit.model.export_plan import Options
        from wavefit.model.inputs import parse_axes, parse_inputs

        return Options(
            inputs=parse_inputs(self.input or []),
            outputs=tuple(self.output_name or ()),
            dynamic=parse_axes(dynamic or []),
            opset=opset,
            seed=seed,
        )


@dataclass(frozen=True)
class DataOptions:
    """What the answers are checked on."""

    data: Annotated[
        Path | None, typer.Option(metavar="PATH", help="A folder of images by class, an .npz or an .npy.")
    ] = None
    labels: Annotated[Path | None, typer.Option(metavar="FILE", help="One class number a line.")] = None
    metric: Annotated[str, typer.Option(help="top1, top5, or package.module:function.")] = "top1"
    max_drop: Annotated[float, typer.Option(help="How much of the metric may be lost.")] = 0.01
    resize: Annotated[str | None, typer.Option(help="Images of another size: crop or stretch.")] = None
    mean: Annotated[
        str, typer.Option(metavar="M,M,M", help="Subtracted from pixels of 0 to 1, by channel.")
    ] = ""
    std: Annotated[str, typer.Option(metavar="S,S,S", help="Divides them after that.")] = ""
    seed: Annotated[int, typer.Option(help="Of random data and of the traffic.")] = 0

    def record(self) -> Data:
        if self.resize not in (None, "crop", "stretch"):
            raise InputError(f"--resize {self.resize} is not known", "use crop or stretch")
        if self.metric not in ("top1", "top5") and ":" not in self.metric:
            raise InputError(
                f"--metric {self.metric!r} is not known", "use top1, top5 or package.module:function"
            )
        zero_or_above("--max-drop", self.max_drop)
        if not 0 <= self.seed <= _LARGEST_SEED:
            raise InputError(f"--seed must be from 0 to {_LARGEST_SEED}, not {self.seed}")
        return Data(
            path=None if self.data is None else str(self.data.resolve()),
            labels=None if self.labels is None else str(self.labels.resolve()),
            metric=self.metric,
            resize=self.resize,  # type: ignore[arg-type]
            mean=floats("--mean", self.mean),
            std=all_above_zero("--std", self.std),
            seed=self.seed,
        )


@dataclass(frozen=True)
class WhereOptions:
    """What is tried."""

    precision: Annotated[
        str,
        typer.Option(
            metavar="P,P", help="fp32, fp16, bf16, int8: any; auto: fp32, fp16 and, with --data, int8."
        ),
    ] = "fp32"
    keep: Keep = None
    batch: Annotated[str, typer.Option(metavar="N,N", help="Batches to try, ascending: 1,2,4,8.")] = "1"
    route: Annotated[list[str] | None, typer.Option(help="Only this route (may be repeated).")] = None
    device: Annotated[list[str] | None, typer.Option(help="Only this device (see `wavefit devices`).")] = None
    require_gpu: Annotated[
        bool, typer.Option("--require-gpu", help="A node left on the CPU is a failure.")
    ] = False
    allow_cpu: Annotated[
        bool, typer.Option("--allow-cpu", help="Nodes that native_opencl cannot run go to the CPU.")
    ] = False


@dataclass(frozen=True)
class LoadOptions:
    """How it is measured, and for how long."""

    scenario: Annotated[
        str, typer.Option(metavar="S,S", help="SingleStream, Offline, Server, MultiStream.")
    ] = "SingleStream,Offline"
    duration: Annotated[float, typer.Option(metavar="SECONDS", help="Of each scenario.")] = 2.0
    target_latency: Annotated[float | None, typer.Option(metavar="MS", help="Server and MultiStream.")] = None
    target_qps: Annotated[float | None, typer.Option(help="Server: queries a second that arrive.")] = None
    deadline: Annotated[float, typer.Option(metavar="SECONDS", help="For one plan, compiling included.")] = (
        600.0
    )
    budget: Annotated[float | None, typer.Option(metavar="SECONDS", help="For all plans together.")] = None
    tune: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", help="For tuning one plan's kernels, on native_opencl and native_hip."
        ),
    ] = 0.0

    def record(self, seed: int) -> Load:
        above_zero("--duration", self.duration, LONGEST_S)
        above_zero("--target-latency", self.target_latency)
        above_zero("--target-qps", self.target_qps)
        above_zero("--deadline", self.deadline, LONGEST_S)
        above_zero("--budget", self.budget)
        zero_or_above("--tune", self.tune)
        scenarios = choices("--scenario", self.scenario, ScenarioName)
        if len(scenarios) * self.duration >= self.deadline:
            raise InputError(
                f"{len(scenarios)} scenarios of {self.duration:g} s do not end within the --deadline of "
                f"{self.deadline:g} s",
                "raise --deadline or lower --duration",
            )
        if self.tune >= self.deadline:
            raise InputError(
                f"--tune {self.tune:g} does not end within the --deadline of {self.deadline:g} s",
                "raise --deadline or lower --tune",
            )
        return Load(
            scenarios=scenarios,
            duration_s=self.duration,
            target_latency_s=None if self.target_latency is None else self.target_latency / 1e3,
            target_qps=self.target_qps,
            seed=seed,
        )


@dataclass(frozen=True)
class GoalOptions:
    """What is best."""

    objective: Annotated[str, typer.Option(help="latency, throughput, energy, memory or cost.")] = "latency"
    price_per_hour: Annotated[float | None, typer.Option(help="Of the machine, for --objective cost.")] = None
    max_latency: Annotated[float | None, typer.Option(metavar="MS", help="p90 of a batch.")] = None
    min_throughput: Annotated[float | None, typer.Option(help="Inferences a second.")] = None
    max_memory: Annotated[float | None, typer.Option(metavar="MIB", help="Peak on the device.")] = None

    def constraints(self) -> Constraints:
        above_zero("--max-latency", self.max_latency)
        above_zero("--min-throughput", self.min_throughput)
        above_zero("--max-memory", self.max_memory)
        return Constraints(
            max_latency_s=None if self.max_latency is None else self.max_latency / 1e3,
            min_throughput_per_s=self.min_throughput,
            max_memory_bytes=None if self.max_memory is None else int(self.max_memory * 2**20),
        )


def precisions(text: str, auto: tuple[Precision, ...]) -> tuple[Precision, ...]:
    """Those that are named; ``auto`` stands for the ones given.

    Raises:
        InputError: a name that is none, or others beside ``auto``.
    """
    if _AUTO in (part.strip() for part in text.split(",")) and text.strip() != _AUTO:
        raise InputError(
            f"--precision {text} names others beside auto", "give auto alone: it tries them all but bf16"
        )
    if text.strip() == _AUTO:
        return auto
    try:
        found: tuple[Precision, ...] = choices("--precision", text, Precision)
        return found
    except InputError as error:
        raise InputError(error.what, f"{error.fix}; or auto alone") from error


def _kept(where: WhereOptions) -> tuple[str, ...]:
    if where.keep and where.precision.strip() == "fp32":
        raise InputError("--keep names what a lower precision leaves in fp32", "add --precision, as auto")
    return tuple(where.keep or ())


def _allowed(where: WhereOptions) -> bool:
    if where.allow_cpu and where.require_gpu:
        raise InputError("--allow-cpu and --require-gpu ask for opposites", "give one of them")
    return where.allow_cpu


def build_request(
    shapes: ShapeOptions, data: DataOptions, where: WhereOptions, load: LoadOptions, goal: GoalOptions
) -> Request:
    """The options as one record.

    Raises:
        InputError: a value that is not one of those an option takes.
    """
    objective = choice("--objective", goal.objective, Objective)
    if objective == "cost" and goal.price_per_hour is None:
        raise InputError("--objective cost needs --price-per-hour")
    above_zero("--price-per-hour", goal.price_per_hour)
    auto: tuple[Precision, ...] = ("fp32", "fp16", "int8")
    return Request(
        objective=objective,
        price_per_hour=goal.price_per_hour,
        constraints=goal.constraints(),
        precisions=precisions(where.precision, auto[:2] if data.data is None else auto),  # int8 needs data
        keep=_kept(where),
        mixed=where.precision.strip() == _AUTO,
        batches=parse_batches(where.batch),
        sizes=shapes.sizes(),
        routes=tuple(where.route or ()),
        devices=tuple(where.device or ()),
        require_gpu=where.require_gpu,
        allow_cpu=_allowed(where),
        max_drop=data.max_drop,
        data=data.record(),
        load=load.record(data.seed),
        deadline_s=load.deadline,
        tune_s=load.tune,
        budget_s=load.budget,
    )
