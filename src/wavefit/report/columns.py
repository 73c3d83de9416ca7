"""The columns of a comparison, read from bundles and from records."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from wavefit import choice as choices
from wavefit.bundle.journal import read_records
from wavefit.bundle.read import load_bundle
from wavefit.errors import InputError
from wavefit.schema import Objective, Record, Request, Struct

Per = Literal["hour", "device"]


class Entry(Struct, frozen=True, kw_only=True):
    """One column.

    Attributes:
        record: None where no plan passed.
        price: of an hour or of the device, in any currency that all columns share.
    """

    name: str
    record: Record | None
    price: float | None = None


def read(path: Path, objective: Objective = "latency") -> list[Entry]:
    """The columns that a path gives: a bundle's pick, or the best passed plan of each device in a ``records.jsonl``.

    Raises:
        InputError: no bundle and no file of records, a changed bundle, or a file without a record.
    """
    if path.is_dir():
        bundle, records = load_bundle(path)
        if bundle.choice.pick is None:
            return [Entry(name=bundle.name, record=None)]
        pick = next((record for record in records if record.key == bundle.choice.pick), None)
        if pick is None:
            raise InputError(f"{path}: the pick is not among the bundle's records", "make the bundle again")
        return [Entry(name=bundle.name, record=pick)]
    if not path.is_file():
        raise InputError(f"{path} is not there", "give a bundle's folder or a records.jsonl")
    return _of_records(path, list(read_records(path)), objective)


def collect(
    paths: Sequence[Path], prices: Mapping[str, float], objective: Objective = "latency"
) -> list[Entry]:
    """All columns, their names told apart and their prices put in.

    Raises:
        InputError: see :func:`read`; fewer than two columns; no plan passed in any; a price for no column.
    """
    entries: list[Entry] = []
    for path in paths:
        for entry in read(path, objective):
            entries.append(_renamed(entry, {other.name for other in entries}))
    if len(entries) < 2:
        raise InputError(
            "there is only one column to compare", "give two or more bundles or records.jsonl files"
        )
    if all(entry.record is None for entry in entries):
        raise InputError("no plan passed in any of them", "open their reports for the reasons")
    names = [entry.name for entry in entries]
    for name in prices:
        if name not in names:
            raise InputError(
                f"--price {name}: there is no such column", f"the columns are {', '.join(names)}"
            )
    return [msgspec.structs.replace(entry, price=prices.get(entry.name)) for entry in entries]


def parse_prices(texts: Sequence[str]) -> dict[str, float]:
    """``NAME=VALUE`` options as a dict.

    Raises:
        InputError: one has no name, or a value that is no number above 0.
    """
    prices = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        try:
            price = float(number)
        except ValueError:
            price = math.nan
        if not name or not math.isfinite(price) or price <= 0:
            raise InputError(f"--price {text!r} is not NAME=VALUE", "write it as --price mi250x=2.5")
        prices[name] = price
    return prices


def parse_per(text: str) -> Per:
    """What a price is the price of.

    Raises:
        InputError: neither ``hour`` nor ``device``.
    """
    known: dict[str, Per] = {"hour": "hour", "device": "device"}
    if text in known:
        return known[text]
    raise InputError(f"--price-per {text!r} is not known", "use hour or device")


def parse_objective(text: str) -> Objective:
    """What picks a plan from records.

    Raises:
        InputError: it is not known, or needs a price of its own.
    """
    known: dict[str, Objective] = {
        "latency": "latency", "throughput": "throughput", "energy": "energy", "memory": "memory"
    }  # fmt: skip
    if text in known:
        return known[text]
    raise InputError(f"--objective {text!r} is not known here", "use latency, throughput, energy or memory")


def _of_records(path: Path, records: Sequence[Record], objective: Objective) -> list[Entry]:
    if not records:
        raise InputError(f"{path} holds no record", "give a bundle's folder or a records.jsonl")
    devices: dict[tuple[str, str | None, str | None], list[Record]] = {}
    for record in records:
        key = (record.device.id, record.device.name, record.device.machine)
        devices.setdefault(key, []).append(record)
    # The usual name says nothing; the folder's does.
    stem = path.stem if path.stem != "records" else path.resolve().parent.name.removesuffix(".wavefit")
    entries = []
    for (device, _, _), own in devices.items():
        name = stem if len(devices) == 1 else f"{stem}/{device}"
        entries.append(Entry(name=name, record=_best(own, objective)))
    return entries


def _best(records: Sequence[Record], objective: Objective) -> Record | None:
    choice = choices.choose(records, (), Request(objective=objective))
    return next((record for record in records if record.key == choice.pick), None)


def _renamed(entry: Entry, taken: set[str]) -> Entry:
    name, number = entry.name, 2
    while name in taken:
        name, number = f"{entry.name}#{number}", number + 1
    return msgspec.structs.replace(entry, name=name)
