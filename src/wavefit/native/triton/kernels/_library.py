"""Operations left to PyTorch's library: a function of flat tensors, then a launch that does the epilogue.

What it calls can be captured in a graph: sizes are fixed, nothing is asked of the device.
"""

from __future__ import annotations

from msgspec.structs import replace

from wavefit.native import space
from wavefit.native.operation import (
    Buffer,
    Config,
    Implementation,
    Kernel,
    Launch,
    Operation,
    View,
    row_major,
)
from wavefit.native.triton import text
from wavefit.native.triton.kernels import pointwise

HEAD = """import torch
import torch.nn.functional as F

_HELD = {}


def exactly(call):
    # matrix products keep float32 whole by PyTorch's default
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        return call()


def table(name, like, values, dtype):
    if (name, like.device) not in _HELD:  # copied at the first run, which no graph captures
        _HELD[name, like.device] = torch.tensor(values, dtype=dtype, device=like.device)
    return _HELD[name, like.device]


"""


def strided(view: View, name: str) -> str:
    """A view of a flat tensor, in PyTorch."""
    return f"torch.as_strided({name}, {view.shape}, {view.strides}, {name}.storage_offset() + {view.offset})"


def build(
    template: str,
    operation: Operation,
    config: Config,
    lines: list[str],
    result: str,
    dtype: str,
    flops: int = 0,
) -> Implementation:
    """A call, its result in scratch memory, and the epilogue from there.

    Args:
        template: the file's name.
        operation: what is computed.
        config: of the template.
        lines: statements before the result; ``in0``... are views of the operation's own inputs.
        result: an expression in PyTorch, of the output's shape.
        dtype: numpy's name of the result's type.
        flops: that it performs.
    """
    own = [
        (number, view) for number, view in enumerate(operation.inputs[: operation.own]) if view is not None
    ]
    output = operation.output
    raw = View(shape=output.shape, strides=row_major(output.shape), dtype=dtype)
    direct = operation.epilogue is None
    target = strided(output if direct else raw, "made")
    body = [
        *(f"in{number} = {strided(view, f'in{number}')}" for number, view in own),
        *lines,
        f"{target}.copy_({result})",
    ]
    names = [f"in{number}" for number, _ in own]
    text_ = (
        f"{HEAD}def library({', '.join([*names, 'made'])}):\n"
        + "\n".join(f"    {line}" for line in body)
        + "\n"
    )
    called = Kernel(
        name="library",
        source=text_,
        global_size=(1,),
        local_size=(1,),
        language="torch",
        types=(*(view.dtype for _, view in own), output.dtype if direct else dtype),
    )
    inputs = tuple(Buffer(kind="input", index=number) for number, _ in own)
    moved = text.traffic(operation)
    if direct:
        launch = Launch(kernel=called, arguments=(*inputs, Buffer(kind="output")))
        return Implementation(template=template, config=config, launches=(launch,), flops=flops, bytes=moved)
    scratch = Buffer(kind="scratch")
    return Implementation(
        template=template,
        config=config,
        launches=(Launch(kernel=called, arguments=(*inputs, scratch)), _epilogue(operation, raw, scratch)),
        scratch=(raw.size * raw.itemsize,),
        flops=flops,
        bytes=moved,
    )


def _epilogue(operation: Operation, raw: View, scratch: Buffer) -> Launch:
    """The launch that applies the epilogue to what lies in scratch memory."""
    later = [
        (number, view)
        for number, view in enumerate(operation.inputs)
        if number >= operation.own and view is not None
    ]
    expression = Operation(
        op="Pointwise",
        inputs=(raw, *(space.over(view, raw.shape) for _, view in later)),
        outputs=(operation.output,),
        constant=(False,) * (1 + len(later)),
        own=0,
        epilogue=operation.epilogue,
    )
    made = pointwise.build(expression, {"block": 1024, "warps": 4})
    buffers = (scratch, *(Buffer(kind="input", index=number) for number, _ in later), Buffer(kind="output"))
    return replace(made.launches[0], arguments=buffers)
