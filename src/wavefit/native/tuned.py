"""What tuning has found out about a device, in the user's cache: every measurement, and the choices.

A file a device and driver, of JSON lines that several processes may append to. A line holds the hashes of the source
files that made its kernels: where those have changed, it tells nothing any more.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import msgspec

from wavefit.device.user_cache import user_cache
from wavefit.kernels.tuner.cache import Lines
from wavefit.native.operation import Config
from wavefit.native.templates import Templates
from wavefit.schema import Struct, fingerprint

_PACKAGE = "wavefit.native"


class Choice(Struct, frozen=True, kw_only=True, tag="choice"):
    """What computes an operation on a device."""

    key: str  # Operation.key
    template: str
    config: Config
    seconds: float | None  # device time; None: no configuration worked
    default_s: float | None = None  # of what is taken without tuning, measured beside it
    evaluations: int = 0  # candidates that were compiled and measured
    source: Literal["tuned", "predicted"]  # predicted: what is taken without tuning was not beaten
    budget_s: float = 0.0  # of the tuning that it comes from
    code: dict[str, str] = msgspec.field(
        default_factory=dict
    )  # hashes of the templates that might have computed it

    @property
    def gain(self) -> float:
        """How many times faster than without tuning."""
        return self.default_s / self.seconds if self.default_s and self.seconds else 1.0


class Begun(Struct, frozen=True, kw_only=True, tag="begun"):
    """A candidate that is about to run: where nothing follows, it ended the process."""

    key: str
    template: str
    config: Config
    run: str  # of which tuning: others may be under way


class Evaluated(Struct, frozen=True, kw_only=True, tag="evaluated"):
    """One measurement."""

    key: str
    template: str
    config: Config
    code: str  # hash of the template
    seconds: float | None = None  # None: it does not count, and why says why not
    why: str = ""
    compile_s: float | None = None  # from asking for it to having it


Line = Choice | Begun | Evaluated


class Store:
    """The lines about one device.

    Args:
        path: the file.
        templates: whose lines they are.
    """

    def __init__(self, path: Path, templates: Templates) -> None:
        self.path, self._templates = path, templates
        self._lines: Lines[Any] = Lines(path, Line)

    def append(self, *lines: Line) -> None:
        self._lines.append(*lines)

    def choices(self) -> dict[str, Choice]:
        """By operation, the last of each; those whose templates have changed are left out."""
        found = {line.key: line for line in self._lines.read() if isinstance(line, Choice)}
        return {key: choice for key, choice in found.items() if self._current(choice)}

    def _current(self, choice: Choice) -> bool:
        return all(self.code_hash(name) == code for name, code in choice.code.items())

    def code_hash(self, template: str) -> str:
        """Of a template's source and all of the engine's that it imports; empty where there is no such template."""
        return code_hash(self._templates, template)

    def evaluated(self, key: str) -> list[Evaluated]:
        """What was measured of an operation with the templates as they are."""
        return [
            line
            for line in self._lines.read()
            if isinstance(line, Evaluated) and line.key == key and line.code == self.code_hash(line.template)
        ]

    def open_ends(self, run: str | None = None) -> list[Begun]:
        """Candidates that a tuning began, or any did, and that never came to an end."""
        open_: dict[str, Begun] = {}
        for line in self._lines.read():
            if isinstance(line, Begun) and run in (None, line.run):
                open_[_name(line)] = line
            elif isinstance(line, Evaluated):
                open_.pop(_name(line), None)
        return list(open_.values())


def _name(line: Begun | Evaluated) -> str:
    return fingerprint(line.key, line.template, line.config)


def store(name: str, driver: str, templates: Templates, folder: Path | None = None) -> Store:
    """Of a device.

    Args:
        name, driver: of the device: they name the file.
        templates: whose kernels were tuned.
        folder: None for the user's cache.
    """
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower())[:40].strip("-")
    file = f"{plain}-{fingerprint(name, driver)[:12]}.jsonl"
    return Store((folder or cache_folder(templates)) / file, templates)


def cache_folder(templates: Templates) -> Path:
    """Of the user, for one language."""
    language = templates.package.split(".")[-2]
    return user_cache() / ("tuner" if language == "opencl" else f"tuner-{language}")


def choices(kept: Store) -> dict[str, tuple[str, Config]]:
    """Template and configuration by ``Operation.key``, of the operations where tuning beat the prediction."""
    return {
        each.key: (each.template, each.config) for each in kept.choices().values() if each.source == "tuned"
    }


def state(templates: Templates, folder: Path | None = None) -> str | None:
    """How many operations are tuned on this machine, with a short hash of how; None where nothing is."""
    files = sorted((folder or cache_folder(templates)).glob("*.jsonl"))
    found = [
        (path.name, key, choice.template, choice.config)
        for path in files
        for key, choice in sorted(Store(path, templates).choices().items())
        if choice.source == "tuned"
    ]
    return f"{len(found)} ({fingerprint(found)[:8]})" if found else None


def code_hashes(templates: Templates, names: Iterable[str]) -> dict[str, str]:
    return {name: code_hash(templates, name) for name in names}


@cache
def code_hash(templates: Templates, template: str) -> str:
    """Of a template's source and all of the engine's that it imports; empty where there is no such template."""
    if template not in templates.names():
        return ""
    digest = hashlib.sha256()
    for module in sorted(_imported(f"{templates.package}.{template}", set())):
        digest.update(_text(module).encode())
    return digest.hexdigest()[:16]


def _imported(module: str, seen: set[str]) -> set[str]:
    if module not in seen and _text(module):
        seen.add(module)
        for other in _imports(module):
            _imported(other, seen)
    return seen


@cache
def _imports(module: str) -> frozenset[str]:
    """What a module of the engine imports of the engine; names inside modules among them."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(_text(module))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(_PACKAGE):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
            if not str(node.module).endswith(".kernels"):  # which lists templates, and makes no code
                found.add(str(node.module))
    return frozenset(found)


@cache
def _text(module: str) -> str:
    try:
        spec = find_spec(module)
    except ModuleNotFoundError:  # a name inside a module
        return ""
    if spec is None or spec.origin is None:
        return ""
    return Path(spec.origin).read_text("utf-8")
