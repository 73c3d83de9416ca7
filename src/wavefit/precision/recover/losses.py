"""How far answers are from the teacher's, and from the labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional

_TEMPERATURE = 2.0  # softens class scores, so that the teacher's ranking of the other classes counts
_SMALLEST = 1e-12


@dataclass(frozen=True)
class Answers:
    """The teacher's outputs, N items on axis 0, and the labels where there are any."""

    outputs: tuple[torch.Tensor, ...]
    labels: torch.Tensor | None

    @property
    def count(self) -> int:
        return len(self.outputs[0])

    def pick(self, rows: torch.Tensor) -> Answers:
        labels = None if self.labels is None else self.labels[rows]
        return Answers(tuple(output[rows] for output in self.outputs), labels)

    def to(self, device: torch.device) -> Answers:
        labels = None if self.labels is None else self.labels.to(device)
        return Answers(tuple(output.to(device) for output in self.outputs), labels)


@dataclass(frozen=True)
class Loss:
    """Squared error of every float output, relative to the teacher's; for labelled class scores, both losses of theirs.

    Args:
        places: the program's outputs that the teacher's answers hold: those with the items on axis 0.
        classes: which of those holds class scores, None where none does or there are no labels.
        probabilities: whether a softmax was taken of them already.
    """

    places: tuple[int, ...]
    classes: int | None = None
    probabilities: bool = False

    def __call__(self, outputs: Sequence[torch.Tensor], teacher: Answers) -> torch.Tensor:
        outputs = [outputs[place] for place in self.places]
        pairs = zip(outputs, teacher.outputs, strict=True)
        parts = [_relative(have, want) for have, want in pairs if want.is_floating_point()]
        loss = torch.stack(parts).mean()
        if self.classes is None or teacher.labels is None:
            return loss
        have, want = (self._logits(each[self.classes]) for each in (outputs, teacher.outputs))
        soft = functional.kl_div(
            functional.log_softmax(have / _TEMPERATURE, 1),
            functional.log_softmax(want / _TEMPERATURE, 1),
            reduction="batchmean",
            log_target=True,
        )
        hard = functional.cross_entropy(have, teacher.labels)
        return loss + _TEMPERATURE**2 * soft + 0.5 * hard

    def _logits(self, scores: torch.Tensor) -> torch.Tensor:
        return scores.clamp_min(_SMALLEST).log() if self.probabilities else scores


def _relative(have: torch.Tensor, want: torch.Tensor) -> torch.Tensor:
    return (have - want).square().sum() / want.square().sum().clamp_min(_SMALLEST)


def loss_for(places: tuple[int, ...], answers: Answers) -> Loss:
    """The loss for such answers: class scores are the first float output of items x classes, where there are labels."""
    found = [
        place
        for place, output in enumerate(answers.outputs)
        if output.dim() == 2 and output.shape[1] > 1 and output.is_floating_point()
    ]
    if answers.labels is None or not found or int(answers.labels.max()) >= answers.outputs[found[0]].shape[1]:
        return Loss(places)
    scores = answers.outputs[found[0]]
    sums = scores.sum(1)
    is_softmax = bool((scores >= 0).all()) and bool(torch.allclose(sums, torch.ones_like(sums), atol=1e-3))
    return Loss(places, found[0], is_softmax)
