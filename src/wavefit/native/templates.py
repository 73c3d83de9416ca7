"""Kernel templates, found by name: one file turns a kind of operation into kernels of one language.

A template is a module ``kernels/NAME.py`` (no leading underscore) with what :class:`Template` lists. Adding one edits
nothing else. Templates are pure: they make source text from shapes, and touch no device.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from functools import lru_cache
from typing import Protocol, cast

import numpy as np

from wavefit.native.operation import Config, Implementation, Limits, Operation


class Template(Protocol):
    """What a template's module offers."""

    OPS: tuple[str, ...]
    """``Operation.op`` that it may compute."""

    def claims(self, operation: Operation) -> bool:
        """Whether it computes this operation, with these views as they lie in memory."""
        ...

    def offered(self, operation: Operation, limits: Limits) -> bool:
        """Whether the device is made for the kernels of an operation that the template claims. Only where they want
        more than every device has.
        """
        ...

    def configurations(self, operation: Operation, limits: Limits) -> Iterator[Config]:
        """Configurations worth trying on such a device, the one to take without tuning first. Never empty.

        Pruned by what the device is: none takes more local memory, work-items or registers than it has.
        """
        ...

    def build(self, operation: Operation, config: Config) -> Implementation:
        """The kernels of one configuration."""
        ...

    def pack(self, how: str, operation: Operation, array: np.ndarray) -> np.ndarray:
        """A constant input in the order that ``how`` names. Only where the template packs."""
        ...

    def cost(self, operation: Operation, config: Config, limits: Limits) -> float:
        """Predicted seconds, by which templates and configurations are ranked before any is timed."""
        ...


class Templates:
    """The templates of one language.

    Args:
        package: the dotted name of the folder that holds them.
    """

    def __init__(self, package: str) -> None:
        self.package = package

    def names(self) -> list[str]:
        return list(_names(self.package))

    def get(self, name: str) -> Template:
        return cast(Template, importlib.import_module(f"{self.package}.{name}"))

    def claiming(self, operation: Operation, limits: Limits | None = None) -> list[str]:
        """The names of the templates that compute an operation; empty where none does.

        Args:
            operation: what is to be computed.
            limits: of the device; None: of one that has all that any template needs.
        """
        candidates = (name for name in self.names() if operation.op in self.get(name).OPS)
        found = [name for name in candidates if self.get(name).claims(operation)]
        return found if limits is None else [n for n in found if _offered(self.get(n), operation, limits)]


@lru_cache
def _names(package: str) -> tuple[str, ...]:
    path = importlib.import_module(package).__path__
    return tuple(sorted(entry.name for entry in pkgutil.iter_modules(path) if not entry.name.startswith("_")))


def _offered(template: Template, operation: Operation, limits: Limits) -> bool:
    return not hasattr(template, "offered") or template.offered(operation, limits)
