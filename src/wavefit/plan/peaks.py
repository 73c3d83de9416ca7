"""What a device can do at best: peak arithmetic, memory bandwidth, link, launch; each with its source."""

from __future__ import annotations

from pathlib import Path

from wavefit.schema import Device, Figure, Link, Precision

MATRIX_OPS = frozenset(("Attention", "Conv", "ConvTranspose", "Einsum", "Gemm", "MatMul", "MatMulInteger",
                        "ConvInteger", "QLinearConv", "QLinearMatMul", "FusedConv", "FusedMatMul"))  # fmt: skip

ELEMENT_BYTES: dict[str, int] = {"fp32": 4, "fp16": 2, "bf16": 2, "int8": 1}

# PCI-SIG: 8b/10b up to 5 GT/s (PCIe 2), 128b/130b from 8 GT/s (PCIe 3), 242 of 256 bytes of a FLIT at 64 GT/s (PCIe 6).
_ENCODING = ((5.0, 8 / 10), (32.0, 128 / 130), (64.0, 242 / 256))

# FLOPs a core does in one cycle with fused multiply-adds on two ports (Agner Fog, "The microarchitecture of Intel, AMD
# and VIA CPUs": two 256-bit FMA units from Haswell and Zen 2 on; AVX-512 varies from one to two, one is assumed).
_SIMD = (("avx512f", 32, "AVX-512"), ("fma", 32, "AVX2 with FMA"), ("avx", 16, "AVX"), ("sse2", 8, "SSE2"))


def arithmetic(device: Device, precision: Precision, matrix: bool = True) -> Figure | None:
    """FLOP a second in a precision; with ``matrix``, of its matrix units where it has them. None where unknown."""
    half = {"bf16": ("bf16_matrix", "fp16_matrix", "bf16", "fp16")}
    if device.kind == "cpu" and "fp32" not in device.peaks:
        return cpu_peak(device) if precision == "fp32" else None
    names = half.get(precision, (f"{precision}_matrix", precision)) if matrix else (precision, "fp16", "fp32")
    found = (device.peaks[name] for name in names if name in device.peaks)
    return next(found, None)


def bandwidth(device: Device) -> Figure | None:
    """Bytes a second of the device's own memory."""
    return device.peaks.get("bandwidth")


def launch(device: Device) -> Figure | None:
    """Seconds that starting one kernel takes."""
    return device.peaks.get("launch_s")


def link_bandwidth(link: Link | None, best: bool = False) -> Figure | None:
    """Bytes a second of a PCIe link one way: speed x width x encoding / 8; None where speed or width is unknown.

    Args:
        best: as the link could run; else as it runs now.
    """
    if link is None:
        return None
    speed = link.max_speed_gts if best else link.speed_gts
    width = link.max_width if best else link.width
    if not speed or not width:
        return None
    share = next((share for limit, share in _ENCODING if speed <= limit), _ENCODING[-1][1])
    coded = {8 / 10: "8b/10b", 128 / 130: "128b/130b"}.get(share, "FLIT 242/256")
    return Figure(value=speed * 1e9 * width * share / 8, unit="B/s",
                  source=f"PCIe {speed:g} GT/s x{width}, {coded}")  # fmt: skip


def transfer_bandwidth(device: Device) -> Figure | None:
    """Host to device, bytes a second: measured where it was, else the link's own."""
    for name in ("h2d_pinned", "h2d"):
        if name in device.peaks:
            return device.peaks[name]
    return link_bandwidth(device.link) or link_bandwidth(device.link, best=True) or device.peaks.get("pcie")


def cpu_peak(device: Device, root: Path = Path("/")) -> Figure | None:
    """fp32 FLOP a second of a CPU: cores x clock x FLOPs a cycle; None where /proc/cpuinfo does not tell."""
    pairs = _cpuinfo(root)
    if device.kind != "cpu" or pairs.get("model name") != device.name:
        return None  # a recorded CPU, or another machine's
    cores, clock = device.compute_units, _number(pairs.get("cpu MHz"))
    flags = pairs.get("flags", "").split()
    simd = next(((flops, name) for flag, flops, name in _SIMD if flag in flags), None)
    if not cores or not clock or simd is None:
        return None
    flops, name = simd
    source = f"estimated: {cores} cores x {clock / 1e3:.2f} GHz x {flops} FLOP a cycle ({name})"
    return Figure(value=cores * clock * 1e6 * flops, unit="FLOP/s", source=source)


def _cpuinfo(root: Path) -> dict[str, str]:
    from wavefit.device.files import read_text

    first = (read_text(root / "proc/cpuinfo") or "").split("\n\n")[0]
    return {
        key.strip(): value.strip() for key, _, value in (line.partition(":") for line in first.splitlines())
    }


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None
