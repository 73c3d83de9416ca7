"""Kernels that are no products compile for AMD's and NVIDIA's GPUs; none need be there.

Triton compiles in a process of its own: one that interprets cannot.
"""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import pytest

from wavefit.native.limits import of_gfx
from wavefit.native.operation import Kernel
from wavefit.native.specimens import odd
from wavefit.native.triton import compile as compiling
from wavefit.native.triton import kernels

PRODUCTS = ("attention", "chain", "conv_direct", "conv_gemm", "conv_stem", "matmul")
TARGETS = {
    "gfx942": compiling.of_gfx("gfx942"),
    "gfx1100": compiling.of_gfx("gfx1100"),
    "sm_90": compiling.Target(backend="cuda", arch="90", wave=32),
}


def one_of_each() -> dict[str, Kernel]:
    """The first kernel of every template that some small operation takes, for its first configuration."""
    found: dict[str, Kernel] = {}
    for operation in odd().values():
        for template in kernels.claiming(operation):
            if template in found or template in PRODUCTS:
                continue
            made = kernels.get(template)
            config = next(iter(made.configurations(operation, of_gfx("gfx942"))))
            (kernel, *_) = [each.kernel for each in made.build(operation, config).launches]
            if kernel.language == "triton":
                found[template] = kernel
    return found


@pytest.fixture(scope="module")
def compiler():
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield pool


@pytest.mark.parametrize("target", TARGETS)
def test_compiles(target, compiler, tmp_path):
    for kernel in one_of_each().values():
        assert compiler.submit(code, kernel, TARGETS[target], tmp_path).result() > 0, kernel.name


def code(kernel, target, folder):
    made = compiling.compile_kernel(kernel, target, folder)
    return len(made.asm["hsaco" if target.backend == "hip" else "ptx"])
