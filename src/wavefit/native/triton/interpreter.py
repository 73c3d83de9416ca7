"""Runs kernels without a GPU, by Triton's interpreter on numpy: for correctness at small sizes.

TRITON_INTERPRET=1 must stand in the environment before Triton is first imported, as it decorates its own library then:
:func:`activate` sees to that, in a process of its own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from wavefit.errors import RouteError
from wavefit.native.operation import Kernel
from wavefit.native.triton.compile import namespace


def activate() -> None:
    """Makes this process one in which Triton interprets.

    Raises:
        RouteError: Triton has been imported as a compiler already.
    """
    if "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1":
        raise RouteError("Triton was imported as a compiler in this process", "start a new one to interpret")
    os.environ["TRITON_INTERPRET"] = "1"


def run(kernel: Kernel, tensors: Sequence[Any]) -> None:
    """Runs a kernel on flat CPU tensors of PyTorch's, one for each argument."""
    made = namespace(kernel)[kernel.name]
    if kernel.language == "torch":
        made(*tensors)
    else:
        made[kernel.global_size](*tensors)
