"""Child processes that share one budget of time."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import TypeVar

from msgspec.structs import replace

from wavefit import child
from wavefit.errors import RouteError
from wavefit.schema import Failure, Struct

T = TypeVar("T", bound=Struct)

_LEAST_S = 10.0  # that reading the model and running the reference are given, however small the budget


class Work:
    """Runs functions in child processes with one folder for their temporary files, emptied around each.

    Args:
        folder: for temporary files.
        deadline_s: of one function.
        budget_s: of all together; None: no bound.
        say: told what the child says, with what it is about before it.
    """

    def __init__(
        self, folder: Path, deadline_s: float, budget_s: float | None, say: Callable[[str], None]
    ) -> None:
        self._folder = folder
        self._deadline_s = deadline_s
        self._end = None if budget_s is None else monotonic() + budget_s
        self._say = say

    def left_s(self) -> float | None:
        """What is left of the budget; None where there is none."""
        return None if self._end is None else self._end - monotonic()

    def run(self, function: str, payload: Struct, answer: type[T], label: str) -> T | Failure:
        """See :func:`wavefit.child.run`; what the child says is told with ``label`` before it."""
        shutil.rmtree(self._folder, ignore_errors=True)
        left_s = self.left_s()
        short = left_s is not None and left_s < self._deadline_s
        deadline_s = max(left_s, _LEAST_S) if short and left_s is not None else self._deadline_s
        try:
            result = child.run(function, payload, answer, deadline_s, self._folder, self._teller(label))
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
        if short and isinstance(result, Failure) and result.kind == "timeout":
            reason = f"no answer within {deadline_s:.0f} s, which was all that the budget had left"
            return replace(result, reason=reason, fix="raise --budget; the same command goes on from here")
        return result

    def _teller(self, label: str) -> Callable[[str], None]:
        return lambda text: self._say(f"{label}: {text}")

    def must(self, function: str, payload: Struct, answer: type[T], label: str) -> T:
        """As :meth:`run`, for work that nothing can go on without.

        Raises:
            RouteError: it failed.
        """
        result = self.run(function, payload, answer, label)
        if isinstance(result, Failure):
            raise RouteError(f"{label}: {result.kind}: {result.reason}", result.fix)
        return result
