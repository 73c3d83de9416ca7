"""Work that may hang or crash, in a child process with a deadline.

The child runs one function, named as ``package.module:function``, on one record, and answers with one record. What
it and the libraries below it print goes to a log, so that only answers travel on its standard output. It is the
leader of its own process group, which is ended as a whole; it ends itself when its parent is gone.
"""

from __future__ import annotations

import errno
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Literal, TypeVar

import msgspec

from wavefit.errors import InputError
from wavefit.schema import Failure, Struct, decode

Say = Callable[[str], None]
T = TypeVar("T", bound=Struct)

_TAIL_LINES = 3
_EXIT_S = 5.0
_SIGKILL = 9
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
"""Errors of a full disk, or of a user's full share of it."""
FREE_SPACE = "free some room there, or write elsewhere with --output; the same command goes on from there"
_NO_SPACE_WORDS = os.strerror(errno.ENOSPC)  # as libraries of C and C++ tell it
_FROM_OUTSIDE = (signal.SIGTERM, _SIGKILL)


class Job(Struct, frozen=True, kw_only=True):
    """What the child is told."""

    function: str  # "package.module:function", called as function(payload, say)
    payload: Any
    deadline_s: float


class Event(Struct, frozen=True, kw_only=True):
    """What the child says, one a line."""

    stage: str | None = None
    say: str | None = None
    result: Any = None
    input_error: tuple[str, str] | None = None  # what, fix
    failure: Failure | None = None


def run(
    function: str, payload: Struct, answer: type[T], deadline_s: float, workdir: Path, say: Say
) -> T | Failure:
    """Runs ``function(payload, say)`` in a child process.

    Args:
        function: ``package.module:function``; it returns a record of kind ``answer``.
        deadline_s: the child and all that it started are ended after that many seconds.
        workdir: the child's folder for temporary files; its log is written there as ``log.txt``.
        say: progress for people, called from this thread.

    Returns:
        The function's record, or why there is none: a crash, a timeout, a refusal, no memory.

    Raises:
        InputError: the function raised it, or the disk is full.
    """
    workdir.mkdir(parents=True, exist_ok=True)
    log = workdir / "log.txt"
    child = _Child(Job(function=function, payload=payload, deadline_s=deadline_s), log)
    try:
        event = child.wait_for_end(deadline_s, say)
    finally:
        child.end()
    if event is None:
        return child.why_it_ended(deadline_s)
    if event.input_error is not None:
        raise InputError(*event.input_error)
    if event.failure is not None:
        return event.failure
    return msgspec.convert(event.result, type=answer)


class _Child:
    """The running child: its process, its events, the stage it last named."""

    def __init__(self, job: Job, log: Path) -> None:
        self.stage = "start"
        self.timed_out = False
        self._log = log
        self._oom_kills = _oom_kills()
        environment = {**os.environ, "TMPDIR": str(log.parent), "PYTHONUNBUFFERED": "1"}
        with log.open("wb") as sink:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "wavefit.child.main"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=sink,
                env=environment,
                **_own_group(),
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._events: queue.Queue[Event | None] = queue.Queue()
        pipes = (self._process.stdin, self._process.stdout)
        threading.Thread(target=self._converse, args=(job, *pipes), daemon=True).start()

    def _converse(self, job: Job, stdin: IO[bytes], stdout: IO[bytes]) -> None:
        """Tells the job and reads the events, in a thread of its own: a pipe blocks where nobody reads."""
        try:
            stdin.write(msgspec.json.encode(job) + b"\n")
            stdin.flush()  # and stays open: its end is the parent's end
        except (BrokenPipeError, ValueError):
            pass  # the child ended before it had read the job; what follows says how
        for line in stdout:
            try:
                self._events.put(decode(line, Event, "a child's answer"))
            except InputError:
                continue  # torn by a kill, or printed by a start-up hook of this Python: no answer
        self._events.put(None)

    def wait_for_end(self, deadline_s: float, say: Say) -> Event | None:
        """The child's last event; None where it ended, or had to be ended, without one."""
        end = time.monotonic() + deadline_s
        while True:
            try:
                event = self._events.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                self.timed_out = True
                return None
            if event is None:
                self._let_exit()
                return None
            if event.stage is not None:
                self.stage = event.stage
            if event.say is not None:
                say(event.say)
            if event.result is not None or event.failure is not None or event.input_error is not None:
                return event

    def _let_exit(self) -> None:
        """Gives a child that has closed its output the time to tell its exit code."""
        try:
            self._process.wait(_EXIT_S)
        except subprocess.TimeoutExpired:
            return

    def end(self) -> None:
        """Ends the child and everything in its group."""
        _kill_group(self._process)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None and not pipe.closed:
                try:
                    pipe.close()
                except BrokenPipeError:
                    continue

    def why_it_ended(self, deadline_s: float) -> Failure:
        if self.timed_out:
            return Failure(
                kind="timeout",
                stage=self.stage,
                reason=f"no answer within the deadline of {deadline_s:g} s",
                fix="raise --deadline where the runtime may need longer to compile",
                deadline_s=deadline_s,
            )
        if self._process.returncode == -_SIGKILL and _oom_kills() > self._oom_kills:
            return Failure(
                kind="out of memory",
                stage=self.stage,
                reason="the kernel ended the process because the machine's memory was used up",
                fix="use a smaller --batch",
            )
        if _NO_SPACE_WORDS in self._last_words():
            raise InputError("there is no space left on the disk", FREE_SPACE)
        kind: Literal["crash", "interrupted"] = "crash"
        if -self._process.returncode in _FROM_OUTSIDE:
            kind = "interrupted"
        return Failure(kind=kind, stage=self.stage, reason=f"the process {self._how()}{self._last_words()}")

    def _how(self) -> str:
        code = self._process.returncode
        if code >= 0:
            return f"ended with exit code {code} and no answer"
        return f"was ended by {signal.Signals(-code).name}"

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()[-_TAIL_LINES:]
        return "; its last words: " + " / ".join(line.strip() for line in lines) if lines else ""


def _own_group() -> dict[str, Any]:
    if sys.platform == "win32":
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    return {"start_new_session": True}


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    if sys.platform == "win32":
        import psutil

        try:
            family = psutil.Process(process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return
        for member in family:
            member.kill()
        process.kill()
        return
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _oom_kills() -> int:
    """How often the kernel's out-of-memory killer struck, by /proc/vmstat; 0 where there is no such file."""
    try:
        text = Path("/proc/vmstat").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith("oom_kill ")), 0)
