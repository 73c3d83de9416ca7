"""Which input shapes an exported program takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wavefit.errors import RouteError
from wavefit.routes._torch_program import Program


def check_shapes(program: Program, shapes: Sequence[tuple[int, ...]]) -> None:
    """Holds input shapes against those that the program was exported for.

    Raises:
        RouteError: a size is fixed to another number, out of its range, or differs from another of the same name.
            As in torch.export, sizes 0 and 1 are admitted below a least size of 2.
    """
    placeholders = [node for node in program.module.graph.nodes if node.op == "placeholder"]
    known: dict[Any, int] = {}
    for node, shape in zip(placeholders, shapes, strict=True):
        expected = getattr(node.meta.get("val"), "shape", ())
        for axis, (want, have) in enumerate(zip(expected, shape, strict=True)):
            problem = _misfit(want, have, known, program.ranges)
            if problem:
                raise RouteError(
                    f"the exported program takes {problem} at axis {axis} of {node.name}, not {have}",
                    "export the model again with that dimension dynamic",
                )


def _misfit(want: Any, have: int, known: dict[Any, int], ranges: dict[Any, Any]) -> str:
    if isinstance(want, int):
        return "" if want == have else str(want)
    symbol = want.node.expr
    if not symbol.is_symbol:  # 2*batch, say: known once its symbols are
        value = symbol.subs(known)
        return "" if not value.is_number or value == have else str(value)
    if known.setdefault(symbol, have) != have:
        return str(known[symbol])
    allowed = ranges.get(symbol)
    if allowed is None or (have <= allowed.upper and (have >= allowed.lower or allowed.lower <= 2)):
        return ""
    return f"{allowed.lower} to {allowed.upper}"
