"""The training itself: batches in a seeded order, distillation, the best weights on held-out items kept."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from wavefit.precision.recover import checkpoint
from wavefit.precision.recover.losses import Answers, Loss
from wavefit.precision.recover.lowered import Lowered
from wavefit.precision.recover.records import Quality, Training
from wavefit.precision.recover.steps import State, Steps

Say = Callable[[str], None]
_CALIBRATION = 512  # items whose activations give the ranges
_SHARE_OF_FP32 = 0.5
_SAVE_EVERY_S = 60.0
_LARGEST_GRADIENT = 1.0  # its norm; a larger one is shortened


@dataclass(frozen=True)
class Items:
    """Inputs as tensors with N items on axis 0, and what the teacher answers on them."""

    inputs: tuple[torch.Tensor, ...]
    whole: tuple[bool, ...]  # inputs without a batch axis
    answers: Answers

    @property
    def count(self) -> int:
        return self.answers.count

    def pick(self, places: np.ndarray) -> tuple[tuple[torch.Tensor, ...], Answers]:
        rows = torch.from_numpy(places)
        picked = tuple(
            tensor if is_whole else tensor[rows]
            for tensor, is_whole in zip(self.inputs, self.whole, strict=True)
        )
        return picked, self.answers.pick(rows)


@dataclass
class Trainer:
    """Trains the weights of ``run`` in place.

    Args:
        run: the student in its lower precision.
        whole: the same weights in fp32. They are held to the teacher too: the file that is exported has them in fp32.
        items: to train on.
        loss: how far answers are from the teacher's and the labels.
        judge: the student's quality on held-out items.
        device: where it is trained.
        how: for how long, in which batches.
        path: of the checkpoint.
        key: what the training depends on, hashed.
        is_enough: whether a quality leaves nothing to be won: nothing is trained then.
    """

    run: Lowered
    whole: Lowered
    items: Items
    loss: Loss
    judge: Callable[[], Quality]
    device: torch.device
    how: Training
    path: Path
    key: str
    is_enough: Callable[[Quality], bool]
    epoch: int = 0
    step: int = 0  # within the epoch
    before: Quality | None = None
    best: Quality | None = None
    best_weights: State = field(default_factory=dict)
    stopped: bool = False
    nothing_lost: bool = False

    def __post_init__(self) -> None:
        self._steps = Steps(self.run.module)
        self._optimizer = torch.optim.Adam(self._steps.parameters(), lr=self.how.learning_rate)
        self._scaler = torch.amp.GradScaler(self.device.type, enabled=self.run.uses_autocast)
        self._saved = time.monotonic()

    def train(self, say: Say) -> None:
        """Trains until the epochs or the minutes are over; the weights are then the best on held-out items."""
        end = time.monotonic() + self.how.minutes * 60
        if not self._resume(say):
            self.calibrate()
            self.before = self.best = self.judge()
            self.best_weights = self._steps.copy()
            self.nothing_lost = self.is_enough(self.before)
        while self.epoch < self.how.epochs and not self.stopped and not self.nothing_lost:
            self._epoch(end, say)
        self._steps.load(self.best_weights)

    def calibrate(self) -> None:
        """Takes the ranges of activations with the weights as they are."""
        places = np.arange(min(self.items.count, _CALIBRATION))
        with torch.no_grad(), self.run.observing():
            for rows in _batches(places, self.how.batch):
                self.run(*self._there(self.items.pick(rows)[0]))

    def _epoch(self, end: float, say: Say) -> None:
        order = np.random.default_rng([self.how.seed, self.epoch]).permutation(self.items.count)
        batches = _batches(order, self.how.batch)
        losses = []
        for rows in batches[self.step :]:
            if time.monotonic() > end:
                self.stopped = True
                return self._save()
            losses.append(self._step(rows, len(batches)))
            self.step += 1
            if time.monotonic() - self._saved > _SAVE_EVERY_S:
                self._save()
        self.epoch, self.step = self.epoch + 1, 0
        self._steps.write()
        self.calibrate()
        found = self.judge()
        if self.best is None or found.betters(self.best):
            self.best, self.best_weights = found, self._steps.copy()
        self._save()
        mean = sum(losses) / len(losses) if losses else math.nan
        say(f"epoch {self.epoch} of {self.how.epochs}: loss {mean:.4f}, held-out {found.metric:.4f}")
        return None

    def _step(self, rows: np.ndarray, steps: int) -> float:
        """One batch. A batch whose gradient is not finite changes nothing."""
        done = (self.epoch * steps + self.step) / (self.how.epochs * steps)
        for group in self._optimizer.param_groups:
            group["lr"] = self.how.learning_rate * (1 + math.cos(math.pi * done)) / 2
        inputs, answers = self.items.pick(rows)
        there, wanted = self._there(inputs), answers.to(self.device)
        with self.run.training(self._steps.weights()), self.whole.training(self._steps.weights()):
            loss = self.loss(self.run(*there), wanted) + _SHARE_OF_FP32 * self.loss(
                self.whole(*there), wanted
            )
            loss = loss + self.run.excess
        self._optimizer.zero_grad()
        self._scaler.scale(loss).backward()
        self._scaler.unscale_(self._optimizer)
        norm = torch.nn.utils.clip_grad_norm_(self._steps.parameters(), _LARGEST_GRADIENT)
        if self.run.uses_autocast or torch.isfinite(norm):  # the scaler looks by itself
            self._scaler.step(self._optimizer)
        self._scaler.update()
        return float(loss.detach())

    def _there(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return [tensor.to(self.device) for tensor in tensors]

    def _save(self) -> None:
        assert self.before is not None
        assert self.best is not None
        state: dict[str, Any] = {
            "key": self.key,
            "epoch": self.epoch,
            "step": self.step,
            "before": [self.before.metric, self.before.loss],
            "best": [self.best.metric, self.best.loss],
            "best_weights": self.best_weights,
            "steps": self._steps.state(),
            "optimizer": self._optimizer.state_dict(),
            "scaler": self._scaler.state_dict(),
            "ranges": [[*key, *ends] for key, ends in self.run.ranges.items()],
        }
        checkpoint.save(self.path, state)
        self._saved = time.monotonic()

    def _resume(self, say: Say) -> bool:
        state = checkpoint.load(self.path, self.key)
        if state is None:
            return False
        self.epoch, self.step = state["epoch"], state["step"]
        self.before, self.best = (
            Quality(metric=metric, loss=loss) for metric, loss in (state["before"], state["best"])
        )
        self.best_weights = state["best_weights"]
        self._steps.restore(state["steps"])
        self._optimizer.load_state_dict(state["optimizer"])
        self._scaler.load_state_dict(state["scaler"])
        self.run.ranges = {(name, place): (low, high) for name, place, low, high in state["ranges"]}
        say(f"going on after {self.epoch} epochs, from {self.path.name}")
        return True


def _batches(places: np.ndarray, size: int) -> list[np.ndarray]:
    """Whole batches; what is left over goes with the last one."""
    count = max(1, len(places) // size)
    cuts = [index * size for index in range(1, count)]
    return np.split(places, cuts)
