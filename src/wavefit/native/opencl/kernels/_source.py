"""A kernel's text put together, and the time that moving its bytes takes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from wavefit.native.opencl import c
from wavefit.native.operation import Buffer, Config, Implementation, Kernel, Launch, Limits, Operation, View

LAUNCH_SECONDS = 5e-6  # one enqueue and its start: 8 us through pyopencl, less from a prepared queue
BANDWIDTH = 100e9  # bytes a second, where the device's is not known


def kernel(
    name: str,
    signature: Sequence[str],
    body: Sequence[str],
    sizes: tuple[tuple[int, ...], tuple[int, ...]],
    declared: Sequence[str] = (),
    local_bytes: int = 0,
) -> Kernel:
    """A kernel from its parts.

    Args:
        name: of the kernel function.
        signature: its parameters.
        body: its statements.
        sizes: global and local work sizes.
        declared: functions and tables before it.
        local_bytes: of __local memory that the body declares.
    """
    size = ", ".join(str(n) for n in (*sizes[1], 1, 1)[:3])
    head = f"__kernel __attribute__((reqd_work_group_size({size})))\nvoid {name}({', '.join(signature)}) {{"
    text = "\n".join([*declared, head, *(f"    {line}" for line in body), "}", ""])
    return Kernel(name=name, source=text, global_size=sizes[0], local_size=sizes[1], local_bytes=local_bytes)


def single(
    template: str, operation: Operation, config: Config, made: Kernel, flops: int = 0
) -> Implementation:
    """An implementation of one kernel that takes the parameters of :func:`c.parameters`."""
    _, given = c.parameters(operation)
    buffers = [Buffer(kind="input", index=number) for number in given]
    buffers += [Buffer(kind="output", index=number) for number in range(len(operation.outputs))]
    return Implementation(
        template=template,
        config=config,
        launches=(Launch(kernel=made, arguments=tuple(buffers)),),
        flops=flops,
        bytes=traffic(operation),
    )


def touched(view: View) -> int:
    """Bytes of the elements that a view shows, repeats counted once."""
    sizes = (n for n, s in zip(view.shape, view.strides, strict=True) if s != 0)
    return math.prod(sizes) * view.itemsize


def traffic(operation: Operation) -> int:
    """The least bytes that an operation moves."""
    return sum(touched(view) for view in (*operation.inputs, *operation.outputs) if view is not None)


def present(operation: Operation) -> bool:
    """Whether every tensor has elements, in types that kernels store."""
    views = [view for view in (*operation.inputs, *operation.outputs) if view is not None]
    return all(view.size > 0 and view.dtype in c.STORED for view in views)


def seconds(moved: float, work_items: int, limits: Limits, launches: int = 1) -> float:
    """Time to move bytes with so many work-items, which a GPU needs many of to fill its memory's pipes.

    Full bandwidth is taken to want 16 waves on every compute unit.
    """
    bandwidth = limits.bandwidth or BANDWIDTH
    wanted = limits.wave * 16 * (limits.compute_units or 16) if limits.kind == "gpu" else 1
    filled = min(1.0, work_items / wanted)
    return LAUNCH_SECONDS * launches + moved / bandwidth / max(filled, 1e-3) ** 0.5


def groups(limits: Limits, *preferred: int) -> list[int]:
    """Work-group sizes that the device takes, in the order preferred."""
    return [size for size in preferred if size <= limits.work_group] or [limits.work_group]
