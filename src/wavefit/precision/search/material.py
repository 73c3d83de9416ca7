"""What every search works on, and what it answers with."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from wavefit.precision.graph import float_nodes
from wavefit.precision.search.data import Split
from wavefit.precision.search.evaluate import Judge, Judgement
from wavefit.schema import KeptNode, Model, Precision, Scaled, Sensitivity

if TYPE_CHECKING:
    import onnx_ir as ir


_MOST = 200
BY_HAND = "named with --keep"
"""Why a node stays that the user named."""


@dataclass(frozen=True)
class Material:
    """A model, its data, and who judges.

    Args:
        graph: of ``model``.
        keep: nodes that the user wants in fp32.
        mixed: whether nodes kept from int8 may be half, and several points of the trade-off are wanted.
        say: progress for people.
        left_s: seconds left for the whole search.
    """

    model: Model
    graph: ir.Model
    split: Split
    judge: Judge
    mixed: bool
    keep: frozenset[str]
    say: Callable[[str], None]
    left_s: Callable[[], float]

    def kept_by_hand(self, graph: ir.Model) -> tuple[KeptNode, ...]:
        """Those that the user named, in the graph's order."""
        return tuple(
            KeptNode(node=str(node.name), op=node.op_type, precision="fp32", reason=BY_HAND)
            for node in graph.graph
            if node.name in self.keep
        )

    def spare_s(self, share: float) -> Callable[[], float]:
        """Seconds left of a share of what is left now."""
        end_left_s = (1 - share) * self.left_s()
        return lambda: self.left_s() - end_left_s

    def affordable(self, share: float) -> int:
        """Evaluations that a share of the time left pays for, going by those so far; at least 2, at most 200."""
        each_s = self.judge.spent_s / max(1, self.judge.evaluations)
        return int(min(_MOST, max(2.0, share * self.left_s() / max(each_s, 1e-6))))


@dataclass(frozen=True)
class Draft:
    """A graph that passed, and how it came to be: a Variant before it is a file.

    Args:
        judgement: of the graph as emulated.
        assignment: of the nodes that are lowered.
        nodes: nodes that compute on floats, by the precision that they compute in.
    """

    graph: ir.Model
    precision: Precision
    target: str
    judgement: Judgement
    assignment: dict[str, Precision]
    nodes: dict[str, int]
    kept: tuple[KeptNode, ...] = ()
    scaled: tuple[Scaled, ...] = ()
    recipe: dict[str, str | int | float | bool] = field(default_factory=dict)
    sensitivity: tuple[Sensitivity, ...] = ()
    notes: tuple[str, ...] = ()


def counts(graph: ir.Model, assignment: Mapping[str, Precision]) -> dict[str, int]:
    """The model's float nodes by the precision that they are assigned."""
    found = Counter(assignment.get(str(node.name), "fp32") for node in float_nodes(graph))
    return dict(sorted(found.items()))


def most_first(sensitivity: Sequence[Sensitivity], saved: Mapping[str, float] | None = None) -> list[str]:
    """Nodes by how much they are to blame, most first.

    Args:
        saved: what lowering each saves, in any unit: blame is then error over saving.
    """

    def blame(each: Sensitivity) -> float:
        error = math.inf if each.error is None else each.error
        return error if saved is None else error / max(saved.get(each.node, 0.0), 1e-30)

    return [each.node for each in sorted(sensitivity, key=blame, reverse=True)]


def kept_by_guard(
    graph: ir.Model,
    names: frozenset[str],
    low: str,
    sensitivity: Sequence[Sensitivity],
    into: Precision = "fp32",
) -> tuple[KeptNode, ...]:
    """Nodes that no number convicts, but without which the guard does not pass.

    Args:
        into: what they are kept in.
    """
    errors = {each.node: each.error for each in sensitivity}
    made = []
    for node in graph.graph:
        name = str(node.name)
        if name not in names:
            continue
        error = errors.get(name)
        alone = f": alone it moves the outputs by {error:.1e} (relative L2)" if error is not None else ""
        reason = f"with it in {low} the guard does not pass{alone}"
        figures = {} if error is None else {"error": error}
        made.append(KeptNode(node=name, op=node.op_type, precision=into, reason=reason, figures=figures))
    return tuple(made)
