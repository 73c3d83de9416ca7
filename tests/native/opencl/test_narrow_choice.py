"""Which kernels narrow types get: those of words where the device multiplies words at once, and no others elsewhere."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from wavefit.kernels.audit import TARGETS
from wavefit.native import limits, specimens
from wavefit.native.opencl import kernels
from wavefit.native.opencl.chooser import Chooser
from wavefit.native.operation import Limits, Operation

LAYERS = {
    **specimens.layers(),
    "resnet 1x1 256-64 56 half": specimens.conv(specimens.image(1, 256, 56, 56, dtype="float16"), 64, (1, 1)),
}
INT8 = ("resnet 3x3 128 28 int8", "resnet 1x1 256-64 56 int8", "bert wide int8")
HALF = ("resnet 1x1 256-64 56 half", "bert wide half")  # Winograd may be ahead for 3x3
DOT = tuple(target for target in TARGETS if target != "gfx90c")


def chosen(operation: Operation, held: Limits) -> tuple[str, object]:
    made = Chooser(held).build(operation)
    return made.template, made.config.get("sums")


@pytest.mark.parametrize("target", DOT)
def test_targets_with_dot_products_take_them(target: str) -> None:
    held = limits.of_gfx(target)
    assert [chosen(LAYERS[name], held)[1] for name in INT8] == ["dot4"] * 3
    assert [chosen(LAYERS[name], held)[1] for name in HALF] == ["dot2"] * 2


def test_vega_adds_two_halves_at_once_and_bytes_one_by_one() -> None:
    held = limits.of_gfx("gfx90c")
    assert [chosen(LAYERS[name], held)[1] for name in HALF] == ["packed"] * 2
    assert {chosen(LAYERS[name], held)[0] for name in INT8} == {"conv_gemm", "matmul"}


@pytest.mark.parametrize("target", TARGETS)
def test_int8_is_faster_than_fp32_only_by_dot_products(target: str) -> None:
    """By the prediction: four products an instruction, less what edges and memory take."""
    held = limits.of_gfx(target)
    narrow, wide = (Chooser(held).cost(LAYERS[name]) for name in ("bert wide int8", "bert wide"))
    assert narrow is not None
    assert wide is not None
    assert (narrow < 0.7 * wide) == held.dot, (narrow, wide)


def test_a_device_without_either_is_offered_neither() -> None:
    bare = Limits(name="an old GPU")
    for name in (*INT8, *HALF):
        assert not [each for each in kernels.claiming(LAYERS[name], bare) if each.endswith("_dot")]
        assert [each for each in kernels.claiming(LAYERS[name]) if each.endswith("_dot")]
        assert Chooser(bare).cost(LAYERS[name]) is not None


def test_every_int8_layer_is_computed_on_every_device() -> None:
    operations = {**LAYERS, **specimens.odd()}
    narrow = [
        each for each in operations.values() if each.inputs and each.input(0).dtype in ("int8", "uint8")
    ]
    assert len(narrow) >= 9
    for operation in narrow:
        assert kernels.claiming(operation, Limits(name="an old GPU"))


@pytest.mark.parametrize("target", TARGETS)
def test_sums_in_half_stay_short(target: str) -> None:
    held = replace(limits.of_gfx(target), dot2=False)
    for name, template in zip(HALF, ("conv_dot", "matmul_dot"), strict=True):
        found = list(kernels.get(template).configurations(LAYERS[name], held))
        assert found
        assert {each["sums"] for each in found} == {"packed"}
        assert max(int(each["tile_k"]) for each in found) <= 16
