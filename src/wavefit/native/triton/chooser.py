"""The Triton templates for one device, and the chains that pay on it."""

from __future__ import annotations

from collections.abc import Mapping

from wavefit.native import chooser
from wavefit.native.chooser import Choices
from wavefit.native.graph import Graph
from wavefit.native.operation import Implementation, Limits, Operation
from wavefit.native.triton import chains, siblings
from wavefit.native.triton.kernels import TEMPLATES

_MEASURED = "library_product"
"""A library's product: never guessed, as a library may pick a naive kernel, or compile at its first call."""


class Chooser(chooser.Chooser):
    """See :class:`wavefit.native.chooser.Chooser`.

    Args:
        limits: of the device.
        tuned: template and configuration by ``Operation.key``.
        measured: seconds by the same, of all that was tuned.

    Attributes:
        asked: the operations that a choice was made for, by key; see :mod:`recipe`.
    """

    def __init__(
        self, limits: Limits, tuned: Choices | None = None, measured: Mapping[str, float] | None = None
    ) -> None:
        super().__init__(TEMPLATES, limits, tuned)
        self.limits, self.tuned, self.measured = limits, tuned or {}, measured or {}
        self.asked: set[str] = set()

    def rewrite(self, graph: Graph) -> None:
        """Joins products that read the same; makes chains where measurements, or predictions, say that they pay."""
        siblings.run(graph)
        chains.run(graph, self.pays)

    def build(self, operation: Operation) -> Implementation:
        self.asked.add(operation.key)
        return super().build(operation)

    def _guessed(self, operation: Operation) -> list[str]:
        found = super()._guessed(operation)
        return [name for name in found if name != _MEASURED] or found

    def pays(self, chain: Operation, apart: list[Operation]) -> bool:
        """Whether a chain takes less than its parts."""
        self.asked |= {each.key for each in (chain, *apart)}
        if all(each.key in self.measured for each in (chain, *apart)):
            return self.measured[chain.key] < sum(self.measured[each.key] for each in apart)
        fused, costs = self.cost(chain), [self.cost(each) for each in apart]
        known = [each for each in costs if each is not None]
        return fused is not None and len(known) == len(costs) and fused < sum(known)
