"""What the engine's routes ask of a model before they plan: which nodes stand in the way."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wavefit.native.operation import UnsupportedNode

Shapes = tuple[tuple[str, tuple[int, ...]], ...]


def frozen(shapes: Mapping[str, tuple[int, ...]]) -> Shapes:
    """Shapes of inputs as a key."""
    return tuple(sorted(shapes.items()))


@lru_cache(maxsize=4)
def unsupported(path: str, shapes: Shapes) -> tuple[UnsupportedNode, ...]:
    """The nodes that stand in the way; asked for every device and precision alike.

    Raises:
        InputError: the shapes do not go through the graph.
    """
    from wavefit.native.import_onnx import load

    graph = load(Path(path), dict(shapes))
    return graph if isinstance(graph, tuple) else ()
