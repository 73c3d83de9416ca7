"""The engine's kernels as sources: what is chosen for a target is what is compiled."""

from __future__ import annotations

from wavefit.native.opencl import kernels, specimens
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
