"""Ctrl-C, a closed terminal and ``kill`` end a long verb in order: its children and temporary files go with it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_NAMES = ("SIGINT", "SIGTERM", "SIGHUP")  # Windows has no SIGHUP


class Stopped(BaseException):
    """A signal asked the process to end; no KeyboardInterrupt, which typer would swallow without a word.

    Args:
        number: of the signal; shells expect the exit code 128 + number.
        said: what becomes of the work, for people.
    """

    def __init__(self, number: int, said: str) -> None:
        self.number = number
        self.said = said
        super().__init__(said)


@contextmanager
def stoppable(said: str) -> Iterator[None]:
    """Raises :class:`Stopped` on the first signal and ignores further ones while the work is cleared away.

    A signal that is ignored from outside, as ``nohup`` does, stays ignored.
    """
    numbers = [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]

    def stop(number: int, frame: FrameType | None) -> None:
        for each in kept:
            signal.signal(each, signal.SIG_IGN)
        raise Stopped(number, said)

    kept = {number: signal.getsignal(number) for number in numbers}
    kept = {number: handler for number, handler in kept.items() if handler is not signal.SIG_IGN}
    if threading.current_thread() is not threading.main_thread():
        kept = {}  # Python lets the main thread alone set handlers
    for number in kept:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
