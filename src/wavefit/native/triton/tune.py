"""Finds the fastest kernels for a GPU by trying them, within a budget of seconds, the heaviest operations first.

Many processes compile ahead while this one checks and times. What was measured is on the disk at once: nothing is lost
where the process ends, and a candidate that ended it is written off by the next run.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from wavefit.errors import RouteError
from wavefit.kernels.tuner.search import Candidate, Search, Strategy
from wavefit.native import engine, reference, tuned
from wavefit.native.limits import of_torch
from wavefit.native.operation import Implementation, Limits, Operation
from wavefit.native.program import compile_graph
from wavefit.native.triton import chains, kernels, siblings
from wavefit.native.triton.chooser import Chooser
from wavefit.native.triton.compilers import Compilers
from wavefit.native.triton.kernels import TEMPLATES
from wavefit.native.triton.runner import target_of
from wavefit.native.triton.trial import Trial
from wavefit.native.tuned import Begun, Choice, Evaluated, Store
from wavefit.schema import Device

Say = Callable[[str], None]
TOLERANCES = {"float32": 1e-4, "float16": 5e-3, "bfloat16": 4e-2, "int8": 5e-3, "uint8": 5e-3}
"""Relative L2 to the first answer, which rounds otherwise too. Other types must be equal."""

_PATIENCE = 16
_COMPILE_S = 40.0
_LEAST_S = 1.0
_GAIN = 0.98  # of the default's time: what a winner must come below
_MOST = 5e8  # operations that numpy does in less than a second
_EXACT = ("Conv", "MatMul", "Softmax", "LayerNormalization", "Attention")


def tune(
    operations: Sequence[Operation],
    device: Any,
    cache: Path,
    budget_s: float,
    say: Say,
    folder: Path | None = None,
    limits: Limits | None = None,
) -> dict[str, Choice]:
    """Tunes the operations of a program.

    Args:
        operations: in any order; one that comes several times counts as often.
        device: a ``torch.device``.
        cache: of code objects.
        budget_s: for all together.
        say: progress.
        folder: of the store; None for the user's.
        limits: of the device; None: what PyTorch tells.

    Returns:
        By ``Operation.key``: all that is known of these operations, from earlier tuning too.
    """
    limits = limits or of_torch(device)
    kept = open_store(device, folder)
    work = _work(operations, limits)
    had = {key for key, choice in kept.choices().items() if choice.budget_s >= budget_s}
    left = [each for each in work if each[0].key not in had]
    if left:
        say(f"tuning {len(left)} of {len(work)} operations, {budget_s:g} s at most")
        _write_off(kept, left)
        _tune_all(left, device, cache, budget_s, say, kept, limits)
    wanted = {operation.key for operation, _ in work}
    return {key: choice for key, choice in kept.choices().items() if key in wanted}


def open_store(device: Any, folder: Path | None = None) -> Store:
    """What is known of a ``torch.device``."""
    import torch

    if device.type == "cpu":
        return tuned.store("Triton's interpreter", str(torch.__version__), TEMPLATES, folder)
    driver = str(torch.version.hip or torch.version.cuda)
    return tuned.store(torch.cuda.get_device_name(device), driver, TEMPLATES, folder)


def chooser(device: Any, known: Device | None = None, folder: Path | None = None) -> Chooser:
    """The templates for a device, with all that was measured on it."""
    kept = open_store(device, folder)
    measured = {key: choice.seconds for key, choice in kept.choices().items() if choice.seconds is not None}
    return Chooser(of_torch(device, known), tuned.choices(kept), measured)


def of_model(
    path: Path, shapes: Mapping[str, tuple[int, ...]], plain: Chooser, storage: str | None = None
) -> list[Operation]:
    """The operations of a model's program, and those of the chains and parts between which it may choose.

    Raises:
        InputError: the file cannot be read.
        RouteError: the engine cannot run it.
    """
    found: list[Operation] = []
    for chained in (False, True):
        graph = engine.read(path, shapes, storage)
        if isinstance(graph, tuple):
            raise RouteError(f"the engine cannot run {graph[0].op} node {graph[0].node!r}", graph[0].fix)
        siblings.run(graph)
        if chained:
            chains.run(graph, lambda chain, apart: plain.cost(chain) is not None)
        program = compile_graph(graph, plain)
        if isinstance(program, tuple):
            raise RouteError(
                f"the engine cannot run {program[0].op} node {program[0].node!r}", program[0].fix
            )
        found += [operation for operation, _ in program.operations if not chained or operation.op == "Chain"]
    graph = engine.read(path, shapes, storage)
    if not isinstance(graph, tuple):
        found += [each for each in chains.operations(graph) if plain.cost(each) is not None]
    return found


def _work(operations: Sequence[Operation], limits: Limits) -> list[tuple[Operation, float]]:
    """Distinct operations that leave a choice, with their predicted time times how often they come, most first."""
    counts = Counter(operation.key for operation in operations)
    plain = Chooser(limits)
    found = []
    for key, operation in {each.key: each for each in operations}.items():
        cost = plain.cost(operation)
        if cost is not None and len(_candidates(operation, limits, 2)) > 1:
            found.append((operation, cost * counts[key]))
    return sorted(found, key=lambda each: -each[1])


def _candidates(operation: Operation, limits: Limits, most: int = 100_000) -> list[Candidate]:
    found: list[Candidate] = []
    for name in kernels.claiming(operation, limits):
        template = kernels.get(name)
        for config in template.configurations(operation, limits):
            found.append(Candidate(config, template.cost(operation, config, limits), name))
            if len(found) >= most:
                return found
    return found


def _write_off(kept: Store, left: Sequence[tuple[Operation, float]]) -> None:
    """What an earlier run began and never ended."""
    keys = {operation.key for operation, _ in left}
    for begun in kept.open_ends():
        if begun.key in keys:
            code = kept.code_hash(begun.template)
            why = "it ended the process"
            kept.append(
                Evaluated(key=begun.key, template=begun.template, config=begun.config, code=code, why=why)
            )


def _tune_all(
    left: Sequence[tuple[Operation, float]],
    device: Any,
    cache: Path,
    budget_s: float,
    say: Say,
    kept: Store,
    limits: Limits,
) -> None:
    target = target_of(device)
    pool = None if target is None else Compilers(target, cache)
    until, weights, run = time.monotonic() + budget_s, sum(weight for _, weight in left), uuid4().hex
    try:
        for number, (operation, weight) in enumerate(left, 1):
            rest = until - time.monotonic()
            if rest < _LEAST_S:
                say(f"tuning: {len(left) - number + 1} operations are left, the time is over")
                break
            share = max(_LEAST_S, min(rest, 2 * rest * weight / max(weights, 1e-30)))
            weights -= weight
            trial = Trial(operation, device, target, cache)
            try:
                job = _Job(operation, trial, pool, kept, limits, run)
                choice = job.run(time.monotonic() + share, budget_s)
            finally:
                trial.close()
            gain = f"{choice.gain:.2f}x of default" if choice is not None else "no time"
            say(f"tuning {number} of {len(left)} {operation.label}: {gain}")
    finally:
        if pool is not None:
            pool.close()


class _Job:
    """The search for one operation's kernels."""

    def __init__(
        self,
        operation: Operation,
        trial: Trial,
        pool: Compilers | None,
        kept: Store,
        limits: Limits,
        run: str,
    ) -> None:
        self._operation, self._trial, self._pool, self._kept, self._run = operation, trial, pool, kept, run
        self._candidates = _candidates(operation, limits)
        self._search = Search(self._candidates, Strategy(patience=_PATIENCE))
        made = Chooser(limits).build(operation)
        self._default = next(
            each
            for each in self._candidates
            if each.group == made.template and each.parameters == made.config
        )
        self._checked = False
        self._evaluations = 0

    def run(self, until: float, budget_s: float) -> Choice | None:
        """Searches until a time; None where there was no time for anything, or nothing works."""
        known = {
            Candidate(line.config, 0.0, line.template).identity: line
            for line in self._kept.evaluated(self._operation.key)
        }
        for each in self._candidates:
            if each.identity in known and each is not self._default:
                self._search.tell(each, known[each.identity].seconds)
        self._measure(self._default, *self._submit(self._default))
        default_s = self._search.best[1] if self._search.best is not None else None
        window = self._pool.workers if self._pool is not None else 1
        pending: deque[tuple[Candidate, Implementation, Future[tuple[str, float]] | None]] = deque()
        while time.monotonic() < until:
            while len(pending) < window and (candidate := self._search.ask()) is not None:
                if candidate is not self._default:
                    pending.append((candidate, *self._submit(candidate)))
            if not pending:
                break
            self._measure(*pending.popleft())
        for _, _, future in pending:
            if future is not None:
                future.cancel()
        return self._choose(default_s, budget_s)

    def _submit(self, candidate: Candidate) -> tuple[Implementation, Future[tuple[str, float]] | None]:
        made = kernels.get(candidate.group).build(self._operation, dict(candidate.parameters))
        if self._pool is None:
            return made, None
        return made, self._pool.submit([launch.kernel for launch in made.launches])

    def _measure(
        self, candidate: Candidate, made: Implementation, future: Future[tuple[str, float]] | None
    ) -> None:
        why, compile_s = ("", 0.0)
        if future is not None and self._pool is not None:
            why, compile_s = self._pool.result(future, _COMPILE_S)
        seconds: float | None = None
        if not why:
            seconds, why = self._timed(candidate, made)
        self._search.tell(candidate, seconds)
        self._evaluations += 1
        self._kept.append(
            Evaluated(
                key=self._operation.key,
                template=candidate.group,
                config=dict(candidate.parameters),
                code=self._kept.code_hash(candidate.group),
                seconds=seconds,
                why=why,
                compile_s=compile_s,
            )
        )

    def _timed(self, candidate: Candidate, made: Implementation) -> tuple[float | None, str]:
        """Seconds, or None and why. What hangs ends this process, and is known by its Begun."""
        from triton.runtime.errors import OutOfResources

        config = dict(candidate.parameters)
        begun = Begun(key=self._operation.key, template=candidate.group, config=config, run=self._run)
        self._kept.append(begun)
        try:
            call = self._trial.ready(made)
            off = self._off(call)
            if not off <= TOLERANCES.get(self._operation.output.dtype, 0.0):
                return None, f"its answer is off by {off:.2g}"
            return self._trial.seconds(call), ""
        except (RuntimeError, OutOfResources) as error:
            return None, " ".join(str(error).split())[:300]

    def _off(self, call: Callable[..., None]) -> float:
        """Relative L2 to the first right answer; that one is held to numpy's, where numpy is quick enough."""
        if not self._checked:
            exact = _exact(self._operation, self._trial)
            if exact is not None:
                got = self._trial.answer(call)[0].astype(np.float64)
                off = float(np.linalg.norm(got - exact)) / (float(np.linalg.norm(exact)) or 1.0)
                if not off <= TOLERANCES.get(self._operation.output.dtype, 0.0):
                    return off
            self._checked = True
        return self._trial.difference(call)

    def _choose(self, default_s: float | None, budget_s: float) -> Choice | None:
        if self._search.best is None:
            return None
        best, seconds = self._search.best
        beats = default_s is None or seconds < _GAIN * default_s
        winner = best if beats else self._default
        choice = Choice(
            key=self._operation.key,
            template=winner.group,
            config=dict(winner.parameters),
            seconds=seconds if beats else default_s,
            default_s=default_s,
            evaluations=self._evaluations,
            source="tuned" if beats else "predicted",
            budget_s=budget_s,
            code=tuned.code_hashes(TEMPLATES, kernels.claiming(self._operation)),
        )
        self._kept.append(choice)
        return choice


def _exact(operation: Operation, trial: Trial) -> np.ndarray | None:
    """The output in float64 by numpy; None where that would take long, or there is no reference."""
    steps = operation.epilogue.steps if operation.epilogue is not None else ()
    if operation.op not in _EXACT or not all(step.function in reference.FUNCTIONS for step in steps):
        return None
    size = 2.0 * operation.output.size
    if operation.op == "MatMul":
        size *= operation.input(0).shape[-1]
    elif operation.op == "Conv":
        size *= float(np.prod(operation.input(1).shape[1:]))
    elif operation.op == "Attention":
        size *= operation.input(1).shape[-2]
    return None if size > _MOST else np.asarray(reference.compute(operation, trial.logical()))
