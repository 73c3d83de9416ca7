"""Progress on the terminal: a line that moves on a screen, plain lines in a log."""

from __future__ import annotations

import sys
import threading
from time import monotonic
from types import TracebackType

from wavefit.schema import Record

_LOG_EVERY_S = 10.0


class TerminalProgress:
    """Says on standard error what is happening and for how long; use as a context manager."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(stderr=True, highlight=False)
        self._status = self._console.status("starting")
        self._text = "starting"
        self._since = monotonic()
        self._stop = threading.Event()
        self._ticker = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> TerminalProgress:
        if self._console.is_terminal:
            self._status.start()
        self._ticker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._ticker.join()
        if self._console.is_terminal:
            self._status.stop()

    def say(self, text: str) -> None:
        self._text, self._since = text, monotonic()

    def done(self, record: Record, again: bool) -> None:
        from rich.markup import escape

        from wavefit.report.terminal import one_line

        self._console.print(
            escape(one_line(record)) + (" (measured before)" if again else ""), soft_wrap=True
        )

    def _tick(self) -> None:
        """Refreshes the elapsed time on a screen; in a log, adds a line for whatever takes longer than ten seconds."""
        from rich.markup import escape

        last = monotonic()
        while not self._stop.wait(0.5):
            elapsed = monotonic() - self._since
            line = f"{self._text} ({elapsed:.0f} s)"
            if self._console.is_terminal:
                self._status.update(escape(line))
            elif monotonic() - last >= _LOG_EVERY_S:
                last = monotonic()
                sys.stderr.write(line + "\n")
