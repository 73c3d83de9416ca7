"""What passes between the graph and the kernels: an Operation to be computed, an Implementation that computes it.

An :class:`Operation` is a node with everything that decides its code: views of its operands in memory, attributes,
the epilogue. It holds no weights, so that equal layers are one operation, tuned once and compiled once. A template (a
file in ``opencl/kernels/`` or ``triton/kernels/``) turns it, with a configuration, into an :class:`Implementation`:
kernels, their arguments, scratch memory, and how constant inputs are packed.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import numpy as np

from wavefit.native.pointwise import Pointwise
from wavefit.schema import Struct, fingerprint

Config = dict[str, int | str]
"""A template's tuned parameters: {"tile_m": 64, "tile_n": 64, "vector": 4}."""


class View(Struct, frozen=True, kw_only=True):
    """A tensor in a buffer: element ``(i, j, ...)`` lies at ``offset + i * strides[0] + j * strides[1] + ...``.

    Shapes are ONNX's; strides and offset count elements, and a stride of 0 repeats. An image (N, C, H, W) that is
    stored channels-last has stride 1 in C.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0
    dtype: str = "float32"

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return 2 if self.dtype == "bfloat16" else int(np.dtype(self.dtype).itemsize)  # numpy may not know it

    @property
    def extent(self) -> int:
        """Elements from the buffer's start to the farthest element, inclusive. Strides may be negative."""
        return (
            self.offset + sum((n - 1) * max(s, 0) for n, s in zip(self.shape, self.strides, strict=True)) + 1
        )

    @property
    def dense(self) -> bool:
        """Whether its elements fill their stretch of the buffer, in any order of the axes, without gap or repeat."""
        return 1 + sum((n - 1) * abs(s) for n, s in zip(self.shape, self.strides, strict=True)) == self.size

    @property
    def row_major(self) -> bool:
        """Whether the elements lie in the shape's order without gaps."""
        return all(
            n == 1 or s == want
            for n, s, want in zip(self.shape, self.strides, row_major(self.shape), strict=True)
        )

    @property
    def channels_last(self) -> bool:
        """Whether axis 1 has stride 1: images (and sequences) stored with their channels side by side."""
        return len(self.shape) >= 3 and (self.shape[1] == 1 or self.strides[1] == 1)


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a dense tensor in the shape's own order."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def channels_last(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a dense image (N, C, spatial...) stored as N, spatial..., C."""
    batch, channels, *space = shape
    moved = row_major((batch, *space, channels))
    return (moved[0], moved[-1], *moved[1:-1])


class Operation(Struct, frozen=True, kw_only=True):
    """A node as the kernels see it.

    Inputs from ``own`` on are operands 1, 2, ... of the epilogue; they broadcast to the output's shape. ``constant``
    tells which inputs are known before running: those may be packed.
    """

    op: str
    inputs: tuple[View | None, ...]
    outputs: tuple[View, ...]
    attributes: dict[str, Any] = msgspec.field(default_factory=dict)
    constant: tuple[bool, ...] = ()
    own: int = 0
    epilogue: Pointwise | None = None

    @property
    def key(self) -> str:
        """A short hash: equal operations have equal keys on every machine."""
        return fingerprint(self)

    @property
    def output(self) -> View:
        return self.outputs[0]

    @property
    def label(self) -> str:
        """``Conv 3x3 64->128``, ``MatMul 128x768x768``, or the operator and its output's shape."""
        if self.op in ("Conv", "ConvTranspose") and self.has(1):
            x, w = self.input(0).shape, self.input(1).shape
            return f"{self.op} {'x'.join(map(str, w[2:]))} {x[1]}->{self.output.shape[1]}"
        if self.op == "MatMul":
            m, k, n = *self.input(0).shape[-2:], self.output.shape[-1]
            return f"MatMul {m}x{k}x{n}"
        return f"{self.op} {'x'.join(map(str, self.output.shape))}"

    def input(self, index: int) -> View:
        """An input that must be there."""
        view = self.inputs[index]
        assert view is not None
        return view

    def has(self, index: int) -> bool:
        """Whether its own optional input is given."""
        return index < self.own and self.inputs[index] is not None


class Buffer(Struct, frozen=True, kw_only=True):
    """An argument of a kernel: the buffer of an input or output of the operation, a scratch or a packed buffer.

    "counter": int32, 0 at every launch, which must leave them 0; all kernels of a program share one such buffer.
    """

    kind: Literal["input", "output", "scratch", "packed", "counter"]
    index: int = 0


class Kernel(Struct, frozen=True, kw_only=True):
    """One kernel with all sizes as constants, and the work sizes that it is launched with.

    OpenCL C 1.2, Triton, or for "torch" Python that calls PyTorch's library. Every global size is a multiple of the
    local size beside it; in Triton it counts programs, and the local size is 1. All arguments are pointers; to a
    function for PyTorch they are flat tensors.
    """

    name: str  # of the function in the source
    source: str
    global_size: tuple[int, ...]
    local_size: tuple[int, ...]
    local_bytes: int = 0  # __local memory of a work-group
    registers: int = 0  # a lower estimate of 32-bit registers that a work-item holds; 0: few
    language: Literal["opencl", "triton", "torch"] = "opencl"
    types: tuple[
        str, ...
    ] = ()  # of what the arguments point to, by numpy's names; Triton's compiler wants them
    options: dict[str, int] = msgspec.field(
        default_factory=dict
    )  # of Triton's compiler: num_warps, num_stages...


class Launch(Struct, frozen=True, kw_only=True):
    kernel: Kernel
    arguments: tuple[Buffer, ...]


class Packed(Struct, frozen=True, kw_only=True):
    """A constant input in the order that the kernels want: ``template.pack(how, operation, array)`` makes it."""

    input: int
    how: str


class Implementation(Struct, frozen=True, kw_only=True):
    """Kernels, one after another, that compute an operation."""

    template: str  # the file's name in opencl/kernels/
    config: Config
    launches: tuple[Launch, ...]
    scratch: tuple[
        int, ...
    ] = ()  # bytes of each scratch buffer; contents are undefined before the first launch
    packed: tuple[Packed, ...] = ()
    counters: int = 0  # that its launches take
    flops: int = 0  # that it performs, a multiply-add counted as 2
    bytes: int = 0  # least that it moves through memory


class Limits(Struct, frozen=True, kw_only=True):
    """What kernels may take of a device, and what it is good at. None: unknown."""

    name: str
    gfx: str | None = None
    kind: Literal["cpu", "gpu"] = "gpu"
    wave: int = 64  # work-items that run in step
    compute_units: int | None = None
    work_group: int = 256  # most work-items of one work-group
    local_bytes: int = 32768  # most __local memory of one work-group
    registers: int | None = None  # 32-bit registers of a lane that the waves of one SIMD share
    most_registers: int = 256  # that one work-item may hold
    register_granule: int = 4  # registers are given out in multiples of this many
    waves: int | None = None  # most waves of one SIMD
    simds: int = 4  # of a compute unit
    l2_bytes: int | None = None
    flops: float | None = None  # fp32, a second
    matrix: dict[str, float] = msgspec.field(
        default_factory=dict
    )  # matrix units' operations a second, by type of the factors
    bandwidth: float | None = None  # bytes a second
    fp16: bool = False  # cl_khr_fp16: arithmetic in half
    subgroups: bool = False  # cl_khr_subgroups
    dot: bool = False  # four products of int8 added to an int in one instruction
    dot2: bool = False  # two products of halves added to a float in one instruction
    command_buffers: bool = False  # cl_khr_command_buffer
    unified: bool = False  # device and host share one memory


class UnsupportedNode(Struct, frozen=True, kw_only=True):
    """A node that the engine cannot run: which operator, why, and what to do."""

    node: str
    op: str
    reason: str
    fix: str = "run this model on another route, or export it without this operator"
