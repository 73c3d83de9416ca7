"""A metric on labelled data: the candidate may lose no more of it than the user allows."""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wavefit.errors import InputError
from wavefit.guard.ort import OrtReference
from wavefit.model.samples import Samples, fixed_batch
from wavefit.routes.session import Arrays, Session
from wavefit.schema import Model, Plan, Struct, TaskMetric

_REFERENCE_BATCH = 16
_MAX_OUTPUT_BYTES = 4 << 30
_Z95 = 1.959964  # the normal distribution's 97.5 % quantile

Function = Callable[[Arrays, np.ndarray], float]


@dataclass(frozen=True)
class Metric:
    """How good outputs are for their labels; higher is better.

    Args:
        name: for people: "top1".
        top: k of a top-k accuracy, None for a callable.
        function: the callable: outputs by name (N items on axis 0) and labels (N,) to a number.
    """

    name: str
    top: int | None = None
    function: Function | None = None

    def source(self) -> bytes:
        """The file that a callable lies in; empty for a top-k accuracy, and for what Python has no file of."""
        module = sys.modules.get(getattr(self.function, "__module__", None) or "")
        file = getattr(module, "__file__", None)
        return b"" if self.function is None or file is None else Path(file).read_bytes()


class Score(Struct, frozen=True, kw_only=True):
    """A metric's value, and for a top-k accuracy which items were right."""

    value: float
    samples: int
    correct: tuple[bool, ...] | None = None


@dataclass(frozen=True)
class TaskVerdict:
    """The metric of reference and candidate; ``reasons`` is empty where the drop is allowed."""

    metric: TaskMetric
    reasons: tuple[str, ...]
    warnings: tuple[str, ...] = ()


def find_metric(spec: str) -> Metric:
    """``top1``, ``top5``, or ``package.module:function``, which is imported.

    Raises:
        InputError: no such metric, module or function.
    """
    if spec in ("top1", "top5"):
        return Metric(spec, top=int(spec[3:]))
    module_name, separator, name = spec.partition(":")
    if not separator or not module_name or not name:
        raise InputError(f"there is no metric {spec!r}", "use top1, top5 or package.module:function")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise InputError(f"metric {spec!r}: {module_name} cannot be imported: {error}") from error
    function = getattr(module, name, None)
    if not callable(function):
        raise InputError(f"metric {spec!r}: {module_name} has no function {name!r}")
    return Metric(name, function=function)


def evaluate(session: Session, plan: Plan, samples: Samples, metric: Metric) -> Score:
    """The candidate's metric over all samples at the plan's batch; the last batch is filled up and cut.

    Raises:
        InputError: no labels, no class scores, or the callable gave no number.
        RouteError: the runtime failed.
    """
    return _score(session.run, plan.batch, samples, metric)


def reference_score(model: Model, samples: Samples, metric: Metric) -> Score:
    """The fp32 reference's metric over all samples.

    Raises:
        InputError: no labels, no class scores, or the callable gave no number.
    """
    batch = fixed_batch(model) or min(_REFERENCE_BATCH if model.batch else 1, samples.count)
    return _score(OrtReference(model, Path(model.path)), batch, samples, metric)


def judge(candidate: Score, reference: Score, metric: Metric, max_drop: float) -> TaskVerdict:
    """Whether the candidate's metric dropped by more than ``max_drop``, with a 95 % interval of the drop for top-k.

    The interval is of a paired difference of proportions (Agresti and Min, Simple improved confidence intervals for
    comparing matched proportions, 2005): half an item is added to each of the four cells.
    """
    record = TaskMetric(
        name=metric.name,
        reference=reference.value,
        candidate=candidate.value,
        samples=candidate.samples,
        max_drop=max_drop,
    )
    said = (
        f"{metric.name} went from {reference.value:.4f} to {candidate.value:.4f} on {candidate.samples} samples, "
        f"a drop of {record.drop:.4f}"
    )
    interval = drop_interval(candidate, reference)
    if interval is not None:
        said += f" (95 % interval {interval[0]:.4f} to {interval[1]:.4f})"
    if math.isnan(record.drop) or record.drop > max_drop + 1e-12:
        return TaskVerdict(record, (f"{said}, {max_drop:.4f} is allowed",))
    if interval is not None and interval[1] > max_drop:
        return TaskVerdict(record, (), (f"{said}: too few samples to exclude a drop of {max_drop:.4f}",))
    return TaskVerdict(record, ())


def drop_interval(candidate: Score, reference: Score) -> tuple[float, float] | None:
    """95 % interval of reference minus candidate, from the items on which they differ; None for a callable."""
    if candidate.correct is None or reference.correct is None:
        return None
    lost = sum(old and not new for old, new in zip(reference.correct, candidate.correct, strict=True)) + 0.5
    won = sum(new and not old for old, new in zip(reference.correct, candidate.correct, strict=True)) + 0.5
    n = candidate.samples + 2
    drop = (lost - won) / n
    half = _Z95 * math.sqrt(lost + won - (lost - won) ** 2 / n) / n
    return drop - half, drop + half


def _score(
    run: Callable[[Arrays], Mapping[str, np.ndarray]], batch: int, samples: Samples, metric: Metric
) -> Score:
    if samples.labels is None:
        raise InputError(
            f"metric {metric.name} needs labels", "give --data with one folder a class, or --labels"
        )
    correct: list[bool] = []
    kept: dict[str, list[np.ndarray]] = {}
    for start in range(0, samples.count, batch):
        outputs = run(samples.batch(start, batch))
        real = min(batch, samples.count - start)
        if metric.top is not None:
            scores = _one_row_an_item(class_scores(outputs), batch, samples.labels)[:real]
            correct += in_top(scores, samples.labels[start : start + real], metric.top).tolist()
            continue
        for name, array in outputs.items():
            kept.setdefault(name, []).append(array[:real] if array.ndim else array[None])
        _check_memory(kept)
    if metric.top is not None:
        return Score(value=sum(correct) / len(correct), samples=samples.count, correct=tuple(correct))
    joined = {name: np.concatenate(parts) for name, parts in kept.items()}
    return Score(value=_call(metric, joined, samples.labels), samples=samples.count)


def _call(metric: Metric, outputs: Arrays, labels: np.ndarray) -> float:
    assert metric.function is not None
    value = metric.function(outputs, labels)
    if not isinstance(value, int | float | np.number) or not math.isfinite(value):
        raise InputError(f"metric {metric.name} gave {value!r}, not a finite number")
    return float(value)


def _check_memory(kept: Mapping[str, list[np.ndarray]]) -> None:
    taken = sum(part.nbytes for parts in kept.values() for part in parts)
    if taken > _MAX_OUTPUT_BYTES:
        raise InputError(
            f"the outputs of all samples take more than {_MAX_OUTPUT_BYTES / 2**30:.0f} GiB",
            "give fewer samples",
        )


def class_scores(outputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """The first output of items x classes.

    Raises:
        InputError: there is none.
    """
    for array in outputs.values():
        if array.ndim == 2 and array.shape[1] > 1 and array.dtype.kind not in "iubO":
            return array
    raise InputError("the model has no output of items x classes", "give a metric as package.module:function")


def _one_row_an_item(scores: np.ndarray, batch: int, labels: np.ndarray) -> np.ndarray:
    if len(scores) != batch:
        raise InputError(
            f"the model answers {batch} items with {len(scores)} rows of scores",
            "give a metric as package.module:function",
        )
    if labels.max() >= scores.shape[1]:
        raise InputError(
            f"label {labels.max()} is out of range, the model has {scores.shape[1]} classes",
            "they count from 0",
        )
    return scores


def in_top(scores: np.ndarray, labels: np.ndarray, k: int) -> np.ndarray:
    """Whether each label is among its row's k best. Equal scores rank by index, as argmax does; NaN ranks last."""
    values = np.where(np.isnan(scores), -np.inf, scores.astype(np.float64))
    own = np.take_along_axis(values, labels[:, None], 1)
    before = np.arange(values.shape[1])[None, :] < labels[:, None]
    rank = (values > own).sum(1) + ((values == own) & before).sum(1)
    return (rank < k) & np.isfinite(own[:, 0])
