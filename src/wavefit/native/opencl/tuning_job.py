"""One operation tuned: its candidates compiled, checked and timed, and the winner held against the default."""

from __future__ import annotations

import faulthandler
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Literal

from wavefit.child.main import Reporter
from wavefit.kernels.tuner.search import Candidate, Search, Strategy
from wavefit.native.opencl import kernels, proof, trial
from wavefit.native.opencl.chooser import Chooser
from wavefit.native.opencl.compilers import Binaries, Compilers
from wavefit.native.opencl.trial import Trial
from wavefit.native.opencl.tuned import Begun, Choice, Evaluated, Store, code_hash, code_hashes
from wavefit.native.operation import Implementation, Limits, Operation
from wavefit.schema import fingerprint

if TYPE_CHECKING:
    from wavefit.native.opencl.tuning import Task

TOLERANCES = {"float32": 1e-4, "float16": 5e-3, "int8": 5e-3, "uint8": 5e-3}
"""Relative L2 to the first answer, which rounds otherwise too. Other types must be equal."""

_COMPILE_S = 20.0
_LATE_S = 5.0  # that the last candidate may still compile when the time is over
_GAIN = 0.98  # of the default's time: what a winner must come below
_ROUNDS = 5  # of winner and default, in turns
_PATIENCE = 20
_GRACE_S = 15.0  # that a process has to end after its deadline


class Job:
    """The search for one operation's kernels.

    Args:
        task: the whole.
        context: a ``pyopencl.Context``.
        pool: compiles.
        store: is written to.
        operation: what is computed.
    """

    def __init__(self, task: Task, context: Any, pool: Compilers, store: Store, operation: Operation) -> None:
        self._task, self._pool, self._store, self._operation = task, pool, store, operation
        self._candidates = list(candidates(operation, task.limits))
        self._search = Search(self._candidates, Strategy(patience=_PATIENCE, seed=task.seed))
        self._trial = Trial(operation, context, task.seed)
        self._known = store.evaluated(operation.key)
        self._context = context
        self._checked = False  # whether the first answer, which the others are held to, was held to numpy's
        self._told: dict[str, float | None] = {}  # by the hash of what the device runs
        self._kept: dict[str, trial.Candidate] = {}
        self._default = self._find_default()

    def _find_default(self) -> Candidate:
        made = Chooser(self._task.limits).build(self._operation)
        return next(
            each
            for each in self._candidates
            if each.group == made.template and each.parameters == made.config
        )

    def run(self, until: float, say: Reporter) -> Choice | None:
        """Searches until a time, and keeps the best; None where there was no time for anything."""
        self._remember()
        if not any(_same(line, self._default) and line.seconds is None for line in self._known):
            self._measure(
                self._default, self._submit(self._default), say
            )  # the others are held to its answer
        pending: deque[tuple[Candidate, Implementation, Future[Binaries | str]]] = deque()
        while time.time() < until:
            while len(pending) <= self._task.workers:
                candidate = self._ask()
                if candidate is None:
                    break
                pending.append((candidate, *self._submit(candidate)))
            if not pending:
                break
            candidate, made, future = pending.popleft()
            self._measure(candidate, (made, future), say)
        for _, _, future in pending:
            future.cancel()
        return self._choose(say)

    def _remember(self) -> None:
        """Tells the search what an earlier one measured."""
        by_identity = {each.identity: each for each in self._candidates}
        last = {Candidate(line.config, 0.0, line.template).identity: line for line in self._known}
        for identity, line in last.items():
            candidate = by_identity.get(identity)
            if candidate is not None:
                self._search.tell(candidate, line.seconds)
                self._told[_digest(self._build(candidate))] = line.seconds

    def _ask(self) -> Candidate | None:
        """The next candidate whose kernels are not those of one that was measured."""
        while (candidate := self._search.ask()) is not None:
            digest = _digest(self._build(candidate))
            if digest not in self._told:
                return candidate
            self._search.tell(candidate, self._told[digest])
        return None

    def _build(self, candidate: Candidate) -> Implementation:
        return kernels.get(candidate.group).build(self._operation, dict(candidate.parameters))

    def _submit(self, candidate: Candidate) -> tuple[Implementation, Future[Binaries | str]]:
        made = self._build(candidate)
        return made, self._pool.submit([launch.kernel.source for launch in made.launches])

    def _measure(
        self, candidate: Candidate, submitted: tuple[Implementation, Future[Binaries | str]], say: Reporter
    ) -> None:
        made, future = submitted
        started = time.perf_counter()
        patience_s = max(1.0, min(_COMPILE_S, self._task.until + _LATE_S - time.time()))
        binaries = self._pool.result(future, [launch.kernel.source for launch in made.launches], patience_s)
        waited = time.perf_counter() - started
        seconds, why = (
            (None, binaries) if isinstance(binaries, str) else self._timed(candidate, binaries, say)
        )
        self._told[_digest(made)] = seconds
        self._search.tell(candidate, seconds)
        self._store.append(self._line(candidate, seconds, why, waited))

    def _line(
        self, candidate: Candidate, seconds: float | None, why: str, waited: float | None = None
    ) -> Evaluated:
        return Evaluated(
            key=self._operation.key,
            template=candidate.group,
            config=dict(candidate.parameters),
            code=code_hash(candidate.group),
            seconds=seconds,
            why=why,
            compile_s=waited,
        )

    def _begin(self, candidate: Candidate) -> None:
        """Has it on the disk what is about to run: where that ends this process, its parent knows what to blame."""
        config = dict(candidate.parameters)
        key, run = self._operation.key, self._task.run
        self._store.append(Begun(key=key, template=candidate.group, config=config, run=run))

    def _timed(self, candidate: Candidate, binaries: Binaries, say: Reporter) -> tuple[float | None, str]:
        """Seconds, or None and why; a candidate that hangs ends this process, and is known by its Begun."""
        import pyopencl as cl

        self._begin(candidate)
        try:
            with Watch(self._task.run_s, say):
                ready = self._trial.compile(candidate.group, dict(candidate.parameters), binaries)
                off = self._off(ready)
                if not off <= self._tolerance:
                    return None, f"its answer is off by {off:.2g}"
                best = self._search.best
                seconds = self._trial.seconds(ready, None if best is None else best[1])
        except cl.Error as error:
            return None, " ".join(str(error).split())[:300]
        if candidate is self._default or self._search.best is None or seconds < self._search.best[1]:
            self._kept[fingerprint(candidate.identity)] = ready
        return seconds, ""

    @property
    def _tolerance(self) -> float:
        return TOLERANCES.get(self._operation.output.dtype, 0.0)

    def _off(self, ready: trial.Candidate) -> float:
        """Relative L2 to the first right answer; that one is held to numpy's, where numpy is quick enough."""
        if not self._checked:
            if self._trial.reference is None:
                self._trial.reference = proof.exact(self._operation, self._trial.logical())
            off = 0.0 if self._trial.reference is None else self._trial.error(ready)
            if not off <= self._tolerance:
                return off
            self._checked = True
        return self._trial.difference(ready)

    def _choose(self, say: Reporter) -> Choice | None:
        """The best that is faster than the default, both timed again in turns, and right on other sizes too."""
        default = self._kept.get(fingerprint(self._default.identity))
        while self._search.best is not None:
            best = self._search.best[0]
            if best.identity == self._default.identity:
                break
            with Watch(3 * self._task.run_s, say):
                seconds, default_s = self._again(best, default)
            if default_s is not None and seconds >= _GAIN * default_s:
                break
            self._begin(best)
            why = self._flaw(best, say)
            self._store.append(self._line(best, None if why else seconds, why))
            if not why:
                return self._chosen(best, seconds, default_s, "tuned")
            self._search.withdraw(best)
        if default is None:
            return None
        with Watch(self._task.run_s, say):
            seconds = self._trial.seconds(default)
        return self._chosen(self._default, seconds, seconds, "predicted")

    def _flaw(self, best: Candidate, say: Reporter) -> str:
        """What a winner computes wrongly of other sizes: it is right by chance."""
        import pyopencl as cl

        try:
            with Watch(3 * self._task.run_s, say):
                config, limits = dict(best.parameters), self._task.limits
                return proof.flaw(self._context, self._operation, best.group, config, limits, self._tolerance)
        except cl.Error as error:
            return " ".join(str(error).split())[:300]

    def _chosen(
        self,
        winner: Candidate,
        seconds: float,
        default_s: float | None,
        source: Literal["tuned", "predicted"],
    ) -> Choice:
        lines = self._store.evaluated(self._operation.key)
        choice = Choice(
            key=self._operation.key,
            template=winner.group,
            config=dict(winner.parameters),
            seconds=seconds,
            default_s=default_s,
            evaluations=len({fingerprint(each.template, each.config) for each in lines}),
            source=source,
            budget_s=self._task.budget_s,
            code=code_hashes(kernels.claiming(self._operation)),
        )
        self._store.append(choice)
        return choice

    def _again(self, best: Candidate, default: trial.Candidate | None) -> tuple[float, float | None]:
        """Seconds of the best and of the default, the least of rounds in turns."""
        ready = self._kept.get(fingerprint(best.identity))
        if ready is None:  # it was measured before this process began
            ready = self._trial.compile(best.group, dict(best.parameters))
            self._trial.difference(ready)
        if default is None:
            return self._trial.seconds(ready), None
        pairs = [(self._trial.seconds(ready), self._trial.seconds(default)) for _ in range(_ROUNDS)]
        return min(pair[0] for pair in pairs), min(pair[1] for pair in pairs)

    def close(self) -> None:
        self._kept.clear()
        self._trial.close()


def candidates(operation: Operation, limits: Limits) -> Iterator[Candidate]:
    """Every configuration of every template that computes an operation on such a device."""
    for name in kernels.claiming(operation, limits):
        template = kernels.get(name)
        for config in template.configurations(operation, limits):
            yield Candidate(config, template.cost(operation, config, limits), name)


def _same(line: Evaluated, candidate: Candidate) -> bool:
    return (line.template, line.config) == (candidate.group, candidate.parameters)


def _digest(made: Implementation) -> str:
    """Of what the device runs."""
    return fingerprint(made.launches, made.scratch, made.packed, made.template)


class Watch:
    """Ends this process where its body takes too long: a kernel that hangs lets no thread of Python's go on.

    Args:
        seconds: that the body may take.
        say: whose deadline the watch goes back to.
    """

    def __init__(self, seconds: float, say: Reporter) -> None:
        self._seconds, self._say = seconds, say

    def __enter__(self) -> None:
        faulthandler.dump_traceback_later(self._seconds, exit=True)

    def __exit__(self, *_: object) -> None:
        faulthandler.dump_traceback_later(max(1.0, self._say.left_s() + _GRACE_S), exit=True)
