"""Ways to quantise a model: the calibration, and one compensation after the other as far as each helps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from wavefit.precision import bias, equalize
from wavefit.precision.calibrate import PERCENTILES, Method, Quantised, parameters
from wavefit.precision.evaluate import Judgement
from wavefit.precision.histogram import Histogram, collect
from wavefit.precision.qdq import quantisable, quantize
from wavefit.precision.search.material import Material
from wavefit.precision.targets import Target

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir

METHODS: tuple[tuple[Method, float], ...] = (
    ("minmax", 100.0),
    *(("percentile", share) for share in PERCENTILES),
    ("entropy", 100.0),
    ("mse", 100.0),
)

_HELPS = 0.98  # of the error before: a compensation that gains less than 2 % is not kept


@dataclass(frozen=True)
class Way:
    """A graph of the model's fp32 answers, ranges of its activations by one method, and what was done to it.

    Args:
        percentile: of the method "percentile", in percent.
        rounding: int8 weights that are stored in place of the nearest, by initializer name.
    """

    graph: ir.Model
    histograms: Mapping[str, Histogram]
    target: Target
    method: Method = "minmax"
    percentile: float = 100.0
    rounding: Mapping[str, np.ndarray] | None = None
    compensated: tuple[str, ...] = ()

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """What can be in int8 at all, in the graph's order."""
        return quantisable(self.graph, self.target)

    @cached_property
    def parameters(self) -> dict[str, Quantised]:
        return parameters(self.histograms, self.method, self.target, self.percentile)

    def lowered(self, nodes: frozenset[str]) -> ir.Model:
        """The graph with exactly these nodes in int8."""
        return quantize(self.graph, nodes, self.parameters, self.target, self.rounding)

    @property
    def recipe(self) -> dict[str, str | int | float | bool]:
        calibration = f"{self.method} {self.percentile:g}" if self.method == "percentile" else self.method
        return {"calibration": calibration, **dict.fromkeys(self.compensated, True)}


@dataclass
class Finder:
    """Looks for the way with the smallest error on held-out data, all nodes in int8."""

    material: Material
    target: Target
    notes: list[str] = field(default_factory=list)

    def find(self) -> Way:
        """The calibration first, then each compensation on top of what helped before it.

        Raises:
            InputError: the graph cannot be run.
        """
        way = self._observed(Way(graph=self.material.graph, histograms={}, target=self.target))
        way, error = self._calibrated(way)
        for name, compensate in self._compensations():
            self.material.say(f"int8: {name}")
            other = compensate(way)
            found = self._error(other)
            if found < error * _HELPS:
                way, error = replace(other, compensated=(*way.compensated, name)), found
        return way

    def _compensations(self) -> tuple[tuple[str, Callable[[Way], Way]], ...]:
        return (
            ("cross-layer equalisation", self._equalised),
            ("bias correction", self._corrected),
        )

    def _calibrated(self, way: Way) -> tuple[Way, float]:
        tried: list[tuple[float, int, Way]] = []
        for method, percentile in METHODS:
            self.material.say(f"int8: calibration by {method}")
            other = replace(way, method=method, percentile=percentile)
            tried.append((self._error(other), len(tried), other))
        error, _, best = min(tried)
        return best, error

    def _error(self, way: Way) -> float:
        return self._judged(way).size

    def _judged(self, way: Way) -> Judgement:
        return self.material.judge.numbers(way.lowered(frozenset(way.nodes)), "int8")

    def _observed(self, way: Way) -> Way:
        """With the ranges of its graph taken anew: of all values, since another set of nodes needs others."""
        calibration = self.material.split.calibration
        return replace(way, histograms=collect(way.graph, calibration, None, self.material.say))

    def _equalised(self, way: Way) -> Way:
        largest = {name: found.high for name, found in way.histograms.items()}
        return self._observed(replace(way, graph=equalize.compensate(way.graph, largest)))

    def _corrected(self, way: Way) -> Way:
        def lower(graph: ir.Model) -> ir.Model:
            return replace(way, graph=graph).lowered(frozenset(way.nodes))

        calibration = self.material.split.calibration
        graph = bias.compensate(way.graph, way.nodes, lower, calibration, self.material.say)
        return replace(way, graph=graph)
