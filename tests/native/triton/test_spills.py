"""Tiles that the compiler has not registers enough for are not offered on their target."""

from __future__ import annotations

import pytest

from wavefit.native.specimens import conv, image
from wavefit.native.triton import audit, kernels
from wavefit.native.triton.spills import spills

LARGE = [128, 256, 64, 8, 2]
"""128 by 256 sums on 256 work-items of RDNA: 128 registers for sums alone, of 256 that one may name."""


def test_what_spills_on_rdna_does_not_on_cdna():
    assert spills("gfx1100", "product", LARGE)
    assert not spills("gfx942", "product", [64, 64, 64, 4, 2])
    assert not spills(None, "product", LARGE)  # NVIDIA's compiler was not asked


def test_targets_of_one_generation_are_alike():
    assert spills("gfx1101", "product", LARGE) == spills("gfx1100", "product", LARGE)


@pytest.mark.parametrize("gfx", ["gfx1100", "gfx90a", "gfx942", "gfx950"])
def test_no_such_tile_is_offered(gfx):
    operation = conv(image(32, 256, 14, 14, dtype="float16"), 256, (3, 3), pad=1, residual=True)
    offered = list(kernels.get("conv_gemm").configurations(operation, audit.limits_of(gfx)))
    assert len(offered) > 10
    for config in offered:
        assert not spills(gfx, "product", [int(config[name]) for name in ("m", "n", "k", "warps", "stages")])
