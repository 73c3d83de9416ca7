"""A model's graph as the bisection sees it: who feeds whom, and copies with more outputs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from wavefit.errors import InputError

_FLOATS = (1, 10, 11, 16)  # TensorProto FLOAT, FLOAT16, DOUBLE, BFLOAT16


class Graph:
    """The main graph of an ONNX file, without its weights.

    Args:
        path: the file.
        workdir: copies with more outputs are written there, external data beside them.

    Attributes:
        nodes: in the graph's order, which ONNX demands to be topological.
        producer: tensor name -> index of the node that makes it.
        ancestors: of each node, a bit set of node indices, itself included; only nodes that depend on an input.
    """

    def __init__(self, path: Path, workdir: Path) -> None:
        import onnx

        self._path, self._workdir = path, workdir
        self._model = onnx.load(str(path), load_external_data=False)
        self._types = _types(self._model)
        self._copied = False
        self._count = 0
        self.nodes: Sequence[Any] = list(self._model.graph.node)
        self.producer = {name: index for index, node in enumerate(self.nodes) for name in node.output if name}
        self.ancestors = self._ancestors()

    def _ancestors(self) -> list[int]:
        weights = {weight.name for weight in self._model.graph.initializer}
        inputs = {value.name for value in self._model.graph.input} - weights
        found: list[int] = []
        for index, node in enumerate(self.nodes):
            names = [*node.input, *_captured(node)]
            before = [self.producer[name] for name in names if self.producer.get(name, index) < index]
            bits = 0
            for parent in before:
                bits |= found[parent]
            found.append(bits | 1 << index if bits or inputs.intersection(names) else 0)
        return found

    def nodes_in(self, bits: int) -> Iterator[int]:
        """The indices in a bit set, ascending."""
        while bits:
            lowest = bits & -bits
            yield lowest.bit_length() - 1
            bits ^= lowest

    def tensor(self, node: int) -> str | None:
        """The node's first output that is a float tensor of known type; None where it has none."""
        for name in self.nodes[node].output:
            if name in self._types and self._types[name].tensor_type.elem_type in _FLOATS:
                return name
        return None

    def expose(self, names: Sequence[str]) -> tuple[Path, tuple[str, ...]]:
        """Writes a copy of which those tensors are outputs too.

        Returns:
            The file, and which of the names were not outputs already.

        Raises:
            InputError: the folder cannot be written, or external data lie outside the model's folder.
        """
        import onnx

        have = {output.name for output in self._model.graph.output}
        added = tuple(name for name in dict.fromkeys(names) if name not in have)
        copy = onnx.ModelProto()
        copy.CopyFrom(self._model)
        for name in added:
            copy.graph.output.add(name=name, type=self._types[name])
        self._count += 1
        path = self._workdir / f"probe{self._count}.onnx"
        try:
            self._copy_external()
            path.write_bytes(copy.SerializeToString())
        except OSError as error:
            raise InputError(f"{path} could not be written: {error.strerror}") from error
        return path, added

    def _copy_external(self) -> None:
        """Runtimes read external data beside the model only, and refuse links: each file is copied, once."""
        if self._copied:
            return
        for location in sorted(_locations(self._model)):
            if Path(location).is_absolute() or ".." in Path(location).parts:
                raise InputError(f"{self._path}: external data {location!r} lies outside the model's folder")
            target = self._workdir / location
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self._path.parent / location, target)
        self._copied = True


def _types(model: Any) -> dict[str, Any]:
    """The types of all tensors that shape inference knows."""
    import onnx

    graph = onnx.shape_inference.infer_shapes(model).graph
    return {
        value.name: value.type
        for value in (*graph.value_info, *graph.output)
        if value.type.HasField("tensor_type") and value.type.tensor_type.elem_type
    }


def _locations(model: Any) -> set[str]:
    from onnx.external_data_helper import uses_external_data

    return {
        entry.value
        for tensor in model.graph.initializer
        if uses_external_data(tensor)
        for entry in tensor.external_data
        if entry.key == "location"
    }


def _captured(node: Any) -> Iterator[str]:
    """Names that a node's subgraphs read; those that they make themselves are harmless among them."""
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                yield from inner.input
                yield from _captured(inner)
            yield from (value.name for value in graph.output)
