"""Ways to quantise a model: the calibration, and one compensation after the other as far as each helps."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from wavefit.precision.compensation import absorb, adaround, bias, equalize, smoothquant
from wavefit.precision.graph import serialized
from wavefit.precision.int8 import opset
from wavefit.precision.int8.calibrate import PERCENTILES, Method, Quantised, parameters
from wavefit.precision.int8.fold import folded
from wavefit.precision.int8.histogram import Histogram, collect
from wavefit.precision.int8.qdq import possible_values, quantisable, quantize
from wavefit.precision.int8.targets import Target
from wavefit.precision.linear import linears
from wavefit.precision.search.evaluate import Judgement
from wavefit.precision.search.material import Material, most_first
from wavefit.precision.search.sensitivity import measure
from wavefit.schema import Sensitivity

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir

METHODS: tuple[tuple[Method, float], ...] = (
    ("minmax", 100.0),
    *(("percentile", share) for share in PERCENTILES),
    ("entropy", 100.0),
    ("mse", 100.0),
)

_ROUNDED_SHARE, _ROUNDED_LAYERS = 0.8, 12  # of the squared error, and layers at most, that rounding is for
_FOR_SENSITIVITY = 0.3  # of the time left
_FOR_CORRECTION = 0.2  # of the time left
_FOR_ISLANDS = 0.5  # of the time at first, left for the search of what must stay
_HARDLY_LARGER = 1.1
_HELPS = 0.98  # of the error before: a compensation that gains less than 2 % is not kept


@dataclass(frozen=True)
class Way:
    """A graph of the model's fp32 answers, ranges of its activations by one method, and what was done to it.

    Args:
        percentile: of the method "percentile", in percent.
        rounding: int8 weights that are stored in place of the nearest, by initializer name.
        keep: nodes that stay in fp32 by the user's wish.
        uncorrected: the graph before its biases were corrected; None where they were not.
    """

    graph: ir.Model
    histograms: Mapping[str, Histogram]
    target: Target
    method: Method = "minmax"
    percentile: float = 100.0
    rounding: Mapping[str, np.ndarray] = field(default_factory=dict)
    compensated: tuple[str, ...] = ()
    keep: frozenset[str] = frozenset()
    uncorrected: ir.Model | None = None

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """What can be in int8 at all, in the graph's order."""
        return tuple(name for name in quantisable(self.graph, self.target) if name not in self.keep)

    @cached_property
    def parameters(self) -> dict[str, Quantised]:
        return parameters(self.histograms, self.method, self.target, self.percentile)

    def lowered(self, nodes: frozenset[str]) -> ir.Model:
        """The graph with exactly these nodes in int8."""
        rounding = {name: self.rounding[name] for name in self._rounded & self._weights(nodes)}
        return quantize(self.graph, nodes, self.parameters, self.target, rounding)

    @property
    def whole(self) -> ir.Model:
        """The graph with every node in int8 that can be."""
        return self.lowered(frozenset(self.nodes))

    @property
    def _rounded(self) -> Set[str]:
        return self.rounding.keys()

    def _weights(self, nodes: frozenset[str]) -> Set[str]:
        """Names of the initializers that those nodes weigh with."""
        return {weight for node, weight in self._weight_of.items() if node in nodes}

    @cached_property
    def _weight_of(self) -> dict[str, str]:
        graph = folded(self.graph, frozenset(self.nodes))
        return {str(layer.name): str(layer.node.inputs[1].name) for layer in linears(graph)}  # type: ignore[union-attr]

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
    _began_left_s: float = 0.0
    _measured: tuple[Sensitivity, ...] = ()

    def find(self) -> list[Way]:
        """The calibration first, then each compensation on top of what helped before it.

        The best way comes first; those before its last steps follow, as far as their errors are hardly larger: of a
        metric on a few hundred items, one of them may lose less.

        Raises:
            InputError: the graph cannot be run.
        """
        self._began_left_s = self.material.left_s()
        way = self._observed(Way(self.raised, {}, self.target, keep=self.material.keep))
        way, best = self._calibrated(way)
        path = [(way, best.size)]
        for name, compensate in self._compensations():
            if self._spare_s() <= 0:
                self.notes.append(f"{name} was not tried: it would not have ended within the deadline")
                continue
            self.material.say(f"int8: {name}")
            other = compensate(way)
            judged = self._judged(other)
            if _helps(judged, best):
                way, best = replace(other, compensated=(*way.compensated, name)), judged
                path.append((way, best.size))
        return [way for way, size in reversed(path) if size <= best.size * _HARDLY_LARGER]

    def _compensations(self) -> tuple[tuple[str, Callable[[Way], Way]], ...]:
        return (
            ("cross-layer equalisation", self._equalised),
            ("bias absorption", self._absorbed),
            ("SmoothQuant", self._smoothed),
            ("adaptive rounding", self._rounded),
            ("bias correction", self._corrected),
        )

    @cached_property
    def raised(self) -> ir.Model:
        """The model as quantize() would raise it: a Softmax of opset 12 is three nodes then, whose ranges count too."""
        return opset.raised(self.material.graph, opset.PER_CHANNEL)

    def sensitivity(self, way: Way, share: float) -> tuple[Sensitivity, ...]:
        """Each node's error alone, as far as a share of the time left goes.

        It is taken once: rounding and bias correction, which come after it, change no node's rank much.
        """
        if not self._measured:
            budget = self.material.affordable(share)
            self._measured = measure(
                way.graph, way.nodes, way.lowered, self.material.judge, self.material.say, budget
            )
        return self._measured

    def _spare_s(self) -> float:
        """Seconds that may go into what is not needed: the islands are searched after it."""
        return self.material.left_s() - _FOR_ISLANDS * self._began_left_s

    def _calibrated(self, way: Way) -> tuple[Way, Judgement]:
        tried: list[tuple[bool, float, int, Way, Judgement]] = []
        for method, percentile in METHODS:
            self.material.say(f"int8: calibration by {method}")
            other = replace(way, method=method, percentile=percentile)
            judged = self._judged(other)
            tried.append((not judged.passed, judged.size, len(tried), other, judged))
        _, _, _, best, judged = min(tried, key=lambda each: each[:3])
        return best, judged

    def _judged(self, way: Way) -> Judgement:
        return self.material.judge.numbers(way.whole, "int8")

    def _observed(self, way: Way) -> Way:
        """With the ranges of its graph taken anew, of all that any set of its nodes needs."""
        values = possible_values(way.graph, frozenset(way.nodes))
        calibration = self.material.split.calibration
        return replace(way, histograms=collect(way.graph, calibration, values, self.material.say))

    def _changed(self, way: Way, graph: ir.Model) -> Way:
        """The way with another graph; with itself where that is the same one."""
        return (
            way if serialized(graph) == serialized(way.graph) else self._observed(replace(way, graph=graph))
        )

    def _equalised(self, way: Way) -> Way:
        largest = {name: found.high for name, found in way.histograms.items()}
        return self._changed(way, equalize.compensate(way.graph, largest))

    def _absorbed(self, way: Way) -> Way:
        calibration = self.material.split.calibration
        return self._changed(way, absorb.compensate(way.graph, calibration, self.material.say))

    def _smoothed(self, way: Way) -> Way:
        calibration = self.material.split.calibration
        graph = smoothquant.compensate(way.graph, way.nodes, calibration, self.material.say)
        return self._changed(way, graph)

    def _rounded(self, way: Way) -> Way:
        """The layers that need it: those with the most error alone, up to most of the error together."""
        nodes = frozenset(way.nodes)
        needy = _most(self.sensitivity(way, _FOR_SENSITIVITY))
        rounding = adaround.compensate(
            folded(way.graph, nodes),
            way.lowered(nodes),
            needy,
            self.material.split.calibration,
            self.material.say,
            self._spare_s,
        )
        return replace(way, rounding=rounding)

    def _corrected(self, way: Way) -> Way:
        return self._corrected_for(way, frozenset(way.nodes), self._spare_s)

    def corrected_again(self, way: Way, kept: frozenset[str]) -> Way:
        """The way with its biases corrected for int8 without those nodes: what they shifted is shifted no more."""
        spare_s = self.material.spare_s(_FOR_CORRECTION)
        nodes = frozenset(way.nodes) - kept
        if way.uncorrected is None or not kept or spare_s() <= 0:
            return way
        other = self._corrected_for(way, nodes, spare_s)
        judged, before = (self.material.judge(each.lowered(nodes), "int8") for each in (other, way))
        return other if judged.passed and judged.size < before.size else way

    def _corrected_for(self, way: Way, nodes: frozenset[str], spare_s: Callable[[], float]) -> Way:
        def lower(graph: ir.Model) -> ir.Model:
            return replace(way, graph=graph).lowered(nodes)

        # folded: a Conv's result then has the name that its layer's had before
        plain = way.uncorrected or folded(way.graph, frozenset(way.nodes))
        calibration = self.material.split.calibration
        graph = bias.compensate(plain, nodes, lower, calibration, self.material.say, spare_s)
        return replace(way, graph=graph, uncorrected=plain)


def _helps(judged: Judgement, before: Judgement) -> bool:
    """Whether a compensation is worth keeping: it passes where it did not, or its error is clearly smaller."""
    if judged.passed != before.passed:
        return judged.passed
    return judged.size < before.size * _HELPS


def _most(sensitivity: Sequence[Sensitivity]) -> list[str]:
    """The nodes that make most of the squared error together."""
    squares = {each.node: math.inf if each.error is None else each.error**2 for each in sensitivity}
    order = most_first(sensitivity)
    total, sum_by_now = sum(squares.values()), 0.0
    found: list[str] = []
    for node in order[:_ROUNDED_LAYERS]:
        if sum_by_now >= _ROUNDED_SHARE * total:
            break
        found.append(node)
        sum_by_now += squares[node]
    return found
