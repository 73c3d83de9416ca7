"""What an error message means: its cause, the fix for this machine, and how to see that it is mended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from wavefit.doctor.explain_facts import Facts, as_said, gather
from wavefit.doctor.explain_text import Log
from wavefit.doctor.known_errors import KnownError, load
from wavefit.doctor.machine import Machine
from wavefit.errors import InputError
from wavefit.schema import Fix, Struct

COLLECT = "wavefit doctor --collect machine.tar.gz"


class Explanation(Struct, frozen=True, kw_only=True):
    """One message that was recognised."""

    id: str
    area: str
    title: str
    line: str  # the line it was found in
    cause: str
    fixes: tuple[Fix, ...]
    verify: str
    source: str
    machine: bool = False  # the machine's facts changed what is said


class Answer(Struct, frozen=True, kw_only=True):
    """What a text was found to say: causes before what follows from them."""

    known: tuple[Explanation, ...]
    collect: str = COLLECT  # what to send along where nothing was recognised


def explain(text: str, machine: Machine, errors: Sequence[KnownError] = ()) -> Answer:
    """Names the known errors in a text, each once, the first cause first.

    Args:
        errors: those that are looked for; all that are known by default.

    Raises:
        InputError: there is nothing in the text.
    """
    log = Log(text)
    if not log:
        raise InputError("there is no error text", 'give it as wavefit explain "TEXT", or pipe a log into it')
    found = sorted(_find(log, errors or load()), key=lambda hit: (hit[0].stage, hit[1]))
    facts = gather(machine) if any(error.variants for error, _ in found) else None
    return Answer(known=tuple(_explanation(error, log.line(place), facts) for error, place in found))


def _find(log: Log, errors: Sequence[KnownError]) -> Iterator[tuple[KnownError, int]]:
    """The known errors that are in a log, each with the place where it is first said."""
    for error in errors:
        place = log.first(error.compiled())
        if place is not None:
            yield error, place


def _explanation(error: KnownError, line: str, here: Facts | None) -> Explanation:
    facts = as_said(here, line) if here is not None else None
    variants = () if facts is None else error.variants
    chosen = next((variant for variant in variants if facts is not None and facts.hold(variant.when)), None)
    words = facts.words() if facts is not None else {}
    fixes = (chosen.fix if chosen else ()) or error.fix
    return Explanation(
        id=error.id,
        area=error.area,
        title=error.title,
        line=line,
        cause=_filled((chosen.cause if chosen else "") or error.cause, words),
        fixes=tuple(
            msgspec.structs.replace(fix, command=_filled(fix.command, words), why=_filled(fix.why, words))
            for fix in fixes
        ),
        verify=_filled(error.verify, words),
        source=error.source,
        machine=chosen is not None and facts is here,
    )


def _filled(text: str, words: dict[str, str]) -> str:
    """A text with what is known in place of ``<name>``."""
    for name, value in words.items():
        text = text.replace(f"<{name}>", value)
    return text
