"""Launches beside their floors, from a child process on the device here."""

from __future__ import annotations

from pathlib import Path

import pytest

import wavefit.demo
from wavefit import child
from wavefit.device.probe import probe
from wavefit.device.runtimes import with_runtimes
from wavefit.model.load import load
from wavefit.native.operation import Limits
from wavefit.native.profiling import Profile, Profiling, floor_s
from wavefit.schema import Failure

DIGITS = Path(wavefit.demo.__file__).parent / "digits.onnx"
LIMITS = Limits(name="a", flops=10e12, bandwidth=500e9)


@pytest.mark.parametrize(
    ("flops", "moved", "want"),
    [
        (10**10, 5 * 10**8, 1e-3),  # both are 1 ms
        (10**10, 10**9, 2e-3),
        (4 * 10**10, 0, 4e-3),
        (0, 0, None),
    ],
)
def test_the_floor_is_the_roofline(flops: int, moved: int, want: float | None) -> None:
    assert floor_s(flops, moved, LIMITS) == (want if want is None else pytest.approx(want))


def test_a_floor_is_unknown_where_a_peak_is() -> None:
    assert floor_s(10**10, 10**9, Limits(name="a", flops=10e12)) is None
    assert floor_s(10**10, 10**9, Limits(name="a", bandwidth=1e9)) is None


def test_every_launch_of_a_model_is_timed(tmp_path: Path) -> None:
    pytest.importorskip("pyopencl")
    device = next(
        device
        for device in with_runtimes(probe(), lambda text: None)
        if any(each.name == "opencl" and each.index is not None for each in device.runtimes)
    )
    payload = Profiling(
        model=load(DIGITS), device=device, batch=3, shapes={"image": (3, 1, 8, 8)}, sizes={}, batches=4
    )
    found = child.run(
        "wavefit.native.opencl.profile:profile", payload, Profile, 120.0, tmp_path, lambda text: None
    )
    assert not isinstance(found, Failure), found
    convolutions = [each for each in found.launches if each.op == "Conv"]
    # Three items; 8 x 8 pixels to 32 channels of 1 each, twice, then 4 x 4 to 48 channels of 32; 3 x 3 taps.
    assert [each.flops for each in convolutions] == [2 * 3 * 64 * 32 * 9] * 2 + [2 * 3 * 16 * 48 * 32 * 9]
    assert all(each.seconds > 0 for each in found.launches)
    assert found.seconds == pytest.approx(sum(each.seconds for each in found.launches))
    assert {each.batch for each in found.spans} == {0, 1, 2, 3}
    assert found.batch_s is not None
    assert found.batch_s > 0
