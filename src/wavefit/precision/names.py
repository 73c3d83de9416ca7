"""Names that a graph does not have yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir


class Names:
    """Names that no value or node of the model has yet."""

    def __init__(self, model: ir.Model) -> None:
        self._taken = {str(value.name) for graph in model.graphs() for value in graph.initializers.values()}
        for graph in model.graphs():
            self._taken.update(str(value.name) for value in graph.inputs)
        for node in model.graph.all_nodes():
            self._taken.add(str(node.name))
            self._taken.update(str(value.name) for value in node.outputs)

    def fresh(self, base: str) -> str:
        name, number = base, 1
        while name in self._taken:
            number += 1
            name = f"{base}_{number}"
        self._taken.add(name)
        return name
