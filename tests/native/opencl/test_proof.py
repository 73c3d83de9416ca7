import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyopencl")
import pyopencl as cl

from wavefit.native import reference, specimens
from wavefit.native.edges import edges
from wavefit.native.limits import of_opencl
from wavefit.native.opencl import kernels, proof
from wavefit.native.opencl.selftest import TOLERANCES, data
from wavefit.native.operation import Buffer, Config, Implementation, Kernel, Launch, Limits, Operation

PRODUCT = specimens.matmul(specimens.rows(64, 32), specimens.rows(32, 16))
NARROW = specimens.requantised(
    specimens.small_conv(specimens.image(2, 8, 12, 12, dtype="uint8"), 12, (3, 3), pad=1, zero_point=99)
)
CONV = specimens.conv(specimens.image(2, 8, 12, 12), 12, (3, 3), pad=1, stride=2)


class Product(ModuleType):
    """A template whose configuration says how many rows it computes at a time: what is left over it forgets."""

    OPS = ("MatMul",)

    def claims(self, operation: Operation) -> bool:
        return True

    def configurations(self, operation: Operation, limits: Limits) -> Iterator[Config]:
        yield from ({"rows": rows} for rows in (1, 4))

    def build(self, operation: Operation, config: Config) -> Implementation:
        (m, k), n, rows = operation.input(0).shape, operation.output.shape[-1], int(config["rows"])
        source = f"""__kernel void product(__global const float *a, __global const float *b, __global float *c) {{
          const int col = get_global_id(0), first = get_global_id(1) * {rows};
          if (col >= {n} || first >= {m // rows * rows}) return;
          for (int row = first; row < first + {rows}; row++) {{
            float sum = 0.0f;
            for (int i = 0; i < {k}; i++) sum += a[row * {k} + i] * b[i * {n} + col];
            c[row * {n} + col] = sum;
          }}
        }}"""
        kernel = Kernel(name="product", source=source, global_size=(n, m), local_size=(1, 1))
        arguments = tuple(
            Buffer(kind=kind, index=at) for kind, at in (("input", 0), ("input", 1), ("output", 0))
        )
        launch = Launch(kernel=kernel, arguments=arguments)
        return Implementation(template="rows", config=config, launches=(launch,))


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch) -> Any:
    others = kernels.names()
    monkeypatch.setitem(sys.modules, f"{kernels.__name__}.rows", Product("rows"))
    monkeypatch.setattr(kernels, "names", lambda: [*others, "rows"])
    monkeypatch.setattr(kernels.TEMPLATES, "names", lambda: [*others, "rows"])
    return cl.Context([next(each for every in cl.get_platforms() for each in every.get_devices())])


def flaw(context: Any, operation: Operation, template: str, config: Config) -> str:
    limits = of_opencl(context.devices[0], None)
    return proof.flaw(context, operation, template, config, limits, TOLERANCES[operation.output.dtype])


def test_finds_what_is_right_for_one_size_by_chance(context: Any) -> None:
    assert flaw(context, PRODUCT, "rows", {"rows": 1}) == ""
    assert "off by nan for an output of" in flaw(context, PRODUCT, "rows", {"rows": 4})  # 64 rows are right


@pytest.mark.parametrize("operation", [PRODUCT, CONV, NARROW], ids=["product", "convolution", "requantised"])
def test_finds_nothing_where_nothing_is(context: Any, operation: Operation) -> None:
    limits = of_opencl(context.devices[0], None)
    template = next(name for name in kernels.claiming(operation) if name in ("matmul", "conv_gemm"))
    config = next(iter(kernels.get(template).configurations(operation, limits)))
    assert flaw(context, operation, template, config) == ""


@pytest.mark.parametrize("operation", [PRODUCT, CONV, NARROW], ids=["product", "convolution", "requantised"])
def test_other_sizes_fit_together_and_keep_the_order_of_memory(operation: Operation) -> None:
    found = list(edges(operation))
    assert len({edge.output.shape for edge in found} | {operation.output.shape}) == len(found) + 1
    for edge in found:
        assert reference.compute(edge, data(edge)).shape == edge.output.shape
        for old, new in zip((*operation.inputs, operation.output), (*edge.inputs, edge.output), strict=True):
            assert (old is None) == (new is None)
            if old is not None and new is not None:
                assert new.dense
                assert old.strides.index(1) == new.strides.index(1)


def test_exact_is_numpy_and_only_where_that_is_quick() -> None:
    arrays = data(PRODUCT)
    a, b = (np.asarray(each, np.float64) for each in arrays)
    exact = proof.exact(PRODUCT, arrays)
    assert exact is not None
    np.testing.assert_allclose(exact, a @ b, rtol=1e-12)
    large = specimens.matmul(specimens.rows(4096, 4096), specimens.rows(4096, 4096))
    assert proof.exact(large, []) is None
