"""Holds the built cases to the guard's rule: half of the items to calibrate on, half to judge by."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import onnx_ir as ir
from precision.cases.blocks import Case

from wavefit.guard.reference import make_reference
from wavefit.guard.task import find_metric, reference_score
from wavefit.model.load import load
from wavefit.model.samples import Samples
from wavefit.precision import graph
from wavefit.precision.half.emulate import emulated
from wavefit.precision.half.hazards import computes
from wavefit.precision.search.evaluate import HeldOut, Judge, Judgement


class Bench:
    """One case, ready to be judged."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.graph = graph.load(Path(case.path))
        model = load(case.path)
        half = len(case.labels) // 2
        self.calibration = self._samples(slice(0, half))
        heldout = self._samples(slice(half, None))
        metric = find_metric(case.metric)
        reference = make_reference(model, heldout, quiet)
        score = reference_score(model, heldout, metric)
        self.judge = Judge(model, reference, HeldOut(heldout, metric, score, 0.01))

    @property
    def nodes(self) -> list[str]:
        """Those that a precision may be chosen for."""
        return [str(node.name) for node in self.graph.graph if computes(node)]

    def half(self, kept: Iterable[str] = (), model: ir.Model | None = None) -> Judgement:
        """The verdict on the graph in half, but for the nodes kept."""
        model = model or self.graph
        kept = frozenset(kept)
        names = [str(node.name) for node in model.graph if computes(node)]
        return self.judge(emulated(model, {name: "fp16" for name in names if name not in kept}), "fp16")

    def _samples(self, part: slice) -> Samples:
        inputs = {name: np.ascontiguousarray(array[part]) for name, array in self.case.inputs.items()}
        return Samples(inputs, self.case.labels[part], "built")


def quiet(_: str) -> None:
    pass
