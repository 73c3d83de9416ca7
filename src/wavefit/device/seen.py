"""What a child process is asked about a runtime, and what it answers."""

from __future__ import annotations

from wavefit.schema import Device, Struct


class Question(Struct, frozen=True, kw_only=True):
    """Which devices a runtime sees."""

    library: str | None = None  # path of the runtime's library, where it is not the one found by itself


class Seen(Struct, frozen=True, kw_only=True):
    """What one runtime sees. Neither version, devices nor note: it is not installed."""

    runtime: str
    version: str | None = None
    devices: tuple[Device, ...] = ()  # each with its one Runtime; addresses may lack the domain: "03:00.0"
    note: str | None = None  # why it sees nothing, or did not answer
