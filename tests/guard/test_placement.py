"""What counts as having run on the GPU."""

from __future__ import annotations

import pytest

from wavefit.guard.placement import reasons
from wavefit.schema import Device, NodeTime, Placement, ProviderShare

CPU = Device(id="cpu", kind="cpu")
GPU = Device(id="gpu0", kind="gpu")


def placement(gpu: int, cpu: int, name: str = "CPUExecutionProvider", timed: bool = True) -> Placement:
    shares = [
        ProviderShare(provider="MIGraphXExecutionProvider", nodes=gpu, time_s=0.003 if timed else None),
        ProviderShare(provider=name, nodes=cpu, time_s=0.001),
    ]
    nodes = [NodeTime(name=f"n{i}", op="TopK" if i else "NonZero", provider=name) for i in range(min(cpu, 3))]
    return Placement(
        providers=tuple(share for share in shares if share.nodes), cpu_nodes=tuple(nodes), source="test"
    )


@pytest.mark.parametrize("name", ["CPUExecutionProvider", "cpu"])
def test_a_gpu_plan_with_no_node_on_the_gpu_never_counts(name: str) -> None:
    for required in (False, True):
        [reason] = reasons(placement(0, 7, name), GPU, required)
        assert "none of the 7 nodes ran on gpu0" in reason


def test_nodes_on_the_cpu_are_named_where_the_gpu_is_required() -> None:
    assert reasons(placement(9, 5), GPU, False) == ()
    [reason] = reasons(placement(9, 5), GPU, True)
    assert reason == "5 of 14 nodes ran on the CPU (25% of the time): TopK (2), NonZero, 2 more"
    assert "of the time" not in reasons(placement(9, 5, timed=False), GPU, True)[0]


def test_all_on_the_gpu_counts() -> None:
    assert reasons(placement(9, 0), GPU, True) == ()


def test_a_runtime_that_cannot_tell_is_no_proof() -> None:
    assert "cannot tell" in reasons(None, GPU, True)[0]
    assert reasons(None, GPU, False) == ()


def test_the_cpus_own_plan_is_measured_where_a_gpu_is_required_too() -> None:
    assert reasons(placement(0, 7), CPU, False) == ()
    assert reasons(placement(0, 7), CPU, True) == ()
