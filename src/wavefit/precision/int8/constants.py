"""Adds constants to a graph under names that are free."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from wavefit.precision.names import Names

if TYPE_CHECKING:
    import onnx_ir as ir


class Constants:
    """The names and initializers of one graph."""

    def __init__(self, model: ir.Model) -> None:
        self._graph = model.graph
        self._names = Names(model)

    def free(self, name: str) -> str:
        """That name, or one like it, which no node and no value has; it is taken from now on."""
        return self._names.fresh(name)

    def add(self, name: str, array: np.ndarray) -> ir.Value:
        """A new initializer."""
        import onnx_ir as ir

        free = self.free(name)
        tensor = ir.tensor(np.array(array, order="C", copy=True), name=free)
        kind = ir.TensorType(tensor.dtype)
        value = ir.Value(name=free, shape=ir.Shape(array.shape), type=kind, const_value=tensor)
        self._graph.register_initializer(value)
        return value

    def drop_unread(self) -> None:
        """Removes initializers that nothing reads."""
        for name, value in list(self._graph.initializers.items()):
            if not value.uses() and not value.is_graph_output() and not value.is_graph_input():
                del self._graph.initializers[name]
