"""Kernels compiled ahead, several at a time, each in a process that may crash; a deadline for all together."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError, Future, ProcessPoolExecutor
from concurrent.futures import TimeoutError as LateError
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import msgspec

from wavefit.native.operation import Kernel
from wavefit.native.triton.compile import Target
from wavefit.native.triton.kept import identity, is_kept, keep
from wavefit.schema import Struct

Say = Callable[[str], None]
_TELL_S = 2.0  # between two lines of progress


class Compiled(Struct, frozen=True, kw_only=True):
    """What came of compiling some kernels.

    ``seconds`` is wall-clock time of all; ``made`` were compiled, ``found`` lay in the cache.
    """

    made: int
    found: int
    seconds: float
    failed: dict[str, str] = msgspec.field(default_factory=dict)  # why, by :func:`kept.identity`


class Compilers:
    """Processes that compile for one target into one folder.

    Args:
        target: what code is made for.
        cache: the folder; see :mod:`compile`.
        workers: how many; None: one a core.

    Attributes:
        workers: how many.
    """

    def __init__(self, target: Target, cache: Path, workers: int | None = None) -> None:
        self._target, self._cache = target, cache
        self.workers = workers or os.cpu_count() or 1
        self._pool = self._start()
        self._given: dict[Future[tuple[str, float]], tuple[ProcessPoolExecutor, list[Kernel]]] = {}

    def _start(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(self.workers, mp_context=multiprocessing.get_context("spawn"))

    def submit(self, kernels: Sequence[Kernel]) -> Future[tuple[str, float]]:
        """Compiles kernels; the answer is why not, or "", and the seconds that it took."""
        kept = [each for each in kernels if each.language == "triton"]
        try:
            future = self._pool.submit(_compile, kept, self._target, str(self._cache))
        except BrokenProcessPool:
            self._replace()
            future = self._pool.submit(_compile, kept, self._target, str(self._cache))
        self._given[future] = self._pool, kept
        return future

    def result(self, future: Future[tuple[str, float]], patience_s: float) -> tuple[str, float]:
        """What came of it; a compiler that hangs or crashes is written off, and others take its place.

        A crash ends all that is under way, and does not tell which it was: each is tried again alone.
        """
        pool, kernels = self._given.pop(future)
        try:
            return future.result(patience_s)
        except LateError:
            return self._late(patience_s)
        except (BrokenProcessPool, CancelledError):
            if pool is self._pool:
                self._replace()
        try:
            return self._pool.submit(_compile, kernels, self._target, str(self._cache)).result(patience_s)
        except LateError:
            return self._late(patience_s)
        except BrokenProcessPool:
            self._replace()
            return "its compiler crashed", 0.0

    def _late(self, patience_s: float) -> tuple[str, float]:
        self._replace()
        return f"it compiles for more than {patience_s:.0f} s", patience_s

    def _replace(self) -> None:
        self.close()
        self._pool = self._start()

    def close(self) -> None:
        """Ends the processes."""
        held = list((self._pool._processes or {}).values())
        self._pool.shutdown(wait=False, cancel_futures=True)
        for process in held:
            process.kill()


def compile_all(
    kernels: Iterable[Kernel], target: Target, cache: Path, say: Say, deadline_s: float
) -> Compiled:
    """Compiles what the cache lacks.

    Args:
        kernels: equal ones are compiled once.
        target: what code is made for.
        cache: the folder.
        say: progress.
        deadline_s: what is not done by then has failed.
    """
    distinct = list({identity(each): each for each in kernels if each.language == "triton"}.items())
    missing = [(name, each) for name, each in distinct if not is_kept(each, target, cache)]
    started = told = time.monotonic()
    failed: dict[str, str] = {}
    if missing:
        pool = Compilers(target, cache, min(len(missing), os.cpu_count() or 1))
        futures = [(name, pool.submit([each])) for name, each in missing]
        for number, (name, future) in enumerate(futures, 1):
            left = deadline_s - (time.monotonic() - started)
            why = pool.result(future, left)[0] if left > 0 else f"not compiled within {deadline_s:.0f} s"
            if why:
                failed[name] = why
            if time.monotonic() - told > _TELL_S or number == len(futures):
                told = time.monotonic()
                say(f"compiled {number} of {len(futures)} kernels for {target.name}")
        pool.close()
    return Compiled(
        made=len(missing) - len(failed),
        found=len(distinct) - len(missing),
        seconds=time.monotonic() - started,
        failed=failed,
    )


def _compile(kernels: Sequence[Kernel], target: Target, cache: str) -> tuple[str, float]:
    """In a process of its own. What Triton's compiler raises has no one base class; all of it means: not this one."""
    from triton.errors import TritonError

    from wavefit.native.triton.compile import compile_kernel

    stopped = (
        TritonError,
        RuntimeError,
        ValueError,
        TypeError,
        AssertionError,
        KeyError,
        IndexError,
        OSError,
    )
    started = time.monotonic()
    for kernel in kernels:
        try:
            keep(compile_kernel(kernel, target, Path(cache)), kernel, target, Path(cache))
        except stopped as error:
            return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}", time.monotonic() - started
    return "", time.monotonic() - started
