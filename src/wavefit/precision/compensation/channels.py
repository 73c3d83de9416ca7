"""Which channels of a graph may be scaled freely: divided where they are made and multiplied where they are used.

Each channel of each float value has a number. A layer with constant weights, or a product with a constant vector,
makes new channels; what is positively homogeneous, f(s x) = s f(x) for s > 0, hands them on; what adds two values
makes their channels one (union-find). A channel that reaches anything else, or an output of the graph, is fixed.
What is left can be scaled by any positive number without changing an answer but by rounding.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from wavefit.precision.graph import constant
from wavefit.precision.linear import Linear, assign

if TYPE_CHECKING:
    import onnx_ir as ir


@dataclass(frozen=True)
class Channels:
    """The channels of one value: their numbers along one axis."""

    axis: int
    ids: np.ndarray


@dataclass(frozen=True)
class Vector:
    """A constant input with one number a channel, divided by the channel's scale: a bias, a norm's weight, a ceiling.

    Args:
        gain: whether the channels' size is proportional to it.
    """

    node: ir.Node
    index: int
    channels: Channels
    gain: bool


@dataclass
class Trace:
    """The channels of a graph.

    Args:
        makers: layers, with the channels that they make.
        users: layers, with the channels that they read.
        vectors: constants in terms of channels that they belong to.
        ceilings: Clip nodes from 0 to a constant; equalisation must take care of their upper end.
        at: the channels of values, by value name.
    """

    makers: list[tuple[Linear, np.ndarray]] = field(default_factory=list)
    users: list[tuple[Linear, np.ndarray]] = field(default_factory=list)
    vectors: list[Vector] = field(default_factory=list)
    ceilings: list[tuple[ir.Node, Channels]] = field(default_factory=list)
    at: dict[str, Channels] = field(default_factory=dict)
    count: int = 0
    _parent: list[int] = field(default_factory=list)
    _fixed: set[int] = field(default_factory=set)

    def roots(self, ids: np.ndarray) -> np.ndarray:
        """The number that each channel is known by; equal for channels that must have the same scale."""
        return np.array([self._find(int(number)) for number in ids], np.int64)

    def free(self) -> np.ndarray:
        """For each number, whether it may be scaled; shape (count,)."""
        fixed = {self._find(number) for number in self._fixed}
        return np.array([self._find(number) not in fixed for number in range(self.count)], bool)

    def new(self, size: int) -> np.ndarray:
        """Numbers of new channels."""
        ids = np.arange(self.count, self.count + size)
        self._parent += ids.tolist()
        self.count += size
        return ids

    def join(self, one: np.ndarray, other: np.ndarray) -> None:
        for a, b in zip(one.tolist(), other.tolist(), strict=True):
            first, second = sorted((self._find(a), self._find(b)))
            self._parent[second] = first

    def fix(self, value: ir.Value | None) -> None:
        """The channels of this value may not be scaled."""
        if value is not None and value.name in self.at:
            self.fix_ids(self.at[str(value.name)].ids)

    def fix_ids(self, ids: np.ndarray) -> None:
        """These channels may not be scaled."""
        self._fixed.update(ids.tolist())

    def _find(self, number: int) -> int:
        while self._parent[number] != number:
            self._parent[number] = self._parent[self._parent[number]]
            number = self._parent[number]
        return number


def apply(found: Trace, scale: np.ndarray) -> None:
    """Scales the traced graph in place: made channels are divided by their scale, read ones multiplied by it.

    Args:
        scale: positive, shape (count,), equal for channels of one root, 1 where fixed.
    """
    for layer, ids in found.makers:
        matrix = layer.matrix()
        by = scale[ids].astype(np.float64)
        if (by != 1).any():
            layer.set_matrix((matrix / by.reshape(layer.groups, -1, 1, 1)).astype(matrix.dtype))
            bias = layer.bias() if layer.bias_node is None else None  # an Add's is a vector of its own
            if bias is not None and layer.can_have_bias:  # of beta 0 it has no effect
                layer.set_bias(bias / by)
    for layer, ids in found.users:
        matrix = layer.matrix()
        by = scale[ids].astype(np.float64)
        if (by != 1).any():
            layer.set_matrix((matrix * by.reshape(layer.groups, 1, -1, 1)).astype(matrix.dtype))
    for vector in found.vectors:
        by = scale[vector.channels.ids].astype(np.float64)
        if (by != 1).any():
            _divide(vector, by)


def _divide(vector: Vector, by: np.ndarray) -> None:
    array = constant(vector.node.inputs[vector.index])
    assert array is not None
    rank = rank_of(vector.node.outputs[0]) or vector.channels.axis + 1
    behind = rank - 1 - vector.channels.axis
    assign(vector.node, vector.index, (array / by.reshape(-1, *(1,) * behind)).astype(array.dtype))


def rank_of(value: ir.Value | None) -> int | None:
    """The number of axes; None where it is not known."""
    return None if value is None or value.shape is None else len(value.shape)
