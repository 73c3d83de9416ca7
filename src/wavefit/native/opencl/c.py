"""Pieces of OpenCL C that every template writes: types, loads and stores of a view's elements, expressions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from wavefit.native import space
from wavefit.native.opencl.functions import FUNCTIONS
from wavefit.native.operation import Operation, View
from wavefit.native.pointwise import Argument, Pointwise

STORED = {
    "float32": "float",
    "float16": "half",
    "int64": "long",
    "int32": "int",
    "int16": "short",
    "int8": "char",
    "uint8": "uchar",
    "uint16": "ushort",
    "uint32": "uint",
    "uint64": "ulong",
    "bool": "uchar",
}
"""numpy's types, as a buffer holds them."""


def register(dtype: str) -> str:
    """The type in which a value of that type is computed: halves are only stored."""
    return "float" if dtype == "float16" else STORED[dtype]


def index(view: View, axes: Sequence[str]) -> str:
    """The element's place in the buffer, of an element at those coordinates (C expressions, one for each axis)."""
    terms = [
        axis if stride == 1 else f"({axis}) * {stride}"
        for axis, size, stride in zip(axes, view.shape, view.strides, strict=True)
        if size > 1 and stride != 0
    ]
    if view.offset or not terms:
        terms.append(str(view.offset))
    return " + ".join(terms)


def load(dtype: str, pointer: str, at: str) -> str:
    """One element in the type that it is computed in."""
    return f"vload_half({at}, {pointer})" if dtype == "float16" else f"{pointer}[{at}]"


def load_vector(dtype: str, pointer: str, at: str, width: int, aligned: bool = False) -> str:
    """``width`` neighbouring elements; the place need not be a multiple of the width unless ``aligned``.

    Some compilers make one wide load only of what is known to be aligned: say so where it is (:func:`aligned`).
    """
    if width == 1:
        return load(dtype, pointer, at)
    if aligned and dtype != "float16":
        return f"*(__global const {register(dtype)}{width} *)({pointer} + ({at}))"
    name = f"vload{'a' * aligned}_half{width}" if dtype == "float16" else f"vload{width}"
    return f"{name}(0, {pointer} + ({at}))"


def summed(dtype: str) -> str:
    """The type in which products of such elements are added up: float, or int, which holds bytes' sums."""
    return "int" if dtype in ("int8", "uint8") else "float"


def load_factor(dtype: str, pointer: str, at: str, width: int, aligned: bool = False, less: int = 0) -> str:
    """Neighbouring elements in the type of their products' sum, less a number: an integer's zero point."""
    loaded = load_vector(dtype, pointer, at, width, aligned)
    if summed(dtype) == "float":
        return loaded
    made = f"convert_int{width if width > 1 else ''}({loaded})"
    return f"({made} - {less})" if less else made


def store(dtype: str, pointer: str, at: str, value: str) -> str:
    """The statement that stores one element, rounded to nearest even where it is a half."""
    if dtype == "float16":
        return f"vstore_half({value}, {at}, {pointer});"
    if dtype == "bool":
        return f"{pointer}[{at}] = ({value}) != 0;"
    return f"{pointer}[{at}] = {value};"


def store_vector(dtype: str, pointer: str, at: str, value: str, width: int, aligned: bool = False) -> str:
    """The statement that stores a vector of neighbouring elements; ``aligned`` as in :func:`load_vector`."""
    if width == 1:
        return store(dtype, pointer, at, value)
    if aligned and dtype != "float16":
        return f"*(__global {register(dtype)}{width} *)({pointer} + ({at})) = {value};"
    name = f"vstore{'a' * aligned}_half{width}" if dtype == "float16" else f"vstore{width}"
    return f"{name}({value}, 0, {pointer} + ({at}));"


def aligned(view: View, width: int, axis: int = -1) -> bool:
    """Whether every ``width``-th element along an axis of stride 1 lies at a multiple of ``width`` in its buffer."""
    steps = [s for n, s in zip(view.shape, view.strides, strict=True) if n > 1]
    if view.shape[axis] > 1:
        steps.remove(view.strides[axis])
    return view.strides[axis] == 1 and all(step % width == 0 for step in (view.offset, *steps))


def literal(value: float, dtype: str = "float32") -> str:
    """A constant; exact, infinities and NaN too."""
    if dtype not in ("float32", "float16"):
        return f"({STORED[dtype]})({int(value)})"
    if math.isnan(value):
        return "NAN"
    if math.isinf(value):
        return "INFINITY" if value > 0 else "(-INFINITY)"
    return f"{float.hex(float(value))}f"


def expression(pointwise: Pointwise, operands: Sequence[str], prefix: str = "e") -> tuple[list[str], str]:
    """The statements of an expression, and the name of its result.

    Args:
        pointwise: the expression.
        operands: a C expression without side effects for each operand.
        prefix: of the variables' names, unique in the kernel's scope.
    """
    known, lines = list(operands), []

    def text(argument: Argument, dtype: str) -> str:
        if not isinstance(argument, float):
            return known[argument]
        if dtype == "bool":  # a comparison's constant is of the other side's type: C converts it
            return str(int(argument)) if argument.is_integer() else literal(argument)
        return literal(argument, dtype)

    for number, step in enumerate(pointwise.steps):
        code = FUNCTIONS[step.function].format(*(text(each, step.dtype) for each in step.arguments))
        kind = register(step.dtype)
        code = f"{code} != 0" if step.dtype == "bool" else code
        lines.append(f"const {kind} {prefix}{number} = {_cast(kind, code)};")
        known.append(f"{prefix}{number}")
    return lines, known[-1] if pointwise.steps else known[0]


def _cast(kind: str, code: str) -> str:
    return f"({kind})({code})"


def epilogue(
    operation: Operation, value: str, axes: Sequence[str], prefix: str = "e"
) -> tuple[list[str], str]:
    """The statements that apply an operation's epilogue to one element of its result, and the result's name.

    The operands' buffers are named ``in0``, ``in1``, ... as :func:`parameters` names them.

    Args:
        operation: whose epilogue; without one there are no statements.
        value: the element, in the type that it is computed in.
        axes: its coordinates in the output's shape, as C expressions.
        prefix: of the variables' names, unique in the kernel's scope.
    """
    if operation.epilogue is None:
        return [], value
    operands = [value]
    for number, view in list(enumerate(operation.inputs))[operation.own :]:
        assert view is not None
        at = index(space.broadcast(view, len(axes)), axes)
        operands.append(load(view.dtype, f"in{number}", at))
    return expression(operation.epilogue, operands, prefix)


def parameters(operation: Operation) -> tuple[list[str], list[int]]:
    """The kernel's parameters for the inputs that are given, ``in0``..., and their numbers; outputs are ``out0``..."""
    given = [number for number, view in enumerate(operation.inputs) if view is not None]
    lines = [f"__global const {STORED[operation.input(number).dtype]} *in{number}" for number in given]
    lines += [f"__global {STORED[view.dtype]} *out{number}" for number, view in enumerate(operation.outputs)]
    return lines, given


def coordinates(flat: str, shape: Sequence[int], names: Sequence[str]) -> list[str]:
    """Statements that split a row-major number into one coordinate for each axis; the last axis runs fastest."""
    lines, rest = [], flat
    for name, size in list(zip(names, shape, strict=True))[:0:-1]:
        lines.append(f"const int {name} = (int)(({rest}) % {size});")
        rest = f"({rest}) / {size}"
    return [*lines, f"const int {names[0]} = (int)({rest});"] if names else []


def split(number: str, shape: Sequence[int], names: Sequence[str], wide: bool = False) -> list[str]:
    """Statements that split a row-major number into coordinates, the last fastest.

    ``number`` is unsigned (divisions by constants are then cheapest); ``wide`` makes the coordinates 64-bit.
    """
    kind = "long" if wide else "int"
    lines, rest, divisor = [], number, 1
    for name, size in list(zip(names, shape, strict=True))[:0:-1]:
        lines.append(f"const {kind} {name} = " + ("0;" if size == 1 else f"{rest} % {size};"))
        divisor *= size
        rest = number if divisor == 1 else f"{number} / {divisor}"
    return [*lines, f"const {kind} {names[0]} = {rest};"]
