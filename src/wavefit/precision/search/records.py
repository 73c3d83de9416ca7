"""What a search is asked and what it answers."""

from __future__ import annotations

from wavefit.schema import Device, Model, Precision, Request, Struct, Unsupported, Variant


class Wanted(Struct, frozen=True, kw_only=True):
    """A precision that a route would run as a file on a device."""

    precision: Precision
    route: str
    device: Device


class Making(Struct, frozen=True, kw_only=True):
    """What is to be made.

    Args:
        key: a hash of all that the variants depend on.
        reference: the folder that bench.prepare wrote.
        folder: the variants' files are written there.
    """

    key: str
    model: Model
    request: Request
    reference: str
    folder: str
    wanted: tuple[Wanted, ...]


class Made(Struct, frozen=True, kw_only=True):
    variants: tuple[Variant, ...] = ()
    refusals: tuple[Unsupported, ...] = ()
