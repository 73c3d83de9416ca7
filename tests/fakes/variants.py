"""Variants as a search might make them of ``fakes.records.model()``."""

from __future__ import annotations

from typing import Any

from fakes import records
from msgspec.structs import replace

from wavefit.schema import KeptNode, Scaled, Sensitivity, TaskMetric, Variant


def half(**changes: Any) -> Variant:
    made = Variant(
        key="k",
        name="fp16",
        precision="fp16",
        model=records.model(name="resnet50", precision="fp16", weight_bytes=51_000_000),
        target="any",
        nodes={"fp16": 118, "fp32": 4},
        kept=(
            KeptNode(
                node="/layer3/5/Add",
                op="Add",
                precision="fp32",
                reason="its output reaches 1.3e+05, and half ends at 65504",
                figures={"max_abs": 131_000.0, "limit": 65_504.0},
            ),
            KeptNode(node="/pool", op="ReduceMean", precision="fp32", reason="it sums past 65504"),
        ),
        scaled=(
            Scaled(nodes=("/a/MatMul", "/a/Mul", "/a/Softmax"), factor=0.125, reason="scores reach 2.4e+05"),
        ),
        error=8.4e-4,
        task=TaskMetric(name="top1", reference=0.976, candidate=0.976, samples=250, max_drop=0.01),
        evaluations=1,
        search_s=12.4,
        notes=("calibrated on 12 items, which is few",),
    )
    return replace(made, **changes)


def integer(count: int = 40, **changes: Any) -> Variant:
    """Node ``node7`` moves the answers by 7e-4; the last by no finite number, and the one before by 0."""
    errors = [None if place == count else 1e-4 * place for place in range(1, count + 1)]
    errors[-2] = 0.0
    moved = tuple(
        Sensitivity(node=f"node{place}", op="Conv", error=error) for place, error in enumerate(errors, 1)
    )
    kept = tuple(
        KeptNode(
            node=f"node{place}",
            op="Conv",
            precision="fp32",
            reason="with it in int8 the guard does not pass",
            figures={"error": 1e-4 * place},
        )
        for place in range(1, 15)
    )
    made = Variant(
        key="k",
        name="int8",
        precision="int8",
        model=records.model(name="resnet50", precision="int8", weight_bytes=25_600_000),
        target="onnxruntime cpu",
        nodes={"int8": count - 14, "fp32": 96},
        kept=kept,
        recipe={"calibration": "percentile 99.99", "bias correction": True, "SmoothQuant": False},
        sensitivity=moved,
        error=1.9e-2,
        task=TaskMetric(name="top1", reference=0.976, candidate=0.972, samples=250, max_drop=0.01),
        evaluations=72,
        search_s=108.0,
        notes=("calibrated on 12 items, which is few",),
    )
    return replace(made, **changes)
