"""Kernels that take the arena and a place in it, in place of a sub-buffer for each tensor.

NVIDIA's driver crashes when sub-buffers that overlap are released after a run (seen with 580 on an H200), and tensors
that live one after another do overlap. So every pointer of a kernel is followed by an offset in bytes.
"""

from __future__ import annotations

import re

_POINTER = re.compile(r"^(?P<type>.*\*)\s*(?:restrict\s+)?(?P<name>\w+)$", re.DOTALL)


def relocatable(source: str, name: str) -> str:
    """The source with an offset after each pointer of one kernel.

    Args:
        source: OpenCL C; all parameters of the kernel are pointers.
        name: of the kernel.
    """
    head = re.search(rf"\b{name}\s*\(", source[source.index("__kernel") :])
    assert head is not None, name
    start = source.index("__kernel") + head.end()
    end = source.index(")", start)
    brace = source.index("{", end) + 1
    pointers = [_split(each) for each in source[start:end].split(",")]
    parameters = ", ".join(f"{kind}{pointer}, const ulong {pointer}_at" for kind, pointer in pointers)
    moves = "".join(
        f"\n  {pointer} = ({kind})((__global {'const ' if 'const' in kind else ''}char *){pointer} + {pointer}_at);"
        for kind, pointer in pointers
    )
    return f"{source[:start]}{parameters}{source[end:brace]}{moves}{source[brace:]}"


def _split(parameter: str) -> tuple[str, str]:
    found = _POINTER.match(parameter.strip())
    assert found is not None, parameter
    return found["type"], found["name"]
