"""Which integers a provider and a device compute with, and run fast."""

from __future__ import annotations

from dataclasses import dataclass, replace

from wavefit.device import catalogue
from wavefit.precision.int8.qdq_operators import OPERATORS
from wavefit.schema import Device, Unsupported

LIMITS = {
    "uint8": (0, 255),
    "int8": (-128, 127),
    "uint16": (0, 65535),
    "int16": (-32768, 32767),
}
"""Least and greatest number of a stored type."""


@dataclass(frozen=True)
class Target:
    """How a model in int8 is stored for one route on one device.

    Args:
        name: "onnxruntime cpu".
        activation: numpy's name of the activations' type: "uint8".
        symmetric: the zero point of activations is 0.
        weight: numpy's name of the weights' type; their zero point is always 0.
        weight_bits: 8, or 7 where products of 8 bits would saturate in the sums of pairs.
        per_channel: weights have a scale for each output channel.
        dot: the device has instructions for dot products of int8; None where that is not known.
        operators: that have an int8 kernel there.
        source: where these facts are from.
    """

    name: str
    activation: str
    symmetric: bool
    weight: str
    weight_bits: int
    per_channel: bool
    dot: bool | None
    operators: frozenset[str]
    source: str

    @property
    def weight_limit(self) -> int:
        """Greatest magnitude of a stored weight: 127, or 64 in 7 bits (255 * 64 * 2 still fits 16 bits)."""
        return 127 if self.weight_bits == 8 else 64


def target(device: Device, route: str) -> Target | Unsupported:
    """How a model in int8 is best stored for a route on a device; a refusal with the reason where int8 has no kernels.

    Args:
        route: its name: "ort_cpu".
    """
    if route == "ort_cpu":
        return _cpu(device)
    if route == "ort_migraphx":
        return replace(_MIGRAPHX, dot=_gpu_dot(device))
    if route == "ort_directml":
        return replace(_DIRECTML, dot=_gpu_dot(device))
    if route in ("native_opencl", "native_hip"):
        return replace(_NATIVE, dot=_gpu_dot(device) if device.kind == "gpu" else False)
    reason, fix = _NONE.get(route, (f"no int8 kernels of route {route!r} are known", _INSTEAD))
    return Unsupported(route=route, device=device.id, reason=reason, fix=fix, precision="int8")


_ONNXRUNTIME = (
    "ONNX Runtime documentation, performance/model-optimizations/quantization: 'Data type selection' and "
    "'When to use reduce-range and per-channel quantization?'"
)

CPU = Target(
    name="onnxruntime cpu",
    activation="uint8",
    symmetric=False,
    weight="int8",
    weight_bits=8,
    per_channel=True,
    dot=True,
    operators=OPERATORS - {"ConvTranspose"},  # which stayed float in 1.32, tried on 2026-11-30
    source=_ONNXRUNTIME,
)
"""A CPU with dot instructions for int8."""

_MIGRAPHX = Target(
    name="migraphx",
    activation="int8",
    symmetric=True,  # it takes other zero points too, at the price of a second product for each
    weight="int8",
    weight_bits=8,
    per_channel=True,  # a convolution's axis 0, a product's last
    dot=None,
    operators=frozenset({"Conv", "Gemm", "MatMul"}),
    source="ROCm/AMDMIGraphX, src/simplify_qdq.cpp: convolution and dot, int8 for both (uint8 not, issue 2704)",
)

_DIRECTML = Target(
    name="directml",
    activation="uint8",
    symmetric=False,
    weight="int8",
    weight_bits=8,
    per_channel=True,
    dot=None,
    operators=frozenset({"Add", "AveragePool", "Concat", "Conv", "GlobalAveragePool", "MatMul", "Sigmoid"}),
    source="microsoft/onnxruntime, docs/OperatorKernels.md, operators of DmlExecutionProvider: no QGemm, no QLinearMul",
)

_NATIVE = Target(
    name="native opencl",
    activation="uint8",  # after ReLU the zero point is 0 and all layers are alike: alike kernels are compiled once
    symmetric=False,
    weight="int8",
    weight_bits=8,
    per_channel=True,
    dot=None,
    operators=frozenset({"Add", "Concat", "Conv", "Gemm", "MatMul"}),
    source="wavefit.native.passes.integers, and conv_dot.py and matmul_dot.py among the engine's kernels",
)
"""Sums of a zero point are put right beforehand, so that uint8 costs one exclusive-or for four elements."""

_INSTEAD = "use fp16 there"
_NONE = {
    # as the CUDA provider that it is made from: microsoft/onnxruntime, docs/OperatorKernels.md has no QLinearConv there
    "ort_rocm": ("ONNX Runtime's ROCm provider has no int8 kernels for convolutions and products", _INSTEAD),
    # microsoft/onnxruntime, onnxruntime/core/providers/webgpu/quantization: QuantizeLinear and DequantizeLinear alone
    "ort_webgpu": (
        "ONNX Runtime's WebGPU provider has no int8 kernels for convolutions and products",
        _INSTEAD,
    ),
}


def _cpu(device: Device) -> Target:
    """On x86 without VNNI 7 bits, as pairs of products saturate in 16 bits; elsewhere 8. 7 where nothing is known."""
    if not device.features:
        return replace(CPU, name=f"{CPU.name}, 7-bit weights", dot=None, weight_bits=7)
    dot = not _DOT.isdisjoint(device.features)
    saturates = not dot and not _ARM.issubset(device.features)
    if saturates:
        return replace(CPU, name=f"{CPU.name}, 7-bit weights", dot=False, weight_bits=7)
    return replace(CPU, dot=dot)


_DOT = frozenset({"avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm"})
"""/proc/cpuinfo's names of instruction sets that sum products of 8-bit integers in 32 bits."""
_ARM = frozenset({"asimd"})


def _gpu_dot(device: Device) -> bool | None:
    """Whether the GPU has dot or matrix instructions for int8; None where the catalogue does not know it."""
    facts = catalogue.target(device.gfx) if device.gfx else None
    if facts is None:
        return None
    return "int8_matrix" in facts.flops or any(name.startswith("v_dot4_i32_") for name in facts.dot)
