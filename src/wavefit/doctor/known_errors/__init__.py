"""The error messages that wavefit knows, one TOML file an area, and the records that they are read into.

How a pattern is written: a regular expression that begins with at least five literal characters, whose repetitions are
all bounded (``.{0,80}``, ``?``), without an alternative at its top (give two patterns instead). It is compared without
regard to case and to blanks: text that a terminal has wrapped in the middle of a word still matches.
"""

from __future__ import annotations

import re
from functools import cached_property
from importlib import resources

import msgspec

from wavefit.schema import Fix, Struct

# What may stand for itself at the beginning of a pattern: no metacharacter, or one that is escaped.
_LITERAL = re.compile(r"(?:[^\\\[\](){}.*+?^$|]|\\[^a-z0-9])+")
SHORTEST_ANCHOR = 5


class When(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What must be known to hold on the machine for a variant to apply. A fact that is not known never holds."""

    gfx: tuple[str, ...] = ()  # an AMD GPU here has one of these targets
    gpu: bool | None = None  # an AMD GPU is here
    integrated: bool | None = None  # every AMD GPU here is integrated; false: every one is a card
    mixed: bool | None = None  # an integrated GPU and a card are both here
    several: bool | None = None  # more than one AMD GPU is here
    container: bool | None = None
    wsl: bool | None = None
    member: bool | None = None  # the process is in the group that /dev/kfd belongs to
    override: bool | None = None  # HSA_OVERRIDE_GFX_VERSION is set
    torch: tuple[str, ...] = ()  # the build of PyTorch that is installed: "ROCm", "CUDA", "CPU-only", "none"
    compiled: bool | None = None  # the rocBLAS that would be used has kernels for the GPU's target
    lender: bool | None = None  # a relative's kernels may be lent to the GPU: "<override>" names them
    rocm: bool | None = None  # a ROCm is installed below /opt
    rocm_before: str = ""  # its version is older than this, "6.1"


class Variant(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is said instead where the machine's facts are these."""

    when: When
    cause: str = ""
    fix: tuple[Fix, ...] = ()


class KnownError(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One kind of error message."""

    id: str
    area: str  # "HSA", "HIP", "MIOpen", "Docker": who says it
    stage: int  # from 10, firmware, to 90, what only passes on another's failure: causes come before consequences
    title: str
    patterns: tuple[str, ...]
    sample: str  # a message as users met it
    cause: str
    fix: tuple[Fix, ...]
    verify: str
    source: str  # where this was learned: an issue thread, a page of documentation, a source file
    variants: tuple[Variant, ...] = ()

    def compiled(self) -> tuple[Pattern, ...]:
        return tuple(Pattern(text) for text in self.patterns)


class _File(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    error: tuple[KnownError, ...]


class Pattern:
    """A pattern, ready to be searched in text without blanks and capitals."""

    def __init__(self, text: str) -> None:
        self.text = re.sub(r"\s+", "", text).lower()

    @cached_property
    def anchor(self) -> str:
        """The literal characters that every match begins with."""
        match = _LITERAL.match(self.text)
        literal = match[0] if match else ""
        if match and self.text[match.end() : match.end() + 1] in ("?", "{", "*", "+"):
            literal = literal[:-1]  # the last one is what is repeated
        return re.sub(r"\\(.)", r"\1", literal)

    @cached_property
    def regex(self) -> re.Pattern[str]:
        return re.compile(self.text)


def load() -> tuple[KnownError, ...]:
    """All known errors, in the order of the files' names and within each of its text."""
    folder = resources.files(__name__)
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".toml"))
    return tuple(
        error
        for name in names
        for error in msgspec.toml.decode((folder / name).read_bytes(), type=_File).error
    )
