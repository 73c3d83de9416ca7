"""Where every tensor of a graph lies: which storage, in which order of axes. Decided once, before any kernel is made.

Images (and sequences) that convolutions, pools and the like touch lie channels-last, everything else in the order of
its shape. Reshape, Transpose, Slice and Expand become views of their input's storage, and the inputs of a Concat are
written where they belong in its output. A Copy is put in where that cannot be, or where it lets a faster kernel work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from wavefit.native import views
from wavefit.native.graph import Graph, Node, Value
from wavefit.native.operation import Operation, UnsupportedNode, View, channels_last, row_major
from wavefit.native.passes._match import given

VIEWS = frozenset(("Reshape", "Transpose", "Slice", "Expand"))
_IMAGE = frozenset(
    ("Chain", "Conv", "ConvTranspose", "MaxPool", "AveragePool", "Resize", "LRN", "InstanceNormalization")
)
_SAME_ORDER = frozenset(
    ("Chain", "Pointwise", "Concat", "Slice", "Pad", "Copy", "Reduce")
)  # pass their input's order on

Cost = Callable[[Operation], float | None]
"""Predicted seconds of an operation; None where no kernel takes it."""


@dataclass(eq=False)
class Storage:
    """A stretch of memory that holds one tensor, or several that are views of it.

    Args:
        kind: "arena": planned by liveness; "constant": uploaded once; "input" and "output": the caller's.
        elements: how many it holds.
        dtype: of its elements.
        value: of a constant, whose elements it holds in the order of ``view``.
    """

    kind: Literal["arena", "constant", "input", "output"]
    elements: int
    dtype: str
    value: Value | None = None


@dataclass(frozen=True)
class Placed:
    """A tensor's place."""

    storage: Storage
    view: View


@dataclass(frozen=True)
class Layout:
    """The nodes that compute, in order, and where every value lies."""

    nodes: tuple[Node, ...]
    places: dict[Value, Placed]

    def operation(self, node: Node) -> Operation:
        return _operation(node, self.places)


def lay_out(graph: Graph, cost: Cost) -> Layout | tuple[UnsupportedNode, ...]:
    """Places every value of a graph, or says which nodes no kernel computes."""
    walk = _Walk(graph, cost)
    for node in graph.nodes:
        walk.visit(node)
    walk.give_out()
    return tuple(walk.refusals) if walk.refusals else Layout(tuple(walk.nodes), walk.places)


class _Walk:
    def __init__(self, graph: Graph, cost: Cost) -> None:
        self._graph = graph
        self._cost = cost
        self._images = _images(graph)
        self._parts = _parts(graph)
        self._turned = _turned(graph)
        self._copies: dict[tuple[Value, tuple[int, ...]], Value] = {}
        self.nodes: list[Node] = []
        self.refusals: list[UnsupportedNode] = []
        self.places: dict[Value, Placed] = {}
        for value in graph.inputs:
            self._place(value, "input", row_major(value.shape))

    def visit(self, node: Node) -> None:
        for value in node.inputs:
            if value is not None and value.constant is not None and value not in self.places:
                self._place(value, "constant", self._order(value))
        if node.op in VIEWS:
            self._view(node)
        elif node.op == "Concat":
            self._concat(node)
        else:
            self._compute(node)

    def _order(self, value: Value) -> tuple[int, ...]:
        """The strides that a value should have."""
        return channels_last(value.shape) if value in self._images else row_major(value.shape)

    def _place(
        self,
        value: Value,
        kind: Literal["arena", "constant", "input", "output"],
        strides: tuple[int, ...],
    ) -> None:
        storage = Storage(kind, value.size, value.dtype, value if kind == "constant" else None)
        self.places[value] = Placed(storage, View(shape=value.shape, strides=strides, dtype=value.dtype))

    def _reserve(self, value: Value) -> None:
        """A place for a value that is about to be made: within its Concat's output, or of its own."""
        if value in self.places:
            return
        part = self._parts.get(value)
        if part is not None:
            self._reserve(part.whole)
            place = self.places[part.whole]
            view = part.view(place.view)
            if view is not None and (not part.steps or self._runs_well(value, view)):
                self.places[value] = Placed(place.storage, view)
                return
        self._place(value, "arena", self._turned.get(value) or self._order(value))

    def _runs_well(self, value: Value, view: View) -> bool:
        """Whether elements lie in the order that the value should have, the innermost side by side."""
        axes = [axis for axis, size in enumerate(value.shape) if size > 1]
        proper = self._order(value)
        strides = [view.strides[axis] for axis in sorted(axes, key=lambda axis: proper[axis])]
        return strides == sorted(strides) and strides[:1] in ([], [1])

    # ---- the kinds of nodes -----------------------------------------------------------------------------------------

    def _compute(self, node: Node) -> None:
        for value in node.outputs:
            self._reserve(value)
        self._append(self._with_better_inputs(node))

    def _append(self, node: Node) -> None:
        """Takes a node whose places are known, if any kernel computes it."""
        if self._cost(_operation(node, self.places)) is None:
            self.refusals.append(UnsupportedNode(node=node.name, op=node.op, reason=_shapes(node)))
        self.nodes.append(node)

    def _with_better_inputs(self, node: Node) -> Node:
        """The node as it is, or on copies of its inputs in their proper order where that is faster."""
        wrong = [value for value in node.inputs[: node.own] if value is not None and self._misplaced(value)]
        if not wrong:
            return node
        proper = {value: Placed(*self._proper(value)) for value in wrong}
        as_is = self._cost(_operation(node, self.places))
        copied = self._cost(_operation(node, {**self.places, **proper}))
        if copied is None:
            return node
        for value in wrong:
            copy = self._copy_operation(value, proper[value].view)
            copied += self._cost(copy) or 0.0
        if as_is is not None and as_is <= copied:
            return node
        inputs = [self._copied(value) if value in wrong else value for value in node.inputs]
        return Node(
            node.op, node.name, inputs, node.outputs, node.attributes, node.epilogue, node.own, node.source
        )

    def _misplaced(self, value: Value) -> bool:
        view, strides = self.places[value].view, self._order(value)
        if value.constant is not None:
            return False
        return any(
            size > 1 and have != want
            for size, have, want in zip(view.shape, view.strides, strides, strict=True)
        )

    def _proper(self, value: Value) -> tuple[Storage, View]:
        view = View(shape=value.shape, strides=self._order(value), dtype=value.dtype)
        return Storage("arena", value.size, value.dtype), view

    def _copy_operation(self, value: Value, to: View) -> Operation:
        return Operation(
            op="Copy", inputs=(self.places[value].view,), outputs=(to,), constant=(False,), own=1
        )

    def _copied(self, value: Value) -> Value:
        """The value in its proper order, copied once for all who want it so."""
        key = (value, self._order(value))
        if key not in self._copies:
            copy = Value(f"{value.name}:copy", value.shape, value.dtype)
            storage, view = self._proper(value)
            self.places[copy] = Placed(storage, view)
            self._append(Node("Copy", f"{value.name}:copy", [value], [copy]))
            self._copies[key] = copy
        return self._copies[key]

    def _concat(self, node: Node) -> None:
        """Inputs that were made in their place are there already; the others are copied into it."""
        self._reserve(node.output)
        place, axis, start = self.places[node.output], node.attributes["axis"], 0
        for number, value in enumerate(node.inputs):
            assert value is not None
            size = value.shape[axis]
            view = views.part(place.view, axis, start, size)
            if size and not _lies_at(self.places[value], place.storage, view):
                piece = Value(f"{node.name}:part{number}", value.shape, value.dtype)
                self.places[piece] = Placed(place.storage, view)
                self._append(Node("Copy", node.name, [value], [piece], source=node.source))
            start += size

    def _view(self, node: Node) -> None:
        source = node.inputs[0]
        assert source is not None
        place = self.places[source]
        view = _viewed(node, place.view)
        if view is not None:
            self.places[node.output] = Placed(place.storage, view)
            return
        self._reshape_by_copy(node, source)

    def _reshape_by_copy(self, node: Node, source: Value) -> None:
        """A Reshape of elements that lie in another order: copied straight into the output where its place allows."""
        output = node.output
        target = View(shape=output.shape, strides=self._order(output), dtype=output.dtype)
        as_source = views.reshape(target, source.shape)
        if as_source is None:
            target = View(shape=output.shape, strides=row_major(output.shape), dtype=output.dtype)
            as_source = View(shape=source.shape, strides=row_major(source.shape), dtype=output.dtype)
        storage = Storage("arena", output.size, output.dtype)
        copy = Value(f"{node.name}:copy", source.shape, source.dtype)
        self.places[copy] = Placed(storage, as_source)
        self.places[output] = Placed(storage, target)
        self._append(Node("Copy", node.name, [source], [copy], source=node.source))

    # ---- the graph's outputs ----------------------------------------------------------------------------------------

    def give_out(self) -> None:
        """Each output of the graph in a storage of its own, in the order of its shape."""
        given: set[Storage] = set()
        for number, value in enumerate(self._graph.outputs):
            if value.constant is not None and value not in self.places:
                self._place(value, "constant", row_major(value.shape))
            place = self.places[value]
            whole = place.view.row_major and place.view.offset == 0 and place.storage.elements == value.size
            if whole and place.storage.kind == "arena" and place.storage not in given:
                place.storage.kind = "output"
            else:
                self._graph.outputs[number] = self._output_copy(value)
            given.add(self.places[self._graph.outputs[number]].storage)

    def _output_copy(self, value: Value) -> Value:
        copy = Value(value.name, value.shape, value.dtype)
        self._place(copy, "output", row_major(value.shape))
        if value.size:
            self._append(Node("Copy", f"{value.name}:output", [value], [copy]))
        return copy


def _viewed(node: Node, view: View) -> View | None:
    if node.op == "Reshape":
        return views.reshape(view, node.output.shape)
    if node.op == "Transpose":
        return views.transpose(view, node.attributes["perm"])
    if node.op == "Slice":
        return views.cut(view, node.attributes["starts"], node.attributes["steps"], node.output.shape)
    return views.expand(view, node.output.shape)


def _operation(node: Node, places: dict[Value, Placed]) -> Operation:
    return Operation(
        op=node.op,
        inputs=tuple(None if value is None else places[value].view for value in node.inputs),
        outputs=tuple(places[value].view for value in node.outputs),
        attributes=node.attributes,
        constant=tuple(
            value is not None and places[value].storage.kind == "constant" for value in node.inputs
        ),
        own=node.own,
        epilogue=node.epilogue,
    )


def _shapes(node: Node) -> str:
    inputs = ", ".join("-" if value is None else f"{value.dtype}{list(value.shape)}" for value in node.inputs)
    return f"no kernel takes ({inputs})"


def _images(graph: Graph) -> set[Value]:
    """The values that lie channels-last: what image operators read and make, and what is joined to it elementwise."""
    found: set[Value] = set()
    for node in graph.nodes:
        if node.op in _IMAGE:
            found.update(_of_rank([node.inputs[0], node.output], len(node.output.shape)))
    grown = True
    while grown:
        before = len(found)
        for node in graph.nodes:
            tied = node.inputs if node.op in _SAME_ORDER else node.inputs[node.own :]
            made = node.outputs if node.op == "Chain" else [node.output]
            together = _of_rank([*tied, *made], len(node.output.shape))
            if any(value in found for value in together):
                found.update(together)
        grown = len(found) > before
    return found


def _of_rank(values: Sequence[Value | None], rank: int) -> list[Value]:
    return [value for value in values if value is not None and len(value.shape) == rank >= 3]


def _lies_at(place: Placed, storage: Storage, view: View) -> bool:
    """Whether a value is where a view of a storage is; the strides of axes of size 1 do not count."""
    have = place.view
    steps = zip(view.shape, have.strides, view.strides, strict=True)
    return (
        place.storage is storage
        and have.offset == view.offset
        and all(size == 1 or one == other for size, one, other in steps)
    )


@dataclass(frozen=True)
class _Part:
    """Where a value belongs in a Concat's output.

    Args:
        whole: that output.
        axis, start, size: the stretch.
        steps: what comes between the value and the Concat, the Concat's own input first: Reshapes and Transposes.
    """

    whole: Value
    axis: int
    start: int
    size: int
    steps: tuple[Node, ...]

    def view(self, whole: View) -> View | None:
        """The value's place, the steps undone; None where a Reshape cannot be."""
        view: View | None = views.part(whole, self.axis, self.start, self.size)
        for step in self.steps:
            if view is not None and step.op == "Transpose":
                perm = step.attributes["perm"]
                view = views.transpose(view, sorted(range(len(perm)), key=lambda axis: perm[axis]))
            elif view is not None:
                view = views.reshape(view, given(step.inputs[0]).shape)
        return view


def _parts(graph: Graph) -> dict[Value, _Part]:
    """The values that may be made in their place in a Concat's output."""
    parts: dict[Value, _Part] = {}
    for node in reversed(graph.nodes):
        if node.op != "Concat":
            continue
        axis, start = node.attributes["axis"], 0
        for value in map(given, node.inputs):
            source, steps = _source(graph, value)
            producer = graph.producer(source)
            free = producer is not None and producer.op not in VIEWS and source not in graph.outputs
            if free and source not in parts and node.inputs.count(value) == 1:
                parts[source] = _Part(node.output, axis, start, value.shape[axis], steps)
            start += value.shape[axis]
    return parts


def _source(graph: Graph, value: Value) -> tuple[Value, tuple[Node, ...]]:
    """What a Concat's input is a view of, and the Reshapes and Transposes between, which nobody else reads."""
    steps: list[Node] = []
    maker = graph.producer(value)
    while maker is not None and maker.op in ("Reshape", "Transpose") and graph.only_user(value) is not None:
        value = given(maker.inputs[0])
        steps.append(maker)
        maker = graph.producer(value)
    return value, tuple(steps)


def _turned(graph: Graph) -> dict[Value, tuple[int, ...]]:
    """Strides of what an Attention makes for a Transpose alone that leaves rows whole, so that nothing is turned."""
    found: dict[Value, tuple[int, ...]] = {}
    for node in graph.nodes:
        user = graph.only_user(node.output) if node.op == "Attention" else None
        if user is None or user.op != "Transpose":
            continue
        perm, strides = user.attributes["perm"], row_major(user.output.shape)
        if perm[-1] == len(perm) - 1:
            found[node.output] = tuple(strides[perm.index(axis)] for axis in range(len(perm)))
    return found
