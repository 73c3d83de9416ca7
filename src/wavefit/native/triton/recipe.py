"""What a program was chosen by, kept beside its code objects: the same program is made again on another machine.

A server has neither the tuner's measurements nor the measured peaks of the machine that made a bundle, and would choose
other kernels by itself, which it would have to compile. What a recipe says is held against what templates offer: text
from a bundle never gets into a kernel's.
"""

from __future__ import annotations

from pathlib import Path

from wavefit.native import tuned
from wavefit.native.operation import Config, Implementation, Limits, Operation
from wavefit.native.triton.chooser import Chooser
from wavefit.native.triton.kernels import TEMPLATES
from wavefit.schema import Struct, decode, encode

_FILE = "recipe.json"


class Recipe(Struct, frozen=True, kw_only=True):
    """A chooser as data.

    Args:
        tuned, measured: as the chooser has them, of the operations that it was asked for.
        code: hashes of the templates that ``tuned`` names.
    """

    limits: Limits
    tuned: dict[str, tuple[str, Config]]
    measured: dict[str, float]
    code: dict[str, str]


def save(chooser: Chooser, folder: Path) -> None:
    """Keeps what a chooser made a program by, once it has."""
    chosen = {key: choice for key, choice in chooser.tuned.items() if key in chooser.asked}
    recipe = Recipe(
        limits=chooser.limits,
        tuned=chosen,
        measured={key: seconds for key, seconds in chooser.measured.items() if key in chooser.asked},
        code=tuned.code_hashes(TEMPLATES, {template for template, _ in chosen.values()}),
    )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _FILE).write_bytes(encode(recipe))


def chooser(folder: Path) -> Chooser | None:
    """The chooser that a folder's program was made by; None where there is none, or the templates have changed."""
    path = folder / _FILE
    if not path.is_file():
        return None
    recipe = decode(path.read_bytes(), Recipe, str(path))
    if recipe.code != tuned.code_hashes(TEMPLATES, recipe.code):
        return None
    return _Carried(recipe.limits, recipe.tuned, recipe.measured)


class _Carried(Chooser):
    """Takes no choice that its template does not offer."""

    def build(self, operation: Operation) -> Implementation:
        self.asked.add(operation.key)
        template, config = self.tuned.get(operation.key, ("", {}))
        if template in TEMPLATES.claiming(operation, self.limits):
            made = TEMPLATES.get(template)
            if config in made.configurations(operation, self.limits):
                return made.build(operation, config)
        return Chooser(self.limits).build(operation)
