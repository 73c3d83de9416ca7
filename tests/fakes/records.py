"""Records and a Bundle as `optimize` would leave them. Every figure is invented, none was measured anywhere."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import msgspec

from wavefit.choice import choose
from wavefit.schema import (
    BadNode,
    Bundle,
    Device,
    Failure,
    Figure,
    Measurement,
    Model,
    NodeTime,
    OutputError,
    Percentiles,
    Placement,
    Plan,
    Pool,
    Power,
    Prediction,
    ProviderShare,
    Record,
    Request,
    Runtime,
    ScenarioResult,
    Skipped,
    TaskMetric,
    TensorSpec,
    Unsupported,
    Verdict,
    fingerprint,
)

MIB = 2**20
CREATED = "2026-11-30T12:00:00Z"


def cpu(**changes: Any) -> Device:
    device = Device(
        id="cpu",
        kind="cpu",
        vendor="amd",
        name="Example CPU 8-Core",
        compute_units=8,
        threads=16,
        caches={"l2_bytes": 8 * MIB, "l3_bytes": 16 * MIB},
        memory=(
            Pool(name="ram", total_bytes=32 * 1024 * MIB, free_bytes=20 * 1024 * MIB, source="/proc/meminfo"),
        ),
        machine="Linux 6.12.0",
    )
    return msgspec.structs.replace(device, **changes)


def gpu(**changes: Any) -> Device:
    device = Device(
        id="gpu0",
        kind="gpu",
        vendor="amd",
        name="Example Graphics",
        gfx="gfx1103",
        integrated=True,
        pci_id="1002:15bf",
        pci_address="0000:03:00.0",
        compute_units=12,
        wave_sizes=(32, 64),
        lds_bytes=64 * 1024,
        memory=(
            Pool(name="vram", total_bytes=512 * MIB, free_bytes=400 * MIB, source="mem_info_vram_total"),
            Pool(name="gtt", total_bytes=16 * 1024 * MIB, free_bytes=None, source="mem_info_gtt_total"),
        ),
        peaks={"fp32": Figure(value=8.3e12, unit="FLOP/s", source="clock x CUs x lanes")},
        driver="amdgpu 6.12.0",
        runtimes=(
            Runtime(name="hip", version="7.1.0", index=0),
            Runtime(name="vulkan", version="1.4", index=0),
        ),
        machine="Linux 6.12.0",
    )
    return msgspec.structs.replace(device, **changes)


def model(**changes: Any) -> Model:
    made = Model(
        name="resnet50",
        path="/home/me/resnet50.onnx",
        sha256="0f" * 32,
        opset=18,
        ir_version=10,
        producer="pytorch 2.13.0",
        inputs=(TensorSpec(name="input", dtype="float32", shape=("batch", 3, 224, 224)),),
        outputs=(TensorSpec(name="logits", dtype="float32", shape=("batch", 1000)),),
        nodes=122,
        nodes_by_type={
            "Conv": 53,
            "Relu": 49,
            "Add": 16,
            "MaxPool": 1,
            "GlobalAveragePool": 1,
            "Flatten": 1,
            "Gemm": 1,
        },
        parameters=25_557_032,
        weight_bytes=102_228_128,
        dynamic=("batch",),
        batch="batch",
        source="models:resnet50",
    )
    return msgspec.structs.replace(made, **changes)


def plan(route: str = "ort_cpu", device: str = "cpu", **changes: Any) -> Plan:
    batch = changes.get("batch", 1)
    made = Plan(route=route, device=device, shapes={"input": (batch, 3, 224, 224)})
    return msgspec.structs.replace(made, **changes)


def latencies(p50_s: float, count: int = 400, seed: int = 0) -> tuple[float, ...]:
    """A skewed distribution about a median: most queries near it, a tail to the right."""
    rng = random.Random(seed)
    return tuple(p50_s * (0.94 + rng.lognormvariate(-2.9, 0.9)) for _ in range(count))


def percentiles(values: Sequence[float]) -> Percentiles:
    ordered = sorted(values)

    def at(share: float) -> float:
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    return Percentiles(
        p50_s=at(0.5),
        p90_s=at(0.9),
        p95_s=at(0.95),
        p99_s=at(0.99),
        mean_s=sum(values) / len(values),
        min_s=ordered[0],
        max_s=ordered[-1],
    )


def scenario(name: str, p50_s: float, throughput: float, batch: int = 1, **changes: Any) -> ScenarioResult:
    values = latencies(p50_s, seed=int(p50_s * 1e7))
    made = ScenarioResult(
        name=name,  # type: ignore[arg-type]
        queries=len(values),
        samples=len(values) * batch,
        duration_s=sum(values),
        throughput_per_s=throughput,
        latency=percentiles(values),
        latencies_s=values,
        valid=True,
    )
    return msgspec.structs.replace(made, **changes)


def measurement(p50_s: float, batch: int = 1, **changes: Any) -> Measurement:
    made = Measurement(
        load_s=0.42,
        first_run_s=p50_s * 8,
        new_shape_s=p50_s * 3,
        steady_after_runs=4,
        scenarios=(
            scenario("SingleStream", p50_s, batch / p50_s * 0.95, batch),
            scenario("Offline", p50_s * 1.2, batch / p50_s * 1.07, batch),
        ),
        host_peak_bytes=412 * MIB,
    )
    return msgspec.structs.replace(made, **changes)


def power(watts: float, per_s: float, **changes: Any) -> Power:
    made = Power(
        meter="amdgpu hwmon power1_average",
        covers="package",
        watts=watts,
        joules=watts * 4,
        joules_per_inference=watts / per_s,
        samples=80,
    )
    return msgspec.structs.replace(made, **changes)


def verdict(error: float = 3e-7, **changes: Any) -> Verdict:
    made = Verdict(
        passed=True,
        reasons=(),
        outputs=(
            OutputError(
                output="logits",
                elements=32_000,
                rel_l2=error,
                rel_l2_float64=error * 1.1,
                reference_rel_l2_float64=2.5e-7,
                allowed_rel_l2=8e-6,
                cosine=1.0,
                max_abs=error * 30,
                argmax_agreement=1.0,
            ),
        ),
        factor=4.0,
        samples=32,
    )
    return msgspec.structs.replace(made, **changes)


def record(plan: Plan, device: Device, **changes: Any) -> Record:
    made = Record(
        key=fingerprint(plan, device.id, device.name, device.machine),
        created=CREATED,
        device=device,
        model=changes.pop("model", None) or model(),
        plan=plan,
        versions={"onnxruntime": "1.32.0", "wavefit": "0.1.0"},
    )
    return msgspec.structs.replace(made, **changes)


def measured(route: str, device: Device, p50_s: float, **changes: Any) -> Record:
    """A plan that passed."""
    batch = changes.pop("batch", 1)
    precision = changes.pop("precision", "fp32")
    made = plan(route, device.id, batch=batch, precision=precision, options=changes.pop("options", {}))
    defaults = {"verdict": verdict(), "measurement": measurement(p50_s, batch)}
    return record(made, device, **{**defaults, **changes})


def failed(route: str, device: Device, failure: Failure, **plan_changes: Any) -> Record:
    return record(plan(route, device.id, **plan_changes), device, failure=failure)


CPU_ONLY = Placement(
    providers=(ProviderShare(provider="CPUExecutionProvider", nodes=122, time_s=0.048),),
    cpu_nodes=(
        NodeTime(name="/layer4/conv1/Conv", op="Conv", provider="CPUExecutionProvider", time_s=0.0031),
    ),
    source="onnxruntime profile",
)
MIXED = Placement(
    providers=(
        ProviderShare(provider="MIGraphXExecutionProvider", nodes=3, time_s=0.0059),
        ProviderShare(provider="CPUExecutionProvider", nodes=2, time_s=0.0008),
    ),
    cpu_nodes=(
        NodeTime(name="/fc/Gemm", op="Gemm", provider="CPUExecutionProvider", time_s=0.0007),
        NodeTime(name="/Flatten", op="Flatten", provider="CPUExecutionProvider", time_s=None),
    ),
    source="onnxruntime profile",
)
MOVED = verdict(
    0.21,
    passed=False,
    reasons=("output 'logits' is 8.8e+05 times further from float64 than fp32 is; 4 times is allowed",),
    task=TaskMetric(name="top1", reference=0.978, candidate=0.611, samples=360, max_drop=0.01),
    first_bad_node=BadNode(name="/layer2/2/Add", op="Add", output="/layer2/2/Add_output_0", rel_l2=0.14),
)


def journal() -> list[Record]:
    """A laptop's records: several routes and batches, what failed, what moved, what was predicted."""
    predicted = Prediction(
        peak_bytes=300 * MIB, compute_s=0.004, memory_s=0.002, launch_s=0.0004, total_s=0.0064
    )
    top1 = TaskMetric(name="top1", reference=0.978, candidate=0.978, samples=360, max_drop=0.01)
    gpu_fast = measured(
        "ort_migraphx",
        gpu(),
        0.0071,
        precision="fp16",
        verdict=verdict(4e-4, factor=4096.0, task=top1, warnings=("output 'logits' has 2 rows alike",)),
        placement=MIXED,
        measurement=measurement(0.0071, device_peak_bytes=268 * MIB, power=(power(24.0, 150.0),)),
    )
    return [
        measured(
            "ort_cpu",
            cpu(),
            0.0512,
            placement=CPU_ONLY,
            verdict=verdict(2.4e-7, task=top1),
            measurement=measurement(0.0512, power=(power(38.0, 20.9, meter="rapl package-0"),)),
        ),
        measured("ort_cpu", cpu(), 0.188, batch=4, placement=CPU_ONLY),
        measured("ort_cpu", cpu(), 0.361, batch=8, placement=CPU_ONLY),
        msgspec.structs.replace(gpu_fast, plan=msgspec.structs.replace(gpu_fast.plan, predicted=predicted)),
        measured(
            "ort_migraphx",
            gpu(),
            0.0212,
            precision="fp16",
            batch=4,
            verdict=verdict(4e-4, factor=4096.0),
            placement=MIXED,
            measurement=measurement(0.0212, 4, device_peak_bytes=391 * MIB, power=(power(27.5, 202.0),)),
        ),
        measured(
            "torch_gpu", gpu(), 0.0132, options={"mode": "graph"}, measurement=measurement(0.0132, power=())
        ),
        measured("torch_gpu", gpu(), 0.0489, options={"mode": "graph"}, batch=4),
        measured("ort_webgpu", gpu(), 0.0294),
        record(plan("ort_migraphx", "gpu0", precision="int8"), gpu(), verdict=MOVED, placement=MIXED),
        failed(
            "torch_gpu",
            gpu(),
            Failure(
                kind="out of memory",
                stage="first run",
                reason="HIP out of memory: tried to allocate 98 MiB, 61 MiB free",
                fix="use a smaller batch, or raise the carve-out in the firmware's settings",
            ),
            batch=8,
            options={"mode": "graph"},
        ),
        failed(
            "torch_gpu",
            gpu(),
            Failure(
                kind="timeout",
                stage="open",
                reason="torch.compile had not finished after 600 s",
                fix="raise --deadline",
            ),
            options={"mode": "compile"},
        ),
    ]


REFUSALS = (
    Unsupported(
        route="ort_rocm",
        device="gpu0",
        reason="AMD ended ONNX Runtime's ROCm provider with ROCm 7.0, and ROCm 7.1 is installed",
        fix="use ort_migraphx: pip install 'wavefit[migraphx]'",
    ),
    Unsupported(
        route="ort_directml", reason="DirectML is Windows only", fix="use ort_migraphx or ort_webgpu on Linux"
    ),
)


def bundle(records: Sequence[Record], **changes: Any) -> Bundle:
    """What `optimize` writes after these records, with its own choice among them."""
    request = Request(precisions=("fp32", "fp16"), batches=(1, 4, 8))
    made = Bundle(
        name="resnet50",
        created=CREATED,
        wavefit="0.1.0",
        command="wavefit optimize resnet50.onnx --precision fp32,fp16 --batch 1,4,8",
        request=request,
        choice=choose(records, REFUSALS, request),
        refusals=REFUSALS,
        skipped=(Skipped(plan=plan(batch=16), reason="throughput had stopped rising at batch 8"),),
        devices=(cpu(), gpu()),
        files={"model.onnx": "0f" * 32, "records.jsonl": "ab" * 32},
    )
    return msgspec.structs.replace(made, **changes)
