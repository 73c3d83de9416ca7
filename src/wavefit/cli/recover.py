"""``wavefit recover``: a PyTorch module trained for a short time as it will run in fp16 or int8."""

from __future__ import annotations

import math
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from wavefit.cli._options import DataOptions, Json, ModuleOptions, OnnxOutput, grouped
from wavefit.cli._parse import above_zero, choice
from wavefit.errors import InputError, RouteError

if TYPE_CHECKING:
    from wavefit.precision.recover.records import Recovered, Recovering, Training
    from wavefit.schema import Data

_IN_CHILD = "wavefit.precision.recover.job:recover_job"
_BESIDE_TRAINING_S = 3600.0  # reading, the fp32 answers, and the export with its proof
_MOST = 1_000_000  # epochs, or items of a batch


@dataclass(frozen=True)
class ExampleOptions:
    """What is trained on."""

    data: Annotated[
        Path | None, typer.Option(metavar="PATH", help="A folder of images by class, an .npz or an .npy.")
    ] = None
    labels: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="One class number a line; without any it is distilled."),
    ] = None
    metric: Annotated[str, typer.Option(help="With labels: top1, top5, or package.module:function.")] = "top1"
    resize: Annotated[str | None, typer.Option(help="Images of another size: crop or stretch.")] = None
    mean: Annotated[
        str, typer.Option(metavar="M,M,M", help="Subtracted from pixels of 0 to 1, by channel.")
    ] = ""
    std: Annotated[str, typer.Option(metavar="S,S,S", help="Divides them after that.")] = ""
    heldout: Annotated[
        float, typer.Option(metavar="SHARE", help="Of the items: not trained on, they decide what is kept.")
    ] = 0.25

    def record(self, seed: int) -> Data:
        if self.data is None:
            raise InputError(
                "recover trains on examples, and no --data is given",
                "give a folder of images, an .npz or an .npy",
            )
        if not 0 < self.heldout <= 0.5:
            raise InputError(f"--heldout must be above 0 and at most 0.5, not {self.heldout:g}")
        return DataOptions(
            data=self.data,
            labels=self.labels,
            metric=self.metric,
            resize=self.resize,
            mean=self.mean,
            std=self.std,
            seed=seed,
        ).record()


@dataclass(frozen=True)
class TrainingOptions:
    """How it is trained."""

    epochs: Annotated[int, typer.Option(help="Times that each item is trained on.")] = 10
    minutes: Annotated[
        float, typer.Option(help="Of training at most; the same command goes on from there.")
    ] = 10.0
    batch: Annotated[int, typer.Option(help="Items of one step.")] = 32
    learning_rate: Annotated[
        float | None,
        typer.Option(help="Share of a weight's size that a step changes: 3e-3 for int8, 1e-5 for fp16."),
    ] = None
    seed: Annotated[int, typer.Option(help="Of the held-out items, the order, and the proof.")] = 0

    def record(self, heldout: float, precision: str) -> Training:
        from wavefit.precision.recover.records import RATES, Training

        for option, value in (("--epochs", self.epochs), ("--batch", self.batch)):
            above_zero(option, value, _MOST)
        above_zero("--minutes", self.minutes, 30 * 24 * 60)
        above_zero("--learning-rate", self.learning_rate)
        return Training(
            epochs=self.epochs,
            minutes=self.minutes,
            batch=self.batch,
            learning_rate=RATES[precision] if self.learning_rate is None else self.learning_rate,
            heldout=heldout,
            seed=self.seed,
        )


@grouped
def command(
    model: Annotated[
        str, typer.Argument(metavar="MODULE", help="package.module:factory of a trained PyTorch module.")
    ],
    output: OnnxOutput,
    examples: ExampleOptions,
    training: TrainingOptions,
    module: ModuleOptions,
    precision: Annotated[str, typer.Option(help="fp16 or int8: what it is trained to run in.")] = "int8",
    keep: Annotated[
        list[str] | None,
        typer.Option(metavar="PART", help="A submodule, or a node of the program, that stays in fp32."),
    ] = None,
    json: Json = False,
) -> None:
    """Win back what fp16 or int8 loses: train a PyTorch module for a short time as it will run.

    Its own answers in fp32 teach it, and the labels where there are any. The weights that are best on held-out items
    are written as OUT.onnx, proven as by wavefit export, with OUT.pt2 and OUT.weights.pt beside it; wavefit optimize
    goes on from there. Where nothing is lost nothing is trained, and where the training betters nothing the weights are
    those that were given. What was stopped goes on when it is run again.
    """
    from wavefit.precision.recover.records import Recovering
    from wavefit.schema import pretty

    data = examples.record(training.seed)
    lower = choice("--precision", precision, Literal["fp16", "int8"])
    made = _recover(
        Recovering(
            model=model,
            options=module.record(training.seed),
            precision=lower,
            data=data,
            output=str(output.absolute()),
            keep=tuple(keep or ()),
            training=training.record(examples.heldout, lower),
        )
    )
    typer.echo(pretty(made) if json else made.summary)


def _recover(payload: Recovering) -> Recovered:
    """Runs it in a child process: the module is code of others, which may print, hang or exit.

    Raises:
        RouteError: the child ended without an answer.
    """
    from wavefit import child
    from wavefit.cli._progress import TerminalProgress
    from wavefit.cli._stop import stoppable
    from wavefit.precision.recover.records import Recovered
    from wavefit.schema import Failure

    deadline_s = math.ceil(payload.training.minutes * 60 + _BESIDE_TRAINING_S)
    with (
        stoppable("stopped; the same command goes on from the last epoch"),
        tempfile.TemporaryDirectory(prefix="wavefit-") as workdir,
        TerminalProgress() as progress,
    ):
        answer = child.run(_IN_CHILD, payload, Recovered, deadline_s, Path(workdir), progress.say)
    if isinstance(answer, Failure):
        raise RouteError(f"recovering {payload.model}: {answer.kind}: {answer.reason}", answer.fix)
    return answer
