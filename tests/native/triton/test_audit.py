"""Programs in Triton compiled for AMD targets offline, and the rules that they are held to."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from wavefit.native.operation import Kernel, Operation
from wavefit.native.specimens import conv, image, matmul, rows, small_conv
from wavefit.native.triton import audit, kernels

LAYERS: dict[str, Operation] = {
    "3x3 256": conv(image(8, 256, 14, 14, dtype="float16"), 256, (3, 3), pad=1, residual=True),
    "1x1 256->1024": conv(image(8, 256, 14, 14, dtype="float16"), 1024, (1, 1), residual=True),
    "stem": conv(rows(8, 3, 224, 224, dtype="float16"), 64, (7, 7), stride=2, pad=3),
    "product": matmul(rows(128, 768, dtype="float16"), rows(768, 3072, dtype="float16"), bias=True),
    "3x3 int8": small_conv(image(8, 256, 14, 14, dtype="int8"), 256, (3, 3), pad=1),
}


def test_layers_of_known_networks_keep_the_rules_on_matrix_units_of_both_kinds(tmp_path):
    said: list[str] = []
    jobs = audit.of_operations(LAYERS, ("gfx942", "gfx1100"))
    rows_ = audit.audit(jobs, said.append, tmp_path)
    assert len(rows_) == 2 * (len(LAYERS) + 1)  # the stem lays its image out first
    assert [row.problems for row in rows_ if not row.good] == []
    kinds = {"gfx942": "mfma", "gfx1100": "wmma"}
    for row in rows_:
        assert row.resources is not None
        if row.kernel != "lay_out":
            assert row.resources.instructions[kinds[row.target]] > 0, row
    assert said
    again: list[str] = []
    assert audit.audit(jobs, again.append, tmp_path) == rows_
    assert again == []  # nothing was compiled


def test_a_kernel_that_spills_is_named(tmp_path):
    operation = LAYERS["3x3 256"]
    config = {"m": 256, "n": 256, "k": 64, "split": 1, "warps": 4, "stages": 2}
    (launch,) = kernels.get("conv_gemm").build(operation, config).launches
    (row,) = audit.audit([("too large", launch.kernel, "gfx1100")], lambda text: None, tmp_path)
    assert not row.good
    assert "scratch" in " ".join(row.problems)


def test_a_product_without_matrix_instructions_breaks_a_rule():
    kernel = Kernel(name="k", source="tl.dot(a, b)", global_size=(1,), local_size=(1,), language="triton")
    assert audit._of_products(kernel, {"fma": 9, "load_128": 4}) == ["no matrix instructions"]
    assert audit._of_products(kernel, {"wmma": 9}) == ["no loads of 128 bits"]
    exact = msgspec.structs.replace(kernel, source='tl.dot(a, b, input_precision="ieee")')
    assert audit._of_products(exact, {"fma": 9, "load_128": 4}) == []


def test_an_unknown_target_is_refused(tmp_path: Path):
    from wavefit.errors import InputError

    with pytest.raises(InputError, match="gfx9999"):
        audit.of_operations(LAYERS, ("gfx9999",))
