"""Holds an emulated graph to the guard's own rule on held-out data, as every plan is held to it later."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from wavefit.errors import InputError
from wavefit.guard.check import check
from wavefit.guard.reference import Reference
from wavefit.guard.task import Metric, Score, evaluate, judge
from wavefit.model.samples import Samples
from wavefit.model.shapes import bind, fixed_batch
from wavefit.precision.graph import Runner
from wavefit.routes.session import Arrays, Session
from wavefit.schema import Model, Plan, Precision, TaskMetric

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir

_BATCH = 8


@dataclass(frozen=True)
class Judgement:
    """What the guard says of a graph.

    Args:
        passed: the answers are unchanged by its rule, and the metric dropped no more than allowed.
        error: worst relative L2 error of an output against the fp32 reference; infinite for NaN or Inf.
        task: the metric on held-out data, where there are labels.
        reasons: why it failed.
    """

    passed: bool
    error: float
    task: TaskMetric | None = None
    reasons: tuple[str, ...] = ()

    @property
    def drop(self) -> float:
        """Of the metric; 0 where there are no labels."""
        return self.task.drop if self.task is not None else 0.0


@dataclass
class Judge:
    """Runs graphs on held-out data and judges their answers.

    Args:
        model: the fp32 model.
        reference: its answers on held-out items.
        heldout: labelled items that the metric is taken on; the reference's own where there are no labels.
        metric: None where there are no labels.
        score: the fp32 model's metric on ``heldout``.
        max_drop: of the metric that is allowed.
        sizes: of symbolic dimensions other than the batch.
    """

    model: Model
    reference: Reference
    heldout: Samples
    metric: Metric | None = None
    score: Score | None = None
    max_drop: float = 0.01
    sizes: Mapping[str, int] = field(default_factory=dict)
    evaluations: int = 0

    def __call__(self, graph: ir.Model, precision: Precision) -> Judgement:
        """Judges a graph with the inputs and outputs of the model, of fp32 rounded as in a lower precision.

        A graph that cannot be run fails with the reason, as one whose answers moved does.
        """
        self.evaluations += 1
        plan = self._plan(precision)
        try:
            session = _Emulated(self.model, graph)
            verdict = check(session, plan, self.reference)
            task, reasons = self._task(session, plan)
        except InputError as error:
            return Judgement(False, math.inf, None, (error.what,))
        errors = [_size(output.rel_l2, output.nan + output.inf) for output in verdict.outputs]
        reasons = (*verdict.reasons, *reasons)
        return Judgement(not reasons, max(errors, default=math.inf), task, reasons)

    def _task(self, session: Session, plan: Plan) -> tuple[TaskMetric | None, tuple[str, ...]]:
        if self.metric is None or self.score is None:
            return None, ()
        candidate = evaluate(session, plan, self.heldout, self.metric)
        judged = judge(candidate, self.score, self.metric, self.max_drop)
        return judged.metric, judged.reasons

    def _plan(self, precision: Precision) -> Plan:
        batch = fixed_batch(self.model) or (
            min(_BATCH, self.reference.samples.count) if self.model.batch else 1
        )
        shapes = bind(self.model, batch, self.sizes)
        return Plan(route="emulated", device="cpu", precision=precision, batch=batch, shapes=shapes)


class _Emulated(Session):
    def __init__(self, model: Model, graph: ir.Model) -> None:
        super().__init__(model.inputs, model.outputs)
        self._runner = Runner(graph)

    def _run_impl(self, inputs: Mapping[str, np.ndarray]) -> Arrays:
        return self._runner(inputs)


def _size(error: float | None, bad: int) -> float:
    if error is None:  # not a tensor of floats; the reasons say what is wrong with it
        return math.inf if bad else 0.0
    return math.inf if bad or math.isnan(error) else error
