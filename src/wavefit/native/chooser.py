"""Which template and configuration compute an operation: the tuned one, else what the model predicts best."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from wavefit.native.graph import Graph
from wavefit.native.operation import Config, Implementation, Limits, Operation, Packed
from wavefit.native.templates import Templates

Choices = Mapping[str, tuple[str, Config]]
"""Template and configuration by ``Operation.key``."""


class Chooser:
    """The templates of one language for one device; see :class:`wavefit.native.program.Kernels`.

    Args:
        templates: of the language.
        limits: of the device.
        tuned: choices that were measured on it; the others are predicted.
    """

    def __init__(self, templates: Templates, limits: Limits, tuned: Choices | None = None) -> None:
        self._templates = templates
        self._limits = limits
        self._tuned = tuned or {}
        self._found: dict[str, tuple[float, str, Config] | None] = {}

    def rewrite(self, graph: Graph) -> None:
        """Passes of the language's own: none."""

    def cost(self, operation: Operation) -> float | None:
        """Predicted seconds without tuning: a layout that is chosen by it is the same before and after."""
        found = self._predicted(operation)
        return None if found is None else found[0]

    def build(self, operation: Operation) -> Implementation:
        tuned = self._tuned.get(operation.key)
        if tuned is None:
            found = self._predicted(operation)
            assert found is not None, operation
            tuned = found[1:]
        template, config = tuned
        return self._templates.get(template).build(operation, config)

    def pack(
        self, made: Implementation, packed: Packed, operation: Operation, array: np.ndarray
    ) -> np.ndarray:
        return self._templates.get(made.template).pack(packed.how, operation, array)

    def _predicted(self, operation: Operation) -> tuple[float, str, Config] | None:
        key = operation.key
        if key not in self._found:
            self._found[key] = self._cheapest(operation)
        return self._found[key]

    def _guessed(self, operation: Operation) -> list[str]:
        """The templates among which a prediction chooses."""
        return self._templates.claiming(operation, self._limits)

    def _cheapest(self, operation: Operation) -> tuple[float, str, Config] | None:
        best: tuple[float, str, Config] | None = None
        for name in self._guessed(operation):
            made = self._templates.get(name)
            config = next(iter(made.configurations(operation, self._limits)))
            cost = made.cost(operation, config, self._limits)
            if best is None or cost < best[0]:
                best = cost, name, config
        return best
