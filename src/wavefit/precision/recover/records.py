"""What ``wavefit recover`` is asked for, and what it answers."""

from __future__ import annotations

from typing import Literal

from wavefit.model.export_plan import Options
from wavefit.model.exported import Exported
from wavefit.schema import Data, Struct

RATES = {"int8": 3e-3, "fp16": 1e-5}
"""Learning rates unless one is given: about the size of the rounding that is to be made good."""


class Training(Struct, frozen=True, kw_only=True):
    """How long and how fast. A step takes one batch."""

    epochs: int = 10
    minutes: float = 10.0
    batch: int = 32
    learning_rate: float  # of a weight's own size
    heldout: float = 0.25  # share of the items
    seed: int = 0


class Recovering(Struct, frozen=True, kw_only=True):
    """A recovery for a child process, as it runs code of others."""

    model: str  # "package.module:factory"
    options: Options
    precision: Literal["fp16", "int8"]
    data: Data
    output: str  # the .onnx file; the others are named after it
    keep: tuple[str, ...] = ()  # nodes of the program, or submodules, that stay in fp32
    training: Training


class Quality(Struct, frozen=True, kw_only=True):
    """How good answers are on held-out items. Compare by the metric, then by the loss."""

    metric: float  # higher is better; minus infinity where the answers are not finite
    loss: float

    def betters(self, other: Quality) -> bool:
        return (self.metric, -self.loss) > (other.metric, -other.loss)


class Recovered(Struct, frozen=True, kw_only=True):
    """What was trained, and whether it is better than what was given."""

    precision: Literal["fp16", "int8"]
    metric: str
    teacher: float
    before: float | None  # None: its answers were not finite
    after: float | None
    improved: bool  # else the weights written are those that were given
    items: int
    heldout: int
    epochs: int  # that were trained, earlier runs included
    stopped: bool  # by --minutes
    nothing_lost: bool = False  # before training, so there was none
    weights: str
    exported: Exported

    @property
    def summary(self) -> str:
        """One line of figures, then the export's, for people."""
        figures = (
            f"{self.metric} on {self.heldout} held-out items: {_shown(self.before)} in {self.precision} before, "
            f"{_shown(self.after)} after {self.epochs} epochs, {self.teacher:.4f} in fp32"
        )
        lines = [figures]
        if self.nothing_lost:
            lines.append("nothing is lost there: nothing was trained, the weights are those that were given")
        elif not self.improved:
            lines.append("training did not better them: the weights are those that were given")
        if self.after is None:
            lines.append("name what overflows with --keep, and it stays in fp32")
        if self.stopped:
            lines.append("stopped by --minutes; the same command goes on from there")
        lines += [f"{self.weights}: the weights, for load_state_dict"]
        return "\n".join([*lines, self.exported.summary])


def _shown(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.4f}"
