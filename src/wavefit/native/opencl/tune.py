"""Finds the fastest kernels for a device by trying them, within a budget of seconds.

All of it happens in a child process: a kernel that hangs ends the child, is written off, and the search goes on in
another. What was measured is on the disk at once, so that nothing is lost and nothing is measured twice.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from msgspec.structs import replace

from wavefit import child
from wavefit.native.limits import of_opencl
from wavefit.native.opencl import compilers, kernels
from wavefit.native.opencl.chooser import Chooser
from wavefit.native.opencl.tuned import Begun, Choice, Evaluated, Store, code_hash, known, store
from wavefit.native.opencl.tuning import Finished, Task, Work
from wavefit.native.operation import Limits, Operation
from wavefit.schema import Failure

__all__ = ["Choice", "known", "tune"]

_FUNCTION = "wavefit.native.opencl.tuning:tune_all"
_LEAST_S = 1.0
_RUN_S = 10.0  # that one candidate may take, check and timing together
_GRACE_S = 20.0  # that a child has to come to an end after its time

Say = Callable[[str], None]


def tune(
    operations: Sequence[Operation],
    device: Any,
    budget_s: float,
    say: Say,
    folder: Path | None = None,
    limits: Limits | None = None,
) -> dict[str, Choice]:
    """Tunes the operations of a program, the most expensive first.

    An operation that has been tuned within as large a budget is not tuned again; one whose tuning was interrupted
    goes on where it was.

    Args:
        operations: in any order; one that comes several times counts as often.
        device: a ``pyopencl.Device``.
        budget_s: for all together.
        say: progress.
        folder: of the cache; None for the user's.
        limits: of the device; None: what its driver tells.

    Returns:
        By ``Operation.key``: all that is known of these operations, from earlier tuning too.
    """
    until = time.time() + budget_s
    kept = store(device, folder)
    limits = limits or of_opencl(device, None)
    work = _work(operations, limits)
    had = _tuned(kept, budget_s)
    left = [each for each in work if each.operation.key not in had]
    if left:
        say(f"tuning {len(left)} of {len(work)} operations, {budget_s:g} s at most")
    task = Task(
        place=compilers.where(device),
        limits=limits,
        work=(),
        file=str(kept.path),
        run=uuid4().hex,
        until=until,
        budget_s=budget_s,
        workers=compilers.workers(),
        run_s=_RUN_S,
    )
    while left and until - time.time() > _LEAST_S:
        todo = replace(task, work=tuple(left), done=len(work) - len(left))
        answer = _run(todo, say)
        had = _tuned(kept, budget_s)
        still = [each for each in left if each.operation.key not in had]
        if isinstance(answer, Finished) or not _write_off(kept, task.run, answer, say):
            break
        left = still
    wanted = {each.operation.key for each in work}
    return {key: choice for key, choice in kept.choices().items() if key in wanted}


def _run(task: Task, say: Say) -> Finished | Failure:
    with tempfile.TemporaryDirectory(prefix="wavefit-", ignore_cleanup_errors=True) as folder:
        deadline_s = max(_LEAST_S, task.until - time.time()) + _GRACE_S
        return child.run(_FUNCTION, task, Finished, deadline_s, Path(folder), _teller(say))


def _teller(say: Say) -> Say:
    """Passes on what says something of the whole; the child's stages are what failures are blamed on."""

    def tell(text: str) -> None:
        if text.startswith("tuning "):
            say(text)

    return tell


def _tuned(kept: Store, budget_s: float) -> set[str]:
    return {key for key, choice in kept.choices().items() if choice.budget_s >= budget_s}


def _work(operations: Sequence[Operation], limits: Limits) -> list[Work]:
    """Distinct operations that leave a choice, by predicted time times how often they come."""
    counts = Counter(operation.key for operation in operations)
    distinct = {operation.key: operation for operation in operations}
    chooser = Chooser(limits)
    work = []
    for key, operation in distinct.items():
        cost = chooser.cost(operation)
        if cost is not None and _leaves_a_choice(operation, limits):
            work.append(Work(operation=operation, weight=cost * counts[key], label=operation.label))
    return sorted(work, key=lambda each: -each.weight)


def _leaves_a_choice(operation: Operation, limits: Limits) -> bool:
    if len(operation.outputs) != 1:
        return False
    count = 0
    for name in kernels.claiming(operation, limits):
        for _ in kernels.get(name).configurations(operation, limits):
            count += 1
            if count > 1:
                return True
    return False


def _write_off(kept: Store, run: str, failure: Failure, say: Say) -> bool:
    """Writes down what ended the child; False where that was no candidate."""
    if failure.kind == "interrupted":
        return False
    open_ends = kept.open_ends(run)
    for begun in open_ends:
        kept.append(_bad(begun, failure))
        say(f"tuning: {begun.template} {begun.config} ended the process and is left out")
    if not open_ends:
        say(f"tuning ended early: {failure.stage}: {failure.reason}")
    return bool(open_ends)


def _bad(begun: Begun, failure: Failure) -> Evaluated:
    return Evaluated(
        key=begun.key,
        template=begun.template,
        config=begun.config,
        code=code_hash(begun.template),
        why=f"it ended the process ({failure.kind})",
    )
