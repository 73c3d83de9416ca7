"""Products of words: four int8 depths, or two halves, in 32 bits, multiplied and added up in one instruction.

A word of one factor times a word of the other, added to a 32-bit sum, is what AMD's ``v_dot4_i32_i8`` and
``v_dot2_f32_f16`` do at the rate of one fp32 multiply-add (AMD, "Vega 7nm" and "RDNA 2" ISA documents, VOP3P). Targets
without the latter have ``v_pk_fma_f16``, which adds in half: its sums are moved to float after every step of a tile.

Such a sum of n products, n words a step, is off by at most n u / (1 - n u) of the sum of their sizes, u = 2^-11
(Higham, Accuracy and Stability of Numerical Algorithms, 3.1), and by n 2^-25 where products fall below half's normal
numbers. For normal random numbers the relative L2 is 6e-4 with n = 16, and 4.6e-4 with 8, where the output's own
rounding is 2e-4. It overflows where n products together pass 65504.

Which of them is used stands in the configuration; the text has the same arithmetic in plain C for compilers that know
neither OpenCL's integer dot product nor AMD's built-in functions, so that tests run it anywhere. It is offered to
devices that are made for it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from math import prod

import numpy as np

from wavefit.device import catalogue
from wavefit.native.opencl import c
from wavefit.native.opencl.kernels import _product
from wavefit.native.opencl.kernels._product import Product
from wavefit.native.opencl.kernels._tiles import Arithmetic, Side
from wavefit.native.operation import Limits, Operation, View

BYTES = ("int8", "uint8")
_RUN = 16  # words of a step whose products are summed in half
_FLIP = 0x80808080  # uint8 less 128, as int8

_DOT4 = """\
static int dot4(uint a, uint b, int sum) {
#if defined(__opencl_c_integer_dot_product_input_4x8bit_packed)
    return sum + dot_4x8packed_ss_int(a, b);
#elif defined(WAVEFIT_SUDOT4)
    return __builtin_amdgcn_sudot4(true, as_int(a), true, as_int(b), sum, false);
#elif defined(WAVEFIT_SDOT4)
    return __builtin_amdgcn_sdot4(as_int(a), as_int(b), sum, false);
#else
    const char4 x = as_char4(a), y = as_char4(b);
    return sum + x.s0 * y.s0 + x.s1 * y.s1 + x.s2 * y.s2 + x.s3 * y.s3;
#endif
}
static int4 dots(uint a, uint4 b, int4 sum) {
    return (int4)(dot4(a, b.s0, sum.s0), dot4(a, b.s1, sum.s1), dot4(a, b.s2, sum.s2), dot4(a, b.s3, sum.s3));
}"""

_DOT2 = """\
static float dot2(uint a, uint b, float sum) {
#if defined(WAVEFIT_FDOT2)
    return __builtin_amdgcn_fdot2(as_half2(a), as_half2(b), sum, false);
#else
    const float2 x = vload_half2(0, (const half *)&a), y = vload_half2(0, (const half *)&b);
    return fma(x.s1, y.s1, fma(x.s0, y.s0, sum));
#endif
}
static float4 dots(uint a, uint4 b, float4 sum) {
    return (float4)(dot2(a, b.s0, sum.s0), dot2(a, b.s1, sum.s1), dot2(a, b.s2, sum.s2), dot2(a, b.s3, sum.s3));
}"""


@cache
def _builtins() -> str:
    """Which of AMD's built-in functions the compiler has, and its target has instructions for.

    Older versions of clang say yes to ``__has_builtin`` of other targets' functions, so the target is asked too.
    """
    lines = []
    for instruction, function in (
        ("v_dot4_i32_iu8", "sudot4"),
        ("v_dot4_i32_i8", "sdot4"),
        ("v_dot2_f32_f16", "fdot2"),
    ):
        having = [f"defined(__{each.gfx}__)" for each in catalogue.targets() if instruction in each.dot]
        lines += [f"#if {' || '.join(having)}", f"#if __has_builtin(__builtin_amdgcn_{function})"]
        lines += [f"#define WAVEFIT_{function.upper()}", "#endif", "#endif"]
    return "\n".join([*lines, "#ifdef WAVEFIT_FDOT2", _HALF, "#endif"])


_HALF = "#pragma OPENCL EXTENSION cl_khr_fp16 : enable"

_PACKED = """\
#ifdef cl_khr_fp16
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#define BEGIN(sum) half8 part_##sum = (half8)(0.0f)
#define ADD(sum, a, b) part_##sum = fma(as_half8((uint4)(a)), as_half8(b), part_##sum)
#define END(sum) sum += convert_float4(part_##sum.even) + convert_float4(part_##sum.odd)
#else
#define BEGIN(sum)
#define ADD(sum, a, b) sum = dots(a, b, sum)
#define END(sum)
#endif"""

_WORD = """\
static uint word(__global const {kind} *from, int step, int count) {{
    uint made = from[0];
{lanes}
    return made;
}}"""


def arithmetic(sums: str) -> Arithmetic:
    """How words are multiplied: bytes "dot4", halves "dot2", or "packed": summed in half for a step of the tile."""
    if sums == "packed":
        return Arithmetic(
            held="uint",
            sums="float",
            product="ADD({c}, {f}, {g});",
            begin="BEGIN({c});",
            end="END({c});",
            registers=2,
            ending=4,
            most_elements=_RUN,
        )
    kind = "float" if sums == "dot2" else "int"
    return Arithmetic(held="uint", sums=kind, product="{c} = dots({f}, {g}, {c});")


def sums(operation: Operation, limits: Limits) -> str:
    """The arithmetic that a device is best at."""
    if operation.input(0).dtype in BYTES:
        return "dot4"
    return "dot2" if limits.dot2 else "packed"


def offered(operation: Operation, limits: Limits) -> bool:
    """Whether a device multiplies words in one instruction."""
    return limits.dot if operation.input(0).dtype in BYTES else limits.dot2 or limits.fp16


def depths(dtype: str) -> int:
    """Elements of a word."""
    return 4 // np.dtype(dtype).itemsize


def claims(operation: Operation) -> bool:
    """Whether both factors are narrow, and the second is constant: it is put into words beforehand."""
    x, w = operation.input(0).dtype, operation.input(1).dtype
    known = len(operation.constant) > 1 and operation.constant[1]
    narrow = (x in BYTES and w == "int8" and operation.own == 2) or x == w == "float16"
    return narrow and known


def _functions(operation: Operation, sums: str, whole: bool) -> list[str]:
    """What a kernel of words calls; ``whole``: words are loaded as such."""
    lines = [_builtins(), _DOT4 if sums == "dot4" else _DOT2]
    lines += [_PACKED] if sums == "packed" else []
    if not whole:
        dtype = operation.input(0).dtype
        bits = 8 * np.dtype(dtype).itemsize
        lanes = "\n".join(
            f"    if (count > {lane}) made |= (uint)from[{lane} * step] << {lane * bits};"
            for lane in range(1, depths(dtype))
        )
        lines.append(_WORD.format(kind="ushort" if bits == 16 else "uchar", lanes=lanes))
    return lines


def in_words(product: Product, elements: int, how: str, whole: bool) -> Product:
    """The product over words: ``elements`` of them along the depth, followed by one of constants in packed order."""
    shift = _shift(product.operation)
    constant = ""
    if shift:
        place = f"{elements * _product.pitch(product)} + col"
        constant = f"*(__global const int4 *)((__global const int *)in1 + {place})"
    return replace(
        product,
        arithmetic=arithmetic(how),
        elements=elements,
        constant=constant,
        functions=tuple(_functions(product.operation, how, whole)),
    )


def _shift(operation: Operation) -> int:
    """What each depth's product has too much of, in units of its weight: the zero point of the first factor as int8."""
    x = operation.input(0).dtype
    if x not in BYTES:
        return 0
    return int(operation.attributes.get("zero_point", 0)) - (128 if x == "uint8" else 0)


def zero(operation: Operation) -> str:
    """The word of which every element stands for 0."""
    return f"{(_shift(operation) & 0xFF) * 0x01010101}u"


def load(operation: Operation, width: int, step: int, left: str = "") -> str:
    """The expression that loads ``width`` words of the first factor; ``{at}`` is the first element's place.

    Args:
        step: elements from one depth to the next.
        left: a C expression: how many depths there are from this place on. "" where words lie whole in memory.
    """
    x = operation.input(0).dtype
    if left:
        kind = "ushort" if x == "float16" else "uchar"
        made = f"word((__global const {kind} *)in0 + ({{at}}), {step}, {left})"
    elif width == 1:
        made = "*(__global const uint *)(in0 + ({at}))"
    else:
        made = f"vload{width}(0, (__global const uint *)(in0 + ({{at}})))"
    return f"({made} ^ {_FLIP}u)" if x == "uint8" else made


def whole(view: View, axis: int) -> bool:
    """Whether the elements along an axis lie side by side, a whole number of words of them from a word's start."""
    count = depths(view.dtype)
    others = [
        s for n, (size, s) in enumerate(zip(view.shape, view.strides, strict=True)) if size > 1 and n != axis
    ]
    beside = view.shape[axis] == 1 or view.strides[axis] == 1
    return (
        beside
        and view.shape[axis] % count == 0
        and view.offset % count == 0
        and all(step % count == 0 for step in others)
    )


def rows(product: Product, view: View, step: int, depth: View) -> Side:
    """The first factor of a matrix product, in words.

    Args:
        view: over (batch..., rows..., columns), of its first depth.
        step: elements from one depth to the next.
        depth: the factor as the operation has it; its last axis is the depth.
    """
    operation, count = product.operation, depths(view.dtype)
    lies_whole = whole(depth, len(depth.shape) - 1)
    width = 4 if lies_whole and product.length % 4 == 0 else 1

    def setup(i: int, side: str) -> list[str]:
        names = _product.names(f"aq{i}_", product.ranks[1])
        place = _product.over(view, product, names, "0")
        return [*c.split(side, product.row_shape, names), f"const int aat{i} = {place};"]

    def left(i: int) -> str:
        return "" if lies_whole else f"{product.depth} - ak{i} * {count}"

    return Side(
        name="a",
        along="depth",
        width=width,
        size=product.rows,
        setup=setup,
        at=lambda i, k: [],
        place=lambda i, k: f"aat{i} + {k} * {count * step}",
        valid=lambda i: "",
        load=lambda at, i: load(operation, width, step, left(i)).format(at=at),
        zero="0u",
    )


def columns(product: Product) -> Side:
    """The second factor as :func:`pack` leaves it: words by columns."""
    pitch = _product.pitch(product)
    return Side(
        name="b",
        along="side",
        width=4,
        size=pitch,
        setup=lambda i, side: [],
        at=lambda i, k: [],
        place=lambda i, k: f"{k} * {pitch} + br{i}",
        valid=lambda i: "",
        load=lambda at, i: f"*(__global const uint4 *)((__global const uint *)in1 + ({at}))",
        zero="0u",
    )


def pack(operation: Operation, array: np.ndarray) -> np.ndarray:
    """(columns, taps, depths of a tap) as uint32: words by columns up to a multiple of 4; then a row of constants.

    Depths fill up to whole words with zeros in each tap. The last row holds, as int32, what is to be added to each
    column's sum for the first factor's zero point.
    """
    outs, taps, ins = array.shape
    count = depths(array.dtype.name)
    words, pitch = -(-ins // count), -(-outs // 4) * 4
    filled = np.zeros((pitch, taps, words * count), array.dtype)
    filled[:outs, :, :ins] = array
    packed = filled.view(np.uint32).reshape(pitch, taps * words).T
    if array.dtype != np.int8:
        return np.ascontiguousarray(packed)
    totals = filled.astype(np.int64).sum(axis=(1, 2)) * -_shift(operation)
    return np.concatenate([packed, totals.astype(np.int32).view(np.uint32)[None]])


def elements(shape: tuple[int, ...], dtype: str) -> int:
    """Words along the depth, of weights (outs, ins, taps...)."""
    return prod(shape[2:]) * -(-shape[1] // depths(dtype))
