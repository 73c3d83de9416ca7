"""The examples to train on, and those held out to judge by."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from wavefit.errors import InputError
from wavefit.guard.task import Metric, find_metric
from wavefit.model import torch_export
from wavefit.model.data import load_samples
from wavefit.model.export_plan import Plan
from wavefit.model.images import Preprocess
from wavefit.model.samples import Samples
from wavefit.precision.recover.records import Recovering
from wavefit.schema import Model, TensorSpec

if TYPE_CHECKING:
    import numpy as np

_FEWEST = 8  # items, to train on some and to be judged on others


@dataclass(frozen=True)
class Divided:
    """The user's items, those to train on and those to judge by, as places among them."""

    samples: Samples
    training: np.ndarray
    heldout: np.ndarray
    metric: Metric | None  # None where there are no labels

    @property
    def metric_name(self) -> str:
        return self.metric.name if self.metric is not None else "1 - relative L2 to fp32"


def load(payload: Recovering, plan: Plan) -> Divided:
    """The user's data, a seeded share of it held out.

    Raises:
        InputError: it does not fit the module, or there is too little of it.
    """
    import numpy as np

    data = payload.data
    samples = load_samples(
        _record(payload, plan),
        Path(str(data.path)),
        Path(data.labels) if data.labels is not None else None,
        {},
        data.count,
        data.seed,
        Preprocess(resize=data.resize, mean=data.mean, std=data.std),
    )
    if samples.count < _FEWEST:
        raise InputError(
            f"{samples.source} holds {samples.count} items, and recover needs {_FEWEST} at least",
            "give more data",
        )
    metric = None if samples.labels is None else find_metric(data.metric)
    order = np.random.default_rng(payload.training.seed).permutation(samples.count)
    kept_back = min(max(2, round(samples.count * payload.training.heldout)), samples.count // 2)
    return Divided(samples, np.sort(order[kept_back:]), np.sort(order[:kept_back]), metric)


def _record(payload: Recovering, plan: Plan) -> Model:
    """What the data is held against: the module's inputs and outputs, with a symbolic batch."""
    inputs = []
    for spec, axes in zip(plan.source.inputs, plan.wanted.axes, strict=True):
        shape = tuple(
            axes[0] if axis == 0 and 0 in axes else dim for axis, dim in enumerate(spec.shape or ())
        )
        inputs.append(TensorSpec(name=spec.name, dtype=spec.dtype, shape=shape))
    outputs = [
        TensorSpec(name=name, dtype=str(array.dtype), shape=(None, *array.shape[1:]) if array.ndim else ())
        for name, array in zip(plan.wanted.outputs, plan.cases[0].expected, strict=True)
    ]
    return Model(
        name=plan.source.name,
        path=payload.output,
        sha256="",
        opset=plan.wanted.opset,
        ir_version=0,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        nodes=0,
        nodes_by_type={},
        parameters=0,
        weight_bytes=torch_export.weight_bytes(plan.source),
        dynamic=("batch",),
        batch="batch",
    )
