"""The module that is trained: its program in a lower precision, its teacher's answers, its quality."""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from wavefit.errors import InputError
from wavefit.guard.limits import ROUNDOFF, Limits
from wavefit.guard.task import Metric, class_scores, in_top
from wavefit.model import torch_export
from wavefit.model.export_plan import Plan
from wavefit.precision.recover import checkpoint
from wavefit.precision.recover.data import Divided
from wavefit.precision.recover.losses import Answers, Loss, loss_for
from wavefit.precision.recover.lowered import Lowered, Way, flat, kept_nodes
from wavefit.precision.recover.records import Quality, Recovering
from wavefit.precision.recover.training import Items, Trainer
from wavefit.schema import fingerprint

_MAX_ANSWER_BYTES = 4 << 30


class Trained(NamedTuple):
    teacher: float
    before: float | None
    after: float | None
    improved: bool
    epochs: int
    stopped: bool
    nothing_lost: bool


class Student:
    """A copy of the user's module, which itself is left as it is.

    Args:
        plan: the module with its inputs, as an export takes it.
        data: the items.
        payload: what was asked for.
        say: progress for people.

    Raises:
        InputError: torch.export does not take the module, it has no weights or no float outputs to be trained by, or
            it has no part that is to be kept.
    """

    def __init__(self, plan: Plan, data: Divided, payload: Recovering, say: Callable[[str], None]) -> None:
        self.module = copy.deepcopy(plan.source.module)
        self._payload, self.data, self.source = payload, data, plan.source
        self._outputs = plan.wanted.outputs
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        torch.manual_seed(payload.training.seed)
        say(f"exporting {plan.source.name} to be trained in {payload.precision}")
        made = torch_export.program(replace(plan.source, module=self.module), plan.wanted)
        if made.reason:
            raise InputError(f"{payload.model} cannot be trained as it will run: {made.reason}")
        self._program = flat(made.program)
        if not any(weight.is_floating_point() for weight in self._program.parameters()):
            raise InputError(f"{payload.model} has no weights to train")
        self._keep = kept_nodes(self._program, payload.keep)
        self._key = self._fingerprint()
        self._program.to(self._device)
        say(f"asking the fp32 model for its answers on {data.samples.count} items")
        teacher = Lowered(self._program, Way("fp32"))
        self._places = self._batched_outputs(plan)
        self._training = self._items(teacher, data.training)
        self._heldout = self._items(teacher, data.heldout)
        self._loss = loss_for(self._places, self._training.answers)

    def train(self, path: Path, say: Callable[[str], None]) -> Trained:
        """Trains with a checkpoint at ``path``; the module then has the best weights."""
        run = self._lowered()
        trainer = Trainer(
            run=run,
            whole=Lowered(self._program, Way("fp32")),
            items=self._training,
            loss=self._loss,
            judge=lambda: self._quality(run),
            device=self._device,
            how=self._payload.training,
            path=path,
            key=self._key,
            is_enough=lambda quality: self._is_enough(run, quality),
        )
        trainer.train(say)
        before, best = trainer.before, trainer.best
        assert before is not None
        assert best is not None
        self.module.cpu().requires_grad_(False).load_state_dict(trainer.best_weights, strict=False)
        return Trained(
            teacher=self._teacher.metric,
            before=_finite(before.metric),
            after=_finite(best.metric),
            improved=best.betters(before),
            epochs=trainer.epoch,
            stopped=trainer.stopped,
            nothing_lost=trainer.nothing_lost,
        )

    @cached_property
    def _teacher(self) -> Quality:
        return self._quality(None)

    def _is_enough(self, run: Lowered, quality: Quality) -> bool:
        """Where there are no labels, answers as near as one rounding; else fp32's metric, and answers that pass.

        A metric on a few held-out items says too little alone.
        """
        precision = self._payload.precision
        if self.data.metric is None:
            return 1 - quality.metric <= ROUNDOFF[precision]
        near = self._distance(self._answers(run, self._heldout)) <= Limits(precision).bound
        return quality.metric >= self._teacher.metric and near

    def _lowered(self) -> Lowered:
        """By autocast on a GPU, unless that overflows: where it is emulated a gradient is left."""
        if self._payload.precision == "fp16" and self._device.type == "cuda":
            run = Lowered(self._program, Way("fp16", self._keep, autocast=True))
            if math.isfinite(self._quality(run).metric):
                return run
        return Lowered(self._program, Way(self._payload.precision, self._keep))

    def save(self, path: Path) -> None:
        """The module's state dict, which ``torch.load(path, weights_only=True)`` reads."""
        checkpoint.save(path, {name: tensor.cpu() for name, tensor in self.module.state_dict().items()})

    def _batched_outputs(self, plan: Plan) -> tuple[int, ...]:
        case = plan.cases[-1]
        found = tuple(
            place for place, array in enumerate(case.expected) if array.ndim and len(array) == case.batch
        )
        if not any(case.expected[place].dtype.kind == "f" for place in found):
            raise InputError(f"{self._payload.model} has no float output with an answer for each item")
        size = sum(case.expected[place][:1].nbytes for place in found) * self.data.samples.count
        if size > _MAX_ANSWER_BYTES:
            raise InputError(
                f"the answers on {self.data.samples.count} items take {size / 2**30:.1f} GiB",
                "give fewer items",
            )
        return found

    def _items(self, run: Lowered, places: np.ndarray) -> Items:
        samples = self.data.samples
        picked = samples.pick(places)
        inputs = tuple(torch.from_numpy(array) for array in picked.values())
        whole = tuple(name in samples.whole for name in picked)
        labels = None if samples.labels is None else torch.from_numpy(samples.labels[places])
        unanswered = Items(inputs, whole, Answers((torch.zeros(len(places)),), labels))
        return replace(unanswered, answers=Answers(self._answers(run, unanswered), labels))

    def _answers(self, run: Lowered, items: Items) -> tuple[torch.Tensor, ...]:
        """Outputs of all items, on the host."""
        parts = []
        with torch.no_grad():
            for rows in np.array_split(
                np.arange(items.count), max(1, items.count // self._payload.training.batch)
            ):
                inputs, _ = items.pick(rows)
                outputs = run(*(tensor.to(self._device) for tensor in inputs))
                parts.append([outputs[place].cpu() for place in self._places])
        return tuple(torch.cat(each) for each in zip(*parts, strict=True))

    def _quality(self, run: Lowered | None) -> Quality:
        """On held-out items; None asks for the teacher's."""
        teacher = self._heldout.answers
        outputs = teacher.outputs if run is None else self._answers(run, self._heldout)
        loss = float(
            Loss(tuple(range(len(outputs))), self._loss.classes, self._loss.probabilities)(outputs, teacher)
        )
        if self.data.metric is None:
            metric = 1 - self._distance(outputs)
        else:
            metric = _score(self.data.metric, self._named(outputs), self._labels())
        return Quality(
            metric=metric if math.isfinite(metric) else -math.inf,
            loss=loss if math.isfinite(loss) else math.inf,
        )

    def _distance(self, outputs: tuple[torch.Tensor, ...]) -> float:
        """Relative L2 to the teacher's float answers on held-out items, the mean over them."""
        pairs = zip(outputs, self._heldout.answers.outputs, strict=True)
        floats = [(have, want) for have, want in pairs if want.is_floating_point()]
        return sum(float((have - want).norm() / want.norm().clamp_min(1e-12)) for have, want in floats) / len(
            floats
        )

    def _named(self, outputs: tuple[torch.Tensor, ...]) -> dict[str, np.ndarray]:
        names = [self._outputs[place] for place in self._places]
        return {name: output.numpy() for name, output in zip(names, outputs, strict=True)}

    def _labels(self) -> np.ndarray:
        assert self.data.samples.labels is not None
        found: np.ndarray = self.data.samples.labels[self.data.heldout]
        return found

    def _fingerprint(self) -> str:
        """Of all that the training depends on; more minutes go on with it."""
        digest = hashlib.sha256()
        for tensor in self.module.state_dict().values():
            digest.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        for array in (*self.data.samples.inputs.values(), self.data.samples.labels):
            digest.update(b"" if array is None else np.ascontiguousarray(array).tobytes())
        if self.data.metric is not None:  # what "best" is measured in
            digest.update(self.data.metric.name.encode() + self.data.metric.source())
        training = self._payload.training
        how = (training.epochs, training.batch, training.learning_rate, training.heldout, training.seed)
        return fingerprint(
            digest.hexdigest(), self._payload.precision, sorted(self._keep), how, str(torch.__version__)
        )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _score(metric: Metric, outputs: dict[str, np.ndarray], labels: np.ndarray) -> float:
    if metric.top is not None:
        return float(in_top(class_scores(outputs), labels, metric.top).mean())
    assert metric.function is not None
    value = metric.function(outputs, labels)
    if not isinstance(value, int | float | np.number):
        raise InputError(f"metric {metric.name} gave {value!r}, not a number")
    return float(value)
