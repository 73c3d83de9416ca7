"""The doctor: why the GPU cannot be used yet, and which command mends it.

A check is a file ``checks/NAME.py`` with ``check(machine) -> list[Finding]``, found by its name. It reads through the
:class:`~wavefit.doctor.machine.Machine` alone, so that it runs on a recorded tree as on this machine, and it raises
nothing for what is missing: unknown is a finding too.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable

from wavefit.doctor import checks
from wavefit.doctor.machine import Machine
from wavefit.errors import InputError
from wavefit.schema import Finding


def names() -> list[str]:
    """The checks there are."""
    return sorted(
        entry.name for entry in pkgutil.iter_modules(checks.__path__) if not entry.name.startswith("_")
    )


def examine(machine: Machine, only: Iterable[str] = ()) -> list[Finding]:
    """Runs the checks, all or those named, in the order of their names.

    Raises:
        InputError: there is no check of that name.
    """
    chosen = tuple(only) or names()
    for name in chosen:
        if name not in names():
            raise InputError(f"there is no check {name!r}", f"the checks are {', '.join(names())}")
    return [
        finding
        for name in chosen
        for finding in importlib.import_module(f"{checks.__name__}.{name}").check(machine)
    ]
