"""What the records show of a plan in a lower precision that is no faster than its fp32 plan."""

from __future__ import annotations

from fakes import records
from msgspec.structs import replace

from wavefit.choice import choose
from wavefit.schema import Placement, Plan, ProviderShare, Record, Request
from wavefit.slower import replaced, why

NO_DOT, DOT = records.cpu(features=("avx2",)), records.cpu(features=("avx2", "avx_vnni"))


def _record(precision: str, p90_s: float, nodes: int = 10, **changes: object) -> Record:
    made = records.measured("ort_cpu", changes.pop("device", DOT), p90_s)  # type: ignore[arg-type]
    plan = replace(made.plan, precision=precision, **changes)
    placement = Placement(
        providers=(ProviderShare(provider="CPUExecutionProvider", nodes=nodes),), source="onnxruntime profile"
    )
    return replace(made, key=f"{precision} {p90_s}", plan=plan, placement=placement)


FP32 = _record("fp32", 0.010)


def test_the_fp32_plan_of_the_same_route_device_and_batch_is_what_is_replaced() -> None:
    int8 = _record("int8", 0.020)
    other_batch = replace(FP32, key="b2", plan=replace(FP32.plan, batch=2))
    assert replaced(int8, [other_batch, FP32, int8]) == FP32
    assert replaced(int8, [other_batch, int8]) is None
    assert replaced(FP32, [FP32, int8]) is None


def test_a_slower_int8_plan_is_not_picked_and_the_sentence_says_why() -> None:
    int8 = _record("int8", 0.020, nodes=25, device=NO_DOT)
    choice = choose([FP32, int8], (), Request())
    assert choice.pick == FP32.key
    assert "no dot instructions for int8" in choice.sentence
    assert "25 kernels where fp32 runs 10: fusions were lost, or pairs of Q and DQ stay" in choice.sentence
    assert "fusions were lost, or casts stay" in why(_record("fp16", 0.020, nodes=25), FP32)


def test_nodes_that_fell_back_to_the_cpu_are_counted() -> None:
    gpu = records.gpu()
    placement = Placement(
        providers=(
            ProviderShare(provider="MIGraphXExecutionProvider", nodes=1),
            ProviderShare(provider="CPUExecutionProvider", nodes=7),
        ),
        source="onnxruntime profile",
    )
    fp32 = replace(records.measured("ort_migraphx", gpu, 0.010), placement=None)
    int8 = replace(fp32, plan=replace(fp32.plan, precision="int8"), placement=placement)
    assert "7 nodes fell back to the CPU, 0 in fp32" in why(int8, fp32)


def test_a_file_in_half_that_is_computed_in_fp32_is_never_picked_for_its_speed() -> None:
    half = _record("fp16", 0.005, options={"compute": "fp32"})
    assert choose([FP32, half], (), Request()).pick == FP32.key
    assert "computes it in fp32" in why(half, FP32)


def test_a_lower_precision_must_be_faster_than_a_tie() -> None:
    assert choose([FP32, _record("int8", 0.0099)], (), Request()).pick == FP32.key
    assert choose([FP32, _record("int8", 0.005)], (), Request()).pick != FP32.key


def test_a_plan_keeps_its_label() -> None:
    plan = Plan(route="ort_cpu", device="cpu", precision="int8", variant="int8-2", shapes={})
    assert plan.label == "ort_cpu int8 file=int8-2 batch 1"
    assert replace(plan, variant="int8").label == "ort_cpu int8 batch 1"
