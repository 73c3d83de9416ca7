"""Tiles that Triton's compiler has not registers enough for, by AMD target: they are not offered there.

Found by compiling every tile of a 3x3 convolution with a residual, and of a bottleneck block, for each target:
``benchmarks/triton_spills.py`` writes ``spills.json`` with the version that said so.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files

import msgspec

_LIKE = {"gfx1101": "gfx1100", "gfx1102": "gfx1100", "gfx1150": "gfx1151", "gfx1200": "gfx1201"}
"""Targets of the same generation whose registers are the same: catalogue.toml."""


def spills(gfx: str | None, kind: str, tile: Sequence[int]) -> bool:
    """Whether a tile is known to spill on a target.

    Args:
        gfx: of the target; None where it is no AMD GPU.
        kind: "product": (m, n, k, warps, stages); "chain": (m, k, n, warps, stages).
        tile: its numbers.
    """
    return gfx is not None and tuple(tile) in _known().get(f"{_LIKE.get(gfx, gfx)} {kind}", frozenset())


@cache
def _known() -> dict[str, frozenset[tuple[int, ...]]]:
    held = msgspec.json.decode(
        files(__package__).joinpath("spills.json").read_bytes(), type=dict[str, list[list[int]]]
    )
    return {name: frozenset(map(tuple, tiles)) for name, tiles in held.items()}
