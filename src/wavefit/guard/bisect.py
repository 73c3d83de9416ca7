"""The first node whose output moved, found by opening the graph with some of its intermediates as outputs."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from wavefit.errors import InputError, RouteError
from wavefit.guard.limits import Limits
from wavefit.guard.numeric import Tally
from wavefit.guard.ort import OrtReference
from wavefit.guard.probe import Graph
from wavefit.guard.reference import Reference
from wavefit.routes.session import Arrays, Session
from wavefit.schema import BadNode, Model, Plan

OpenWith = Callable[[Path, tuple[str, ...]], Session]
"""Opens a model file that has those outputs besides its own; may raise RouteError or InputError."""


def first_bad_node(
    model: Model,
    reference: Reference,
    plan: Plan,
    open_with: OpenWith,
    workdir: Path | None = None,
    limit_s: float = math.inf,
) -> BadNode | None:
    """Bisects the ancestors of the output that moved, as ``git bisect`` does a history.

    Each step exposes the tensor that halves the suspects, and compares it with the fp32 reference by the check's own
    rule. A good tensor clears itself and all its ancestors. About log2(nodes) openings. A tensor that cannot be
    exposed, or whose exposure makes the fault vanish (it then lies in a fusion across it), is left out.

    Args:
        workdir: probes are written there; a temporary folder where None.
        limit_s: no further opening is begun that would take longer, going by the slowest so far; what is known by
            then is answered.

    Returns:
        None where no output of the model moved.
    """
    if workdir is None:
        with tempfile.TemporaryDirectory(prefix="wavefit-bisect-") as folder:
            return first_bad_node(model, reference, plan, open_with, Path(folder), limit_s)
    clock = _Clock(limit_s)
    graph = Graph(Path(model.path), workdir)
    search = _Search(model, graph, plan, _limits(reference, plan), open_with)
    fault = search.find_fault(reference)
    if fault is None or fault.output not in graph.producer:
        return None
    return search.narrow(fault, clock)


class _Clock:
    """Says whether there is time for another step."""

    def __init__(self, limit_s: float) -> None:
        self._last = time.monotonic()
        self._end = self._last + limit_s
        self._slowest_s = 0.0

    def allows_another(self) -> bool:
        """Whether a step as slow as the slowest so far would end in time; called before each."""
        now = time.monotonic()
        self._slowest_s, self._last = max(self._slowest_s, now - self._last), now
        return now + self._slowest_s <= self._end


@dataclass(frozen=True)
class _Moved:
    output: str
    rel_l2: float | None
    reason: str


class _Search:
    """One bisection."""

    def __init__(self, model: Model, graph: Graph, plan: Plan, limits: Limits, open_with: OpenWith) -> None:
        self.model, self.graph, self.plan, self.limits = model, graph, plan, limits
        self.open_with = open_with
        self.inputs: Arrays = {}
        self.hidden: dict[int, str] = {}  # nodes that cannot be looked at, and why

    def find_fault(self, reference: Reference) -> _Moved | None:
        """The earliest of the model's outputs that moved, on the first batch where one does."""
        session = self.open_with(Path(self.model.path), ())
        try:
            for start in range(0, reference.samples.count, self.plan.batch):
                self.inputs = reference.samples.batch(start, self.plan.batch)
                expected = reference.expected(start, self.plan.batch)
                moved = self._moved(session.run(self.inputs), expected)
                if moved:
                    return min(moved, key=lambda fault: self.graph.producer.get(fault.output, -1))
        finally:
            session.close()
        return None

    def narrow(self, fault: _Moved, clock: _Clock) -> BadNode:
        bad = self.graph.producer[fault.output]
        suspects = self.graph.ancestors[bad]
        while True:
            probe = self._next(suspects, bad)
            if probe is None:
                return self._named(bad, fault, suspects, "no tensor to expose")
            if not clock.allows_another():
                return self._named(bad, fault, suspects, "there was no time left")
            found = self._look(probe, fault)
            if isinstance(found, str):
                self.hidden[probe] = found
            elif found is None:
                suspects &= ~self.graph.ancestors[probe]
            else:
                bad, fault = probe, found
                suspects &= self.graph.ancestors[probe]

    def _next(self, suspects: int, bad: int) -> int | None:
        """The suspect that splits the suspects most evenly."""
        half = suspects.bit_count() / 2
        open_ = [
            node
            for node in self.graph.nodes_in(suspects)
            if node != bad and node not in self.hidden and self.graph.tensor(node) is not None
        ]
        return min(
            open_,
            key=lambda node: abs((self.graph.ancestors[node] & suspects).bit_count() - half),
            default=None,
        )

    def _look(self, node: int, fault: _Moved) -> _Moved | str | None:
        """How a node's output moved; None where it did not; why it cannot be said, as text."""
        name = self.graph.tensor(node)
        assert name is not None
        wanted = (name, fault.output)
        try:
            path, added = self.graph.expose(wanted)
            try:
                actual, expected = self._both(path, added, wanted)
            finally:
                path.unlink()  # each is as large as the model
        except (RouteError, InputError) as error:
            return str(error)
        moved = {found.output: found for found in self._moved(actual, expected)}
        if name in moved:
            return moved[name]
        return None if fault.output in moved else "the fault is gone once its output is exposed"

    def _both(self, path: Path, added: tuple[str, ...], wanted: tuple[str, ...]) -> tuple[Arrays, Arrays]:
        """The candidate's outputs and the reference's, of a model file."""
        session = self.open_with(path, added)
        try:
            actual = session.run(self.inputs)
        finally:
            session.close()
        return actual, OrtReference(self.model, path, wanted)(self.inputs)

    def _moved(self, actual: Arrays, expected: Arrays) -> list[_Moved]:
        found = []
        for name, want in expected.items():
            tally = Tally(name, self.limits, want)
            tally.add(actual.get(name), want, None)
            result = tally.result()
            if result.reasons:
                found.append(_Moved(name, result.error.rel_l2, result.reasons[0]))
        return found

    def _named(self, bad: int, fault: _Moved, suspects: int, why: str) -> BadNode:
        node = self.graph.nodes[bad]
        unseen = [index for index in self.graph.nodes_in(suspects) if index != bad]
        detail = fault.reason
        if unseen:
            names = ", ".join(
                f"{self.graph.nodes[i].op_type} {self.graph.nodes[i].name!r}" for i in unseen[:3]
            )
            why = next((self.hidden[index] for index in unseen if index in self.hidden), why)
            detail += f"; {len(unseen)} nodes before it could not be looked at ({names}: {why})"
        return BadNode(
            name=node.name or fault.output,
            op=node.op_type,
            output=fault.output,
            rel_l2=fault.rel_l2,
            detail=detail,
        )


def _limits(reference: Reference, plan: Plan) -> Limits:
    """The check's limits, with the reference's own float64 error taken from the model's outputs."""
    errors = []
    for name, exact in (reference.float64 or {}).items():
        want = reference.outputs[name][: len(exact)] if reference.per_item else reference.outputs[name]
        tally = Tally(name, Limits(plan.precision), want)
        tally.add(want, want, exact)
        error = tally.result().error.reference_rel_l2_float64
        errors += [] if error is None else [error]
    return Limits(plan.precision, reference.unit_roundoff, max(errors, default=None))
