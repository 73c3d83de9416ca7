"""The Triton templates for one device, and the chains that pay on it."""

from __future__ import annotations

from collections.abc import Mapping

from wavefit.native import chooser
from wavefit.native.chooser import Choices
from wavefit.native.graph import Graph
from wavefit.native.operation import Limits, Operation
from wavefit.native.triton import chains, siblings
from wavefit.native.triton.kernels import TEMPLATES


class Chooser(chooser.Chooser):
    """See :class:`wavefit.native.chooser.Chooser`.

    Args:
        limits: of the device.
        tuned: template and configuration by ``Operation.key``.
        measured: seconds by the same, of all that was tuned.
    """

    def __init__(
        self, limits: Limits, tuned: Choices | None = None, measured: Mapping[str, float] | None = None
    ) -> None:
        super().__init__(TEMPLATES, limits, tuned)
        self._measured = measured or {}

    def rewrite(self, graph: Graph) -> None:
        """Joins products that read the same; makes chains where measurements, or predictions, say that they pay."""
        siblings.run(graph)
        chains.run(graph, self.pays)

    def pays(self, chain: Operation, apart: list[Operation]) -> bool:
        """Whether a chain takes less than its parts."""
        if all(each.key in self._measured for each in (chain, *apart)):
            return self._measured[chain.key] < sum(self._measured[each.key] for each in apart)
        fused, costs = self.cost(chain), [self.cost(each) for each in apart]
        known = [each for each in costs if each is not None]
        return fused is not None and len(known) == len(costs) and fused < sum(known)
