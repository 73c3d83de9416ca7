"""What every kernel here does with the elements of a view along its last axis: load some, apply the epilogue, store.

Elements travel as C expressions, one for each lane; a vector's lanes are ``x.s0``, ``x.s1``... Scalar arithmetic on
lanes is what GPUs run anyway; only loads and stores gain from vectors.
"""

from __future__ import annotations

from collections.abc import Sequence

from wavefit.native.opencl import c
from wavefit.native.operation import Operation, View
from wavefit.native.pointwise import Pointwise

FINISH = "finish"
"""The name of the C function that computes an operation's epilogue."""


def load(view: View, pointer: str, axes: Sequence[str], width: int, name: str) -> tuple[list[str], list[str]]:
    """Statements that load ``width`` elements along the last axis, and their lanes.

    Args:
        view: its last axis is the lanes'.
        pointer: the buffer.
        axes: coordinates of the first element.
        width: 1, 2, 4 or 8 elements; the first coordinate on the last axis is a multiple of it.
        name: of the variable, unique in the scope.
    """
    kind, at = c.register(view.dtype), c.index(view, axes)
    stride = view.strides[-1] if view.shape[-1] > 1 else 0
    if width == 1 or stride == 0:
        return [f"const {kind} {name} = {c.load(view.dtype, pointer, at)};"], [name] * width
    if stride == 1:
        wide = c.load_vector(view.dtype, pointer, at, width, c.aligned(view, width))
        return [f"const {kind}{width} {name} = {wide};"], lanes(name, width)
    names = [f"{name}_{lane}" for lane in range(width)]
    places = [f"{at} + {lane * stride}" for lane in range(width)]
    pairs = zip(names, places, strict=True)
    return [f"const {kind} {one} = {c.load(view.dtype, pointer, place)};" for one, place in pairs], names


def lanes(name: str, width: int) -> list[str]:
    """The lanes of a vector variable."""
    return [name] if width == 1 else [f"{name}.s{lane:x}" for lane in range(width)]


def store(view: View, pointer: str, axes: Sequence[str], values: Sequence[str]) -> list[str]:
    """Statements that store one value for each lane; the reverse of :func:`load`."""
    at, width, kind = c.index(view, axes), len(values), c.register(view.dtype)
    if width > 1 and view.strides[-1] == 1:
        typed = (
            f"({kind})(({value}) != 0)" if view.dtype == "bool" else f"({kind})({value})" for value in values
        )
        vector = f"({kind}{width})({', '.join(typed)})"
        return [c.store_vector(view.dtype, pointer, at, vector, width, c.aligned(view, width))]
    stride = view.strides[-1]
    return [
        c.store(view.dtype, pointer, f"{at} + {lane * stride}" if lane else at, value)
        for lane, value in enumerate(values)
    ]


def declaration(expression: Pointwise | None, dtypes: Sequence[str], name: str = FINISH) -> list[str]:
    """The C function of one element that an expression is; nothing where there is no expression.

    Args:
        expression: of as many operands as there are types.
        dtypes: of the operands.
        name: of the function.
    """
    if expression is None:
        return []
    result = expression.steps[-1].dtype if expression.steps else dtypes[0]
    operands = [f"x{number}" for number in range(len(dtypes))]
    lines, value = c.expression(expression, operands)
    typed = ", ".join(f"const {c.register(t)} {x}" for t, x in zip(dtypes, operands, strict=True))
    body = [f"    {line}" for line in lines]
    return [f"static {c.register(result)} {name}({typed}) {{", *body, f"    return {value};", "}"]


def declared(operation: Operation, result: str = "float32") -> list[str]:
    """The function of an operation's epilogue; ``result`` is the type of what it is applied to."""
    types = [operation.input(number).dtype for number in range(operation.own, len(operation.inputs))]
    if operation.op != "Pointwise":
        types = [result, *types]
    return declaration(operation.epilogue, types)


def finished(
    operation: Operation, values: Sequence[str], axes: Sequence[str], scope: str = "v"
) -> tuple[list[str], list[str]]:
    """Statements that apply the epilogue to a value for each lane, and the results.

    The views of the epilogue's operands have the axes that the output has. ``scope`` is a prefix of variables' names.
    """
    if operation.epilogue is None:
        return [], list(values)
    lines, operands = [], [list(values)]
    for number in range(operation.own, len(operation.inputs)):
        view = operation.input(number)
        code, names = load(view, f"in{number}", axes, len(values), f"{scope}{number}")
        lines += code
        operands.append(names)
    return lines, [f"{FINISH}({', '.join(each)})" for each in zip(*operands, strict=True)]


def emitted(operation: Operation, values: Sequence[str], axes: Sequence[str], scope: str = "v") -> list[str]:
    """Statements that apply the epilogue and store the results: the end of most kernels."""
    lines, results = finished(operation, values, axes, scope)
    return [*lines, *store(operation.output, "out0", axes, results)]
