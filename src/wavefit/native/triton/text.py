"""Pieces of Triton that every template writes: types, places in buffers, loads, stores, expressions.

Sizes are numbers in the text. A tile's coordinates are :class:`Axis` values: an expression that broadcasts to the tile,
and the mask of those that lie inside, in the same shape.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wavefit.native import space
from wavefit.native.operation import Buffer, Config, Implementation, Kernel, Launch, Operation, View
from wavefit.native.pointwise import Argument, Pointwise
from wavefit.native.triton.functions import FUNCTIONS, INTEGERS

STORED = {
    "float32": "float32",
    "float16": "float16",
    "bfloat16": "bfloat16",
    "int64": "int64",
    "int32": "int32",
    "int16": "int16",
    "int8": "int8",
    "uint8": "uint8",
    "uint16": "uint16",
    "uint32": "uint32",
    "uint64": "uint64",
    "bool": "int8",
}
"""numpy's types, as Triton calls what a buffer holds."""

FLOATS = ("float32", "float16", "bfloat16")
HEAD = "import triton\nimport triton.language as tl\n\n\n"


@dataclass(frozen=True)
class Axis:
    """Coordinates along one axis of a view.

    Args:
        expression: int32, of a shape that broadcasts to the tile's; a plain number or scalar too.
        mask: which of them lie inside; None: all.
    """

    expression: str
    mask: str | None = None


def register(dtype: str) -> str:
    """The type in which a value is computed: every float as float32, bool as int1."""
    if dtype in FLOATS:
        return "float32"
    return "int1" if dtype == "bool" else STORED[dtype]


def literal(value: float) -> str:
    """A constant of float32; infinities and NaN too."""
    if math.isnan(value):
        return 'float("nan")'
    if math.isinf(value):
        return 'float("inf")' if value > 0 else 'float("-inf")'
    return repr(float(value))


def index(view: View, axes: Sequence[Axis]) -> str:
    """The element's place in the buffer."""
    terms = [
        axis.expression if stride == 1 else f"({axis.expression}) * {stride}"
        for axis, size, stride in zip(axes, view.shape, view.strides, strict=True)
        if size > 1 and stride != 0
    ]
    if view.offset or not terms:
        terms.append(str(view.offset))
    return " + ".join(terms)


def mask(view: View, axes: Sequence[Axis]) -> str | None:
    """Which places of :func:`index` lie inside; None: all."""
    used = [
        axis.mask
        for axis, size, stride in zip(axes, view.shape, view.strides, strict=True)
        if size > 1 and stride != 0 and axis.mask is not None
    ]
    return " & ".join(f"({each})" for each in dict.fromkeys(used)) or None


def load(view: View, name: str, axes: Sequence[Axis], other: str = "0") -> str:
    """Elements of a buffer in the type that they are computed in."""
    return register_of(view.dtype, load_raw(view, name, axes, other))


def load_raw(view: View, name: str, axes: Sequence[Axis], other: str = "0") -> str:
    """Elements of a buffer as they are stored."""
    inside = mask(view, axes)
    guard = f", mask={inside}, other={other}" if inside else ""
    return f"tl.load({name} + ({index(view, axes)}){guard})"


def register_of(dtype: str, value: str) -> str:
    """A stored value in the type that it is computed in."""
    if dtype == "bool":
        return f"({value} != 0)"
    return f"{value}.to(tl.float32)" if dtype in FLOATS[1:] else value


def store(
    view: View, name: str, axes: Sequence[Axis], value: str, inside: str | None = None, spread: str = ""
) -> str:
    """The statement that stores elements, rounded to the nearest.

    Args:
        view: where.
        name: of the buffer.
        axes: coordinates in the view.
        value: in the type that it is computed in.
        inside: the whole mask, where the axes' own do not say it.
        spread: the tile's shape, where the place alone may be smaller: axes of size 1 have no part in it.
    """
    guard = inside or " & ".join(
        f"({each})" for each in dict.fromkeys(axis.mask for axis in axes if axis.mask is not None)
    )
    masked = f", mask={guard}" if guard else ""
    place = f"{name} + ({index(view, axes)})"
    if spread:
        place = f"tl.broadcast_to({place}, {spread})"
    return f"tl.store({place}, ({value}).to(tl.{STORED[view.dtype]}){masked})"


def expression(
    pointwise: Pointwise,
    operands: Sequence[str],
    prefix: str = "e",
    inverses: Mapping[int, str] | None = None,
) -> tuple[list[str], str]:
    """The statements of an expression, and the name of its result.

    Args:
        pointwise: the expression.
        operands: names or expressions without side effects, in the types that they are computed in.
        prefix: of the variables' names, unique in the kernel.
        inverses: reciprocals of operands, by number: a division by such a one becomes a multiplication.
    """
    known, lines = list(operands), []
    rounds = _held(pointwise)

    def text(argument: Argument, dtype: str) -> str:
        if not isinstance(argument, float):
            return known[argument]
        if dtype in FLOATS or (dtype == "bool" and not float(argument).is_integer()):
            return literal(argument)
        return str(int(argument)) if math.isfinite(argument) else literal(argument)

    for number, step in enumerate(pointwise.steps):
        known_as = FUNCTIONS if step.dtype in FLOATS else {**FUNCTIONS, **INTEGERS}
        code = known_as[step.function].format(*(text(each, step.dtype) for each in step.arguments))
        divisor = step.arguments[-1]
        if step.function == "div" and step.dtype in FLOATS and divisor in (inverses or {}):
            assert inverses is not None
            code = f"({text(step.arguments[0], step.dtype)} * {inverses[int(divisor)]})"
        if number in rounds:
            least, most = rounds[number]
            held = f"tl.minimum(tl.maximum({text(step.arguments[0], step.dtype)}, {least!r}), {most!r})"
            code = f"({held} + 12582912.0) - 12582912.0"
        if all(isinstance(each, float) for each in step.arguments):
            code = f"tl.full((1,), {code}, tl.{register(step.dtype)})"
        else:
            code = f"({code} != 0)" if step.dtype == "bool" else f"({code}).to(tl.{register(step.dtype)})"
        lines.append(f"{prefix}{number} = {code}")
        known.append(f"{prefix}{number}")
    return lines, known[-1] if pointwise.steps else known[0]


def _held(pointwise: Pointwise) -> dict[int, tuple[float, float]]:
    """Steps that round what is then held between whole numbers: holding first gives the same, and rounds for less."""
    found: dict[int, tuple[float, float]] = {}
    steps = pointwise.steps
    for number, step in enumerate(steps):
        if step.function != "clip" or not all(isinstance(each, float) for each in step.arguments[1:]):
            continue
        least, most = (float(each) for each in step.arguments[1:])
        source = int(step.arguments[0]) - pointwise.operands
        if (
            0 <= source < number
            and steps[source].function == "add"
            and isinstance(steps[source].arguments[1], float)
        ):
            zero = float(steps[source].arguments[1])
            least, most, source = (
                least - zero,
                most - zero,
                int(steps[source].arguments[0]) - pointwise.operands,
            )
        whole = least.is_integer() and most.is_integer() and max(abs(least), abs(most)) <= 1024
        used = sum(each.arguments.count(source + pointwise.operands) for each in steps)
        if whole and 0 <= source < number and steps[source].function == "round" and used == 1:
            found[source] = least, most
    return found


def epilogue(
    operation: Operation, value: str, axes: Sequence[Axis], prefix: str = "e"
) -> tuple[list[str], str]:
    """The statements that apply an operation's epilogue to a tile of its result, and the result's name.

    Args:
        operation: whose epilogue; without one there are no statements.
        value: the tile, in the type that it is computed in.
        axes: its coordinates in the output's shape.
        prefix: of the variables' names, unique in the kernel.
    """
    if operation.epilogue is None:
        return [], value
    lines, operands, inverses = [], [value], {}
    divisors = {step.arguments[-1] for step in operation.epilogue.steps if step.function == "div"}
    for number, view in list(enumerate(operation.inputs))[operation.own :]:
        assert view is not None
        wide = space.broadcast(view, len(axes))
        lines.append(f"{prefix}in{number} = {load(wide, f'in{number}', axes)}")
        few = (
            any(n != m for n, m in zip(wide.shape, operation.output.shape, strict=True)) or 0 in wide.strides
        )
        if few and len(operands) in divisors and view.dtype in FLOATS:
            lines.append(f"{prefix}by{number} = 1.0 / {prefix}in{number}")
            inverses[len(operands)] = f"{prefix}by{number}"
        operands.append(f"{prefix}in{number}")
    more, result = expression(operation.epilogue, operands, prefix, inverses)
    return [*lines, *more], result


def split(number: str, shape: Sequence[int], names: Sequence[str]) -> list[str]:
    """Statements that split a row-major number into coordinates, the last fastest."""
    lines, rest = [], number
    for name, size in list(zip(names, shape, strict=True))[:0:-1]:
        lines.append(f"{name} = " + (f"{rest} * 0" if size == 1 else f"{rest} % {size}"))
        if size > 1:
            lines.append(f"{name}_rest = {rest} // {size}")
            rest = f"{name}_rest"
    return [*lines, f"{names[0]} = {rest}"] if names else []


def present(operation: Operation) -> bool:
    """Whether every tensor has elements, in types that kernels store, at places that 32 bits hold."""
    views = [view for view in (*operation.inputs, *operation.outputs) if view is not None]
    return all(view.size > 0 and view.dtype in STORED for view in views) and not space.far(operation)


def computes(operation: Operation) -> bool:
    """Whether every function of its epilogue is one that Triton has."""
    return has(operation.epilogue)


def has(epilogue: Pointwise | None) -> bool:
    """Whether every function of an expression is one that Triton has."""
    return epilogue is None or all(step.function in FUNCTIONS for step in epilogue.steps)


def kernel(
    name: str,
    parameters: Sequence[tuple[str, str]],
    body: Sequence[str],
    grid: tuple[int, ...],
    options: dict[str, int],
    before: str = "",
) -> Kernel:
    """A kernel from its parts.

    Args:
        name: of the function.
        parameters: names and numpy types of what they point to.
        body: its statements; a line may bring its own deeper indentation.
        grid: programs along up to three axes.
        options: of the compiler: num_warps, num_stages, waves_per_eu...
        before: functions that it calls, decorated with @triton.jit.
    """
    signature = ", ".join(parameter for parameter, _ in parameters)
    lines = "\n".join(f"    {line}" for line in body)
    text = f"{HEAD}{before}@triton.jit\ndef {name}({signature}):\n{lines}\n"
    return Kernel(
        name=name,
        source=text,
        global_size=grid,
        local_size=(1,) * len(grid),
        language="triton",
        types=tuple(dtype for _, dtype in parameters),
        options=options,
    )


def parameters(operation: Operation) -> tuple[list[tuple[str, str]], list[Buffer]]:
    """``in0``... of the inputs that are given and ``out0``..., with their types; and the buffers that they are."""
    names: list[tuple[str, str]] = []
    buffers: list[Buffer] = []
    for number, view in enumerate(operation.inputs):
        if view is not None:
            names.append((f"in{number}", view.dtype))
            buffers.append(Buffer(kind="input", index=number))
    for number, view in enumerate(operation.outputs):
        names.append((f"out{number}", view.dtype))
        buffers.append(Buffer(kind="output", index=number))
    return names, buffers


def single(
    template: str,
    operation: Operation,
    config: Config,
    body: Sequence[str],
    grid: tuple[int, ...],
    options: dict[str, int],
    flops: int = 0,
) -> Implementation:
    """An implementation of one kernel that takes the operation's own inputs and outputs, named after the template."""
    names, buffers = parameters(operation)
    made = kernel(template, names, body, grid, options)
    launch = Launch(kernel=made, arguments=tuple(buffers))
    moved = traffic(operation)
    return Implementation(template=template, config=config, launches=(launch,), flops=flops, bytes=moved)


def touched(view: View) -> int:
    """Bytes of the elements that a view shows, repeats counted once."""
    sizes = (n for n, s in zip(view.shape, view.strides, strict=True) if s != 0)
    return math.prod(sizes) * view.itemsize


def traffic(operation: Operation) -> int:
    """The least bytes that an operation moves."""
    return sum(touched(view) for view in (*operation.inputs, *operation.outputs) if view is not None)


def power_of_two(number: int) -> int:
    """The least power of two that is not below the number."""
    return 1 << max(0, number - 1).bit_length()
