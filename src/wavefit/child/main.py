"""The child's side of :mod:`wavefit.child`: reads one job, runs it, answers."""

from __future__ import annotations

import faulthandler
import importlib
import os
import re
import signal
import sys
import threading
import time
import traceback
from types import TracebackType
from typing import IO, get_type_hints

import msgspec

from wavefit.child import FREE_SPACE, NO_SPACE, Event, Job
from wavefit.errors import InputError, RouteError
from wavefit.schema import Failure, decode, encode

_GRACE_S = 15.0
_NO_MEMORY = re.compile(r"out of memory|failed to allocate|bad[_ ]alloc|MemoryError", re.IGNORECASE)


class Reporter:
    """Sends events. ``stage`` names what a failure is blamed on, calling it tells people what is happening."""

    def __init__(self, events: IO[bytes], deadline_s: float) -> None:
        self._events = events
        self._end = time.monotonic() + deadline_s
        self._lock = threading.Lock()
        self._stage = "start"

    def __call__(self, text: str) -> None:
        self.send(Event(say=text))

    def stage(self, name: str) -> None:
        self._stage = name
        self.send(Event(stage=name, say=name))

    def left_s(self) -> float:
        """Seconds until the parent ends this process."""
        return self._end - time.monotonic()

    def send(self, event: Event) -> None:
        with self._lock:
            self._events.write(encode(event) + b"\n")
            self._events.flush()

    def fail(self, kind: str, reason: str, fix: str = "") -> None:
        if kind == "out of memory" or _NO_MEMORY.search(reason):
            kind, fix = "out of memory", fix or "use a smaller --batch"
        self.send(
            Event(
                failure=msgspec.convert(
                    {"kind": kind, "stage": self._stage, "reason": reason, "fix": fix}, Failure
                )
            )
        )


def main() -> None:
    sys.excepthook = _end_at_once
    events = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever else prints to standard output goes to the log
    job = decode(sys.stdin.buffer.readline(), Job, "the job")
    # A runtime that hangs with the interpreter's lock held still ends: faulthandler's watchdog needs no lock.
    faulthandler.dump_traceback_later(job.deadline_s + _GRACE_S, exit=True)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _work(job, Reporter(events, job.deadline_s))
    os._exit(0)  # a runtime's own clean-up may hang; the answer is already on its way


def _work(job: Job, reporter: Reporter) -> None:
    module, _, name = job.function.partition(":")
    function = getattr(importlib.import_module(module), name)
    kind = get_type_hints(function)["payload"]
    try:
        result = function(msgspec.convert(job.payload, type=kind), reporter)
    except InputError as error:
        reporter.send(Event(input_error=(error.what, error.fix)))
    except RouteError as error:
        reporter.fail("refused", error.reason, error.fix)
    except MemoryError as error:
        reporter.fail("out of memory", str(error) or "the process ran out of memory")
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
        where = f" for {error.filename}" if error.filename else ""
        reporter.send(Event(input_error=(f"there is no space left on the disk{where}", FREE_SPACE)))
    else:
        reporter.send(Event(result=result))


def _end_at_once(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Tells a bug and ends without a runtime's clean-up, which may hang and hide it."""
    traceback.print_exception(kind, error, trace)
    sys.stderr.flush()
    os._exit(1)


def _end_with_parent() -> None:
    """The parent holds the other end of standard input: its end is the parent's end."""
    while os.read(0, 1):  # not sys.stdin: its lock, held here, would abort an interpreter that ends
        continue
    if sys.platform == "win32":
        os._exit(1)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
