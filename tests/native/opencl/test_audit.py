"""The engine's kernels as sources: what is chosen for a target is what is compiled."""

from __future__ import annotations

from pathlib import Path

import pytest

from wavefit.kernels import audit, toolchain
from wavefit.kernels.cache import Cache
from wavefit.kernels.compile import Compiled, compile_source
from wavefit.native import limits, specimens
from wavefit.native.opencl import kernels
from wavefit.native.opencl.audit import of_operations


def test_layers_reach_every_template() -> None:
    jobs = of_operations(specimens.layers(), ["gfx1103"])
    seen = {source.name.split(":")[0] for source, _ in jobs}
    assert seen >= {
        name for name in kernels.names() if name.startswith(("conv", "matmul", "attention", "softmax"))
    }


def test_each_target_gets_its_own_configuration() -> None:
    one = {"bert": specimens.layers()["bert wide"]}
    texts = {target: {s.text for s, _ in of_operations(one, [target])} for target in ("gfx90c", "gfx1151")}
    assert texts["gfx90c"] != texts["gfx1151"]


def test_the_work_group_is_the_launchs() -> None:
    jobs = of_operations({"softmax": specimens.layers()["bert softmax"]}, ["gfx90c"])
    for source, _ in jobs:
        assert source.work_group is not None
        assert source.work_group % 64 == 0 or source.work_group < 64
        assert source.kernel is not None
        assert source.kernel in source.text


ARITHMETIC = {  # LLVM, "AMDGPU Instructions": what multiplies two words, of bytes and of halves, on each target
    "gfx906": ("dot", "dot"),
    "gfx90a": ("dot", "dot"),
    "gfx942": ("dot", "dot"),
    "gfx1030": ("dot", "dot"),
    "gfx1103": ("dot", "dot"),
    "gfx1151": ("dot", "dot"),
    "gfx90c": (None, "packed"),
}


@pytest.mark.parametrize(("target", "kinds"), ARITHMETIC.items())
def test_narrow_products_are_one_instruction(
    target: str, kinds: tuple[str | None, str], tmp_path: Path
) -> None:
    pytest.importorskip("elftools")
    found = toolchain.find("zig")
    if isinstance(found, toolchain.Missing):
        pytest.skip(found.reason)
    layers = specimens.layers()
    names = ("resnet 3x3 128 28 int8", "resnet 3x3 256 14 half", "bert wide int8", "bert wide half")
    narrow = {name: layers[name] for name in names}
    jobs = [job for job in of_operations(narrow, [target]) if "_dot" in job[0].name]
    rows = audit.audit(jobs, found, lambda text: None, Cache(tmp_path))
    assert [(row.name, row.problems) for row in rows if not row.good] == []
    products = [row for row in rows if row.kernel is not None and not row.kernel.endswith("_sum")]
    for row, kind in zip(products, [kind for kind in kinds if kind is not None] * 2, strict=True):
        assert row.resources is not None
        counts = row.resources.instructions
        assert row.resources.instructions.get("scratch", 0) == 0
        assert counts[kind] >= 8, counts
        assert counts["load_128"] >= 4


@pytest.mark.parametrize("target", ["gfx908", "gfx950", "gfx1010", "gfx1012", "gfx1201", "gfx1250"])
def test_words_are_multiplied_at_once_where_the_catalogue_says_so(target: str) -> None:
    found = toolchain.find("zig")
    if isinstance(found, toolchain.Missing):
        pytest.skip(found.reason)
    held, odd = limits.of_gfx(target), specimens.odd()
    for name in ("3x3 int8", "3x3 half"):
        if "conv_dot" not in kernels.claiming(odd[name], held):
            assert not held.dot
            continue
        made = kernels.get("conv_dot")
        config = next(iter(made.configurations(odd[name], held)))
        compiled = compile_source(made.build(odd[name], config).launches[0].kernel.source, target, found)
        assert isinstance(compiled, Compiled), compiled
        wanted = {"dot4": "v_dot4", "dot2": "dot2", "packed": "v_pk_fma_f16"}[str(config["sums"])]
        assert compiled.assembly.count(wanted) >= 16
        assert (config["sums"] == "packed") == (name == "3x3 half" and not held.dot2)


def test_int8_without_dot_products_is_one_instruction_a_product(tmp_path: Path) -> None:
    """gfx90c multiplies and adds 24 bits at once; a product of 32 bits takes four times as long there."""
    pytest.importorskip("elftools")
    found = toolchain.find("zig")
    if isinstance(found, toolchain.Missing):
        pytest.skip(found.reason)
    narrow = {name: each for name, each in specimens.layers().items() if name.endswith("int8")}
    jobs = [job for job in of_operations(narrow, ["gfx90c"]) if "_dot" not in job[0].name]
    rows = audit.audit(jobs, found, lambda text: None, Cache(tmp_path))
    assert {row.name.split(":")[0] for row in rows} == {"conv_any", "conv_depthwise", "conv_gemm", "matmul"}
    assert [(row.name, row.problems) for row in rows if not row.good] == []
    product = next(job[0].text for job in jobs if job[0].kernel == "matmul")
    made = compile_source(product, "gfx90c", found)
    assert isinstance(made, Compiled)
    assert made.assembly.count("v_mad_i32_i24") >= 64
