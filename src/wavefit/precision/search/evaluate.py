"""Holds an emulated graph to the guard's own rule on held-out data, as every plan is held to it later."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from wavefit.errors import InputError
from wavefit.guard.check import check
from wavefit.guard.reference import Reference
from wavefit.guard.task import Metric, Score, evaluate, judge
from wavefit.model.samples import Samples
from wavefit.model.shapes import bind, fixed_batch
from wavefit.precision.graph import Runner, serialized
from wavefit.precision.search.distance import Distance
from wavefit.routes.session import Arrays, Session
from wavefit.schema import Model, OutputError, Plan, Precision, Struct, TaskMetric, decode, encode

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir

_BATCH = 8


class Judgement(Struct, frozen=True, kw_only=True):
    """What the guard says of a graph."""

    passed: bool  # the answers are unchanged by its rule, and the metric dropped no more than allowed
    error: (
        float | None
    )  # worst relative L2 error of an output against fp32; None: NaN, Inf, or it did not run
    overall: float | None = None  # over more items together, see distance.py; None: as error, or not measured
    task: TaskMetric | None = None  # on held-out data, where there are labels
    reasons: tuple[str, ...] = ()  # why it failed

    @property
    def size(self) -> float:
        """What graphs are ranked by: the error over all items where that is known; infinite where there is none."""
        if self.error is None:
            return math.inf
        return self.error if self.overall is None else self.overall

    @property
    def drop(self) -> float:
        """Of the metric; 0 where there are no labels."""
        return self.task.drop if self.task is not None else 0.0


class _Remembered(Struct, frozen=True, kw_only=True):
    key: str
    judgement: Judgement


@dataclass(frozen=True)
class HeldOut:
    """Labelled items that a metric is taken on.

    Args:
        score: the fp32 model's.
        whole: all of the user's items, which the guard takes the metric on in the end: a graph that passes on those
            held out must pass on them too. None: the same.
    """

    samples: Samples
    metric: Metric
    score: Score
    max_drop: float
    whole: HeldOut | None = None


@dataclass
class Judge:
    """Runs graphs on held-out data and judges their answers.

    Args:
        model: the fp32 model.
        reference: its answers on the guard's items.
        heldout: None where there are no labels.
        sizes: of symbolic dimensions other than the batch.
        compared: items that graphs are ranked on; None: the reference's.
        memory: a file in which judgements are kept, so that a search that was stopped goes on; None: nowhere.
    """

    model: Model
    reference: Reference
    heldout: HeldOut | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    compared: Samples | None = None
    memory: Path | None = None
    evaluations: int = 0
    spent_s: float = 0.0  # on them
    _known: dict[str, Judgement] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.memory is not None and self.memory.exists():
            for line in self.memory.read_bytes().splitlines():
                try:
                    entry = decode(line, _Remembered)
                except InputError:  # the last line of a process that was killed
                    continue
                self._known[entry.key] = entry.judgement

    def __call__(self, graph: ir.Model, precision: Precision) -> Judgement:
        """Judges a graph of the model's inputs and outputs by its numbers and, where there are labels, its metric.

        A graph that cannot be run fails with the reason, as one whose answers moved does.
        """
        return self._judge(graph, precision, self.heldout)

    def numbers(self, graph: ir.Model, precision: Precision) -> Judgement:
        """The same without the metric: on the guard's few items, so many graphs can be held against one another."""
        return self._judge(graph, precision, None)

    def _judge(self, graph: ir.Model, precision: Precision, heldout: HeldOut | None) -> Judgement:
        what = f"{precision} {heldout is not None}".encode()
        key = sha256(what + serialized(graph)).hexdigest()[:24]
        if key not in self._known:
            began = time.monotonic()
            self._known[key] = self._run(graph, precision, heldout)
            self.spent_s += time.monotonic() - began
            self._remember(key)
        return self._known[key]

    def _remember(self, key: str) -> None:
        if self.memory is not None:
            with self.memory.open("ab") as file:
                file.write(encode(_Remembered(key=key, judgement=self._known[key])) + b"\n")

    def _run(self, graph: ir.Model, precision: Precision, heldout: HeldOut | None) -> Judgement:
        self.evaluations += 1
        plan = self._plan(precision)
        try:
            session = _Emulated(self.model, graph)
            verdict = check(session, plan, self.reference, beside_metric=self.heldout is not None)
            error = _worst(verdict.outputs)
            overall = None if error is None else self._distance(session.run)
            judgement = Judgement(
                passed=verdict.passed, error=error, overall=overall, reasons=verdict.reasons
            )
            if heldout is None or not verdict.passed:
                return judgement  # what fails by its numbers needs no metric, which takes far longer
            return _with_metric(judgement, session, plan, heldout)
        except InputError as error:
            return Judgement(passed=False, error=None, reasons=(error.what,))

    @cached_property
    def _distance(self) -> Distance:
        samples = self.reference.samples if self.compared is None else self.compared
        return Distance(self.model, samples, self.batch, tuple(self.sizes.items()))

    @property
    def batch(self) -> int:
        """Items of one run."""
        free = min(_BATCH, self.reference.samples.count) if self.model.batch else 1
        return fixed_batch(self.model) or free

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of the inputs of one run."""
        return bind(self.model, self.batch, self.sizes)

    def _plan(self, precision: Precision) -> Plan:
        return Plan(route="emulated", device="cpu", precision=precision, batch=self.batch, shapes=self.shapes)


class _Emulated(Session):
    def __init__(self, model: Model, graph: ir.Model) -> None:
        super().__init__(model.inputs, model.outputs)
        self._runner = Runner(graph)

    def _run_impl(self, inputs: Mapping[str, np.ndarray]) -> Arrays:
        return self._runner(inputs)


def _with_metric(judgement: Judgement, session: Session, plan: Plan, heldout: HeldOut) -> Judgement:
    candidate = evaluate(session, plan, heldout.samples, heldout.metric)
    judged = judge(candidate, heldout.score, heldout.metric, heldout.max_drop)
    reasons = (*judgement.reasons, *judged.reasons)
    if not reasons and heldout.whole is not None:
        reasons = _with_metric(judgement, session, plan, heldout.whole).reasons
    return structs.replace(judgement, passed=not reasons, task=judged.metric, reasons=reasons)


def _worst(outputs: tuple[OutputError, ...]) -> float | None:
    """The largest error; outputs that are not floats have none, their reasons say what is wrong with them."""
    if any(output.nan or output.inf for output in outputs):
        return None
    return max((output.rel_l2 for output in outputs if output.rel_l2 is not None), default=0.0)
