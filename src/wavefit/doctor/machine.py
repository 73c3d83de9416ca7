"""What checks look at: this machine, or a recorded one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from wavefit.device.files import encodable, exists, read_text
from wavefit.device.probe import probe
from wavefit.schema import Device


@dataclass(frozen=True)
class Process:
    """Who asks, where it matters."""

    uid: int
    groups: tuple[int, ...]  # numeric, the effective one included
    environ: Mapping[str, str]
    packages: Mapping[str, str]  # installed Python packages and their versions
    python: str  # "3.12.3"


@dataclass(frozen=True)
class Machine:
    """A machine to examine.

    Args:
        root: "/" for this machine, else a recorded tree.
        process: of this process, or as recorded; None where a recording has none.
    """

    root: Path = Path("/")
    process: Process | None = field(default=None)

    @property
    def live(self) -> bool:
        """Whether this is the machine that we run on: only then may a device be opened or a command run."""
        return self.root == Path("/")

    @cached_property
    def devices(self) -> tuple[Device, ...]:
        return probe(self.root)

    @cached_property
    def amd_gpus(self) -> tuple[Device, ...]:
        return tuple(device for device in self.devices if device.kind == "gpu" and device.vendor == "amd")

    def read(self, path: str) -> str | None:
        """The text of a file below the root; None where it is missing or cannot be read."""
        return read_text(self.root / path.lstrip("/"))

    def exists(self, path: str) -> bool:
        return exists(self.root / path.lstrip("/"))


def this_process() -> Process:
    """The process that asks, on this machine."""
    import importlib.metadata
    import platform

    groups = tuple(sorted({*os.getgroups(), os.getegid()})) if hasattr(os, "getgroups") else ()
    packages = {
        dist.metadata["Name"].lower(): dist.version
        for dist in importlib.metadata.distributions()
        if dist.metadata["Name"]
    }
    uid = os.getuid() if hasattr(os, "getuid") else 0
    environ = {encodable(name): encodable(value) for name, value in os.environ.items()}
    return Process(uid, groups, environ, packages, platform.python_version())
