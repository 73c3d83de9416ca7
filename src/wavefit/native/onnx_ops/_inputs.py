"""The caller's shapes against the graph's inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from wavefit.errors import InputError

if TYPE_CHECKING:
    import onnx_ir as ir


def bind(
    graph: ir.Graph, shapes: Mapping[str, tuple[int, ...]]
) -> Iterator[tuple[ir.Value, tuple[int, ...]]]:
    """Each input with its shape.

    Raises:
        InputError: one has no shape, an unknown name has one, or a shape is not one that the input takes.
    """
    names = [str(value.name) for value in graph.inputs]
    for name in shapes:
        if name not in names:
            raise InputError(f"the model has no input {name!r}", f"it has: {', '.join(names)}")
    sizes: dict[str, int] = {}
    for value in graph.inputs:
        if value.name not in shapes:
            raise InputError(
                f"input {value.name!r} has no shape", f"give one for each of: {', '.join(names)}"
            )
        shape = tuple(int(size) for size in shapes[str(value.name)])
        _check(value, shape, sizes)
        yield value, shape


def _check(value: ir.Value, shape: tuple[int, ...], sizes: dict[str, int]) -> None:
    """Raises where a declared dimension is another; symbolic ones keep the size that they are given first."""
    if any(size < 1 for size in shape):
        raise InputError(
            f"input {value.name!r} is given the shape {list(shape)}", "every size must be 1 or more"
        )
    declared = None if value.shape is None else list(value.shape)
    if declared is None:
        return
    if len(declared) != len(shape):
        raise InputError(
            f"input {value.name!r} has {len(declared)} dimensions, and is given {len(shape)}: {list(shape)}",
            "give as many as the model has",
        )
    for axis, (want, size) in enumerate(zip(declared, shape, strict=True)):
        fixed = want if isinstance(want, int) else want.value and sizes.setdefault(want.value, size)
        if fixed and fixed != size:
            said = fixed if isinstance(want, int) else f"{want.value} = {fixed}"
            raise InputError(
                f"input {value.name!r} has size {said} in dimension {axis}, and is given {size}",
                "give the size that the model has, or export it with a dynamic one",
            )
