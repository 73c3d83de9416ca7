"""Values on the command line. Typer reads ``nan``, ``inf`` and any sign as numbers: each is held in its bounds here."""

from __future__ import annotations

import math
from typing import Any

from wavefit.errors import InputError

_SHOWN = 60  # characters of a bad value that are repeated
LONGEST_S = 30 * 24 * 3600.0  # of a deadline or duration: beyond it the system's own timers overflow
LARGEST_SIZE = 2**31 - 1  # of a batch or dimension: ONNX Runtime's kernels count in 32 bits in many places


def above_zero(option: str, value: float | None, most: float = math.inf) -> None:
    """Refuses what is not a finite number above 0 and at most ``most``; None, an option not given, is fine.

    Raises:
        InputError: it is another number.
    """
    if value is None:
        return
    if not (math.isfinite(value) and value > 0):
        raise InputError(f"{option} must be a number above 0, not {value:g}")
    if value > most:
        raise InputError(f"{option} must be at most {most:.0f}, not {value:g}")


def zero_or_above(option: str, value: float) -> None:
    """Refuses what is not a finite number of 0 or more.

    Raises:
        InputError: it is another number.
    """
    if not (math.isfinite(value) and value >= 0):
        raise InputError(f"{option} must be a number of 0 or more, not {value:g}")


def _size(text: str) -> int | None:
    """A whole number from 1 to :data:`LARGEST_SIZE`; None where the text is another."""
    if not (text.isascii() and text.isdecimal()) or len(text) > len(str(LARGEST_SIZE)):
        return None
    number = int(text)
    return number if 1 <= number <= LARGEST_SIZE else None


def parse_batches(text: str) -> tuple[int, ...]:
    """``1,2,4`` as ascending sizes.

    Raises:
        InputError: a part is no positive number.
    """
    batches = {_size(part) for part in _parts(text)}
    if not batches or None in batches:
        raise InputError(
            f"--batch {_short(text)} is no list of sizes from 1 to {LARGEST_SIZE}", "write it as 1,2,4"
        )
    return tuple(sorted(batch for batch in batches if batch is not None))


def parse_sizes(texts: list[str]) -> dict[str, int]:
    """``NAME=N`` options as a dict.

    Raises:
        InputError: one has no name, or no positive number.
    """
    sizes: dict[str, int] = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        value = _size(number)
        if not name or value is None:
            raise InputError(
                f"--size {_short(text)} is not NAME=N with N from 1 to {LARGEST_SIZE}", "write it as seq=128"
            )
        if sizes.get(name, value) != value:
            raise InputError(f"--size {name} is given twice, as {sizes[name]} and {value}", "give it once")
        sizes[name] = value
    return sizes


def choice(option: str, value: str, kind: Any) -> Any:
    known = kind.__args__
    for name in known:
        if name.lower() == value.lower():
            return name
    raise InputError(f"{option} {value!r} is not known", f"use {', '.join(known)}")


def choices(option: str, text: str, kind: Any) -> Any:
    """One or more of them, each once, in the order given."""
    chosen = tuple(dict.fromkeys(choice(option, part, kind) for part in _parts(text)))
    if not chosen:
        raise InputError(f"{option} {text!r} names none", f"use {', '.join(kind.__args__)}")
    return chosen


def _short(text: str) -> str:
    """The text quoted, a long one cut."""
    return repr(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!r}..."


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def floats(option: str, text: str) -> tuple[float, ...]:
    try:
        values = tuple(float(part) for part in _parts(text))
    except ValueError as error:
        raise InputError(
            f"{option} {text!r} is no list of numbers", "write it as 0.485,0.456,0.406"
        ) from error
    if not all(math.isfinite(value) for value in values):
        raise InputError(f"{option} {text!r} holds a value that is not finite")
    return values


def all_above_zero(option: str, text: str) -> tuple[float, ...]:
    values = floats(option, text)
    for value in values:
        above_zero(option, value)
    return values
