"""A compiled graph: kernels in order, the buffers that they work on, the arena, what the host gives and takes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from wavefit.native import memory, views
from wavefit.native.graph import Graph, Node, Value
from wavefit.native.layout import Layout, Placed, Storage, lay_out
from wavefit.native.memory import Life
from wavefit.native.operation import Buffer, Implementation, Kernel, Operation, Packed, UnsupportedNode


class Kernels(Protocol):
    """A source of kernels: the templates of one language, for one device."""

    def rewrite(self, graph: Graph) -> None:
        """Passes of the language's own, after all others."""
        ...

    def cost(self, operation: Operation) -> float | None:
        """Predicted seconds; None where no template takes it."""
        ...

    def build(self, operation: Operation) -> Implementation:
        """The kernels of an operation that has a cost."""
        ...

    def pack(
        self, made: Implementation, packed: Packed, operation: Operation, array: np.ndarray
    ) -> np.ndarray:
        """A constant input in the order that the kernels want."""
        ...


@dataclass(frozen=True)
class Step:
    """One launch.

    Args:
        kernel: what is launched.
        buffers: its arguments: numbers of the program's :attr:`Program.buffers`.
        op: of the node that it belongs to.
        node: that node's name.
        source: names of the ONNX nodes that it stands for.
        flops, bytes: of the whole node, on its first launch; 0 on the others.
    """

    kernel: Kernel
    buffers: tuple[int, ...]
    op: str
    node: str
    source: tuple[str, ...]
    flops: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class Place:
    """A buffer: a stretch of the arena, a constant that is uploaded once, or an input or output.

    Args:
        kind: as Storage has it; scratch lies in the arena.
        bytes: its size.
        offset: in the arena; 0 elsewhere.
    """

    kind: str
    bytes: int
    offset: int = 0


@dataclass(frozen=True)
class Port:
    """An input or output of the program, by name; row-major in a buffer of its own."""

    name: str
    buffer: int
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Program:
    """What a session runs.

    Args:
        steps: launches in order.
        buffers: what they work on.
        constants: the bytes to upload, by number of buffer.
        inputs, outputs: in the model's order.
        arena_bytes: of the one allocation for everything intermediate.
        bound_bytes: the most that is alive at one step: no arena can be smaller.
        operations: what is computed, with the kernels that were chosen, in order.
    """

    steps: tuple[Step, ...]
    buffers: tuple[Place, ...]
    constants: dict[int, np.ndarray]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    arena_bytes: int
    bound_bytes: int
    operations: tuple[tuple[Operation, Implementation], ...] = field(default=())

    @property
    def device_bytes(self) -> int:
        """All that is allocated on the device: arena, constants, inputs and outputs, once each."""
        return self.arena_bytes + sum(place.bytes for place in self.buffers if place.kind != "arena")

    @property
    def port_bytes(self) -> int:
        """Of the inputs and outputs that are not constants."""
        ports = {port.buffer for port in (*self.inputs, *self.outputs)}
        return sum(self.buffers[number].bytes for number in ports - self.constants.keys())


def compile_graph(graph: Graph, kernels: Kernels) -> Program | tuple[UnsupportedNode, ...]:
    """Lays a graph out, chooses kernels and plans memory. Touches no device.

    Returns:
        The program, or the nodes that no kernel computes.
    """
    layout = lay_out(graph, kernels.cost)
    if isinstance(layout, tuple):
        return layout
    return _Assembly(graph, layout, kernels).program()


_COUNTERS = ("counters",)


class _Assembly:
    def __init__(self, graph: Graph, layout: Layout, kernels: Kernels) -> None:
        self._graph = graph
        self._layout = layout
        self._kernels = kernels
        self._numbers: dict[Storage | tuple[object, ...], int] = {}
        self._places: list[Place] = []
        self._lives: dict[int, list[int]] = {}  # buffer -> steps that touch it
        self._constants: dict[int, np.ndarray] = {}
        self._steps: list[Step] = []
        self._operations: list[tuple[Operation, Implementation]] = []
        self._last_use = _last_uses(layout)
        self._counters = 0  # that the launches share

    def program(self) -> Program:
        inputs = tuple(self._port(value) for value in self._graph.inputs)
        for node in self._layout.nodes:
            self._lower(node)
        outputs = tuple(self._port(value) for value in self._graph.outputs)
        self._keep_counters()
        arena = self._arrange()
        return Program(
            steps=tuple(self._steps),
            buffers=tuple(self._places),
            constants=self._constants,
            inputs=inputs,
            outputs=outputs,
            arena_bytes=arena.bytes,
            bound_bytes=arena.bound_bytes,
            operations=tuple(self._operations),
        )

    def _keep_counters(self) -> None:
        if self._counters:
            number = self._number(_COUNTERS, "constant", 0)
            self._places[number] = Place("constant", 4 * self._counters)
            self._constants[number] = np.zeros(self._counters, np.int32)

    def _lower(self, node: Node) -> None:
        operation = self._layout.operation(node)
        if operation.output.size == 0:
            return
        made = self._kernels.build(operation)
        self._operations.append((operation, made))
        self._write_over(node)
        self._counters = max(self._counters, made.counters)
        first = len(self._steps)
        scratch = [
            self._number(("scratch", first, number), "arena", size)
            for number, size in enumerate(made.scratch)
        ]
        packed = [self._packed(node, operation, made, each) for each in made.packed]
        for launch in made.launches:
            buffers = tuple(self._buffer(node, each, scratch, packed) for each in launch.arguments)
            for buffer in buffers:
                self._lives.setdefault(buffer, []).append(len(self._steps))
            work = (made.flops, made.bytes) if len(self._steps) == first else (0, 0)
            self._steps.append(Step(launch.kernel, buffers, node.op, node.name, node.source, *work))

    def _write_over(self, node: Node) -> None:
        """Gives the output the storage of an operand that nobody reads after, where element falls on element."""
        place = self._layout.places[node.output]
        if len(node.outputs) > 1 or place.storage.kind != "arena" or place.storage in self._numbers:
            return
        sources = [self._layout.places[value] for value in node.inputs if value is not None]
        for source in sources[node.own - node.inputs[: node.own].count(None) :]:
            dies = self._last_use.get(source.storage) is node and source.storage.kind == "arena"
            alone = [each.storage for each in sources].count(source.storage) == 1
            same = source.view == place.view and source.storage.elements == place.storage.elements
            if dies and alone and same and source.storage in self._numbers:
                self._numbers[place.storage] = self._numbers[source.storage]
                return

    def _buffer(self, node: Node, argument: Buffer, scratch: list[int], packed: list[int]) -> int:
        if argument.kind == "scratch":
            return scratch[argument.index]
        if argument.kind == "packed":
            return packed[argument.index]
        if argument.kind == "counter":
            return self._number(_COUNTERS, "constant", 0)
        value = node.inputs[argument.index] if argument.kind == "input" else node.outputs[argument.index]
        assert value is not None
        return self._storage(self._layout.places[value])

    def _storage(self, place: Placed) -> int:
        storage = place.storage
        number = self._number(storage, storage.kind, storage.elements * np.dtype(storage.dtype).itemsize)
        if storage.value is not None and number not in self._constants:
            self._constants[number] = self._held(storage)
        return number

    def _packed(self, node: Node, operation: Operation, made: Implementation, packed: Packed) -> int:
        value = node.inputs[packed.input]
        assert value is not None
        place = self._layout.places[value]
        meaning = (operation.op, repr(operation.attributes), made.template, packed.how)
        key = (place.storage, repr(place.view), *meaning)
        if key not in self._numbers:
            logical = views.shown(self._held(place.storage), place.view)
            array = self._kernels.pack(made, packed, operation, np.array(logical))
            self._constants[self._number(key, "constant", array.nbytes)] = np.ascontiguousarray(array)
        return self._numbers[key]

    def _held(self, storage: Storage) -> np.ndarray:
        """A constant's elements in the order of its storage."""
        assert storage.value is not None
        return _stored(self._layout.places[storage.value])

    def _number(self, key: Storage | tuple[object, ...], kind: str, size: int) -> int:
        if key not in self._numbers:
            self._numbers[key] = len(self._places)
            self._places.append(Place(kind, size))
        return self._numbers[key]

    def _port(self, value: Value) -> Port:
        return Port(value.name, self._storage(self._layout.places[value]), value.shape, value.dtype)

    def _arrange(self) -> memory.Arena:
        """Gives every buffer of the arena its offset."""
        planned = [number for number, place in enumerate(self._places) if place.kind == "arena"]
        lives = [
            Life(bytes=self._places[number].bytes, first=self._lives[number][0], last=self._lives[number][-1])
            for number in planned
        ]
        arena = memory.arrange(lives)
        for number, offset in zip(planned, arena.offsets, strict=True):
            self._places[number] = Place("arena", self._places[number].bytes, offset)
        return arena


def _last_uses(layout: Layout) -> dict[Storage, Node]:
    """The last node that reads or writes each storage."""
    return {
        layout.places[value].storage: node
        for node in layout.nodes
        for value in (*node.inputs, *node.outputs)
        if value is not None
    }


def _stored(place: Placed) -> np.ndarray:
    """A constant's elements in the order in which its storage holds them."""
    value = place.storage.value
    assert value is not None
    assert value.constant is not None
    held = np.zeros(place.storage.elements, np.dtype(place.storage.dtype))
    views.shown(held, place.view)[...] = value.constant
    return held
