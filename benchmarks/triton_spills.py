"""Compiles every tile of the product and chain templates for AMD targets, and records those that spill.

PYTHONPATH=src python benchmarks/triton_spills.py [--targets gfx942,gfx1100] [--output FILE.json]
"""

from __future__ import annotations

import argparse
import json
import tempfile
from itertools import product
from pathlib import Path

from wavefit.native.operation import Kernel, Operation
from wavefit.native.pointwise import Apply, Pointwise
from wavefit.native.specimens import conv, image, rows
from wavefit.native.triton import audit, kernels
from wavefit.native.triton.kernels._tiles import _SHAPES

ADD_RELU = Pointwise(
    operands=2, steps=(Apply(function="add", arguments=(0, 1)), Apply(function="relu", arguments=(2,)))
)
RELU = Pointwise(operands=1, steps=(Apply(function="relu", arguments=(0,)),))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--targets", default=",".join(audit.TARGETS))
    parser.add_argument("--output", type=Path, default=Path("src/wavefit/native/triton/spills.json"))
    options = parser.parse_args()
    found: dict[str, list[list[int]]] = (
        json.loads(options.output.read_text()) if options.output.exists() else {}
    )
    folder = Path(tempfile.gettempdir()) / "wavefit-spills"
    for target in options.targets.split(","):
        for kind, jobs in (("product", products(target)), ("chain", chains())):
            rows_ = audit.audit(
                [(str(tile), kernel, target) for tile, kernel in jobs], lambda text: None, folder
            )
            bad = [tile for (tile, _), row in zip(jobs, rows_, strict=True) if not row.good]
            found[f"{target} {kind}"] = bad
            print(f"{target} {kind}: {len(bad)} of {len(jobs)} tiles are not offered", flush=True)
            options.output.write_text(json.dumps(found, indent=None, separators=(",", ":")) + "\n")


def products(target: str) -> list[tuple[list[int], Kernel]]:
    operation = conv(image(8, 256, 28, 28, dtype="float16"), 256, (3, 3), pad=1, residual=True)
    more = {"matrix_instr_nonkdim": 16, "waves_per_eu": 0} if target.startswith("gfx9") else {}
    made = []
    for (m, n, warps), k, stages in product(_SHAPES, (64, 128, 32), (2, 1)):
        config = {"m": m, "n": n, "k": k, "split": 1, "warps": warps, "stages": stages, **more}
        (launch,) = kernels.get("conv_gemm").build(operation, config).launches
        made.append(([m, n, k, warps, stages], launch.kernel))
    return made


def chains() -> list[tuple[list[int], Kernel]]:
    made = []
    for m, n, warps, stages in product((64, 128, 32, 16), (64, 128, 32), (4, 8), (2, 1)):
        if m < 64 and warps == 8:
            continue
        config = {"m": m, "k": 64, "n": n, "warps": warps, "stages": stages}
        (launch,) = kernels.get("chain").build(bottleneck(), config).launches
        made.append(([m, 64, n, warps, stages], launch.kernel))
    return made


def bottleneck() -> Operation:
    """3x3 of 64 channels, 1x1 to 256 with a residual, 1x1 back to 64: ResNet-50's first stage."""
    x, y = image(8, 64, 56, 56, dtype="float16"), image(8, 256, 56, 56, dtype="float16")
    weights = [image(64, 64, 3, 3, dtype="float16"), image(256, 64, 1, 1, dtype="float16")]
    weights.append(image(64, 256, 1, 1, dtype="float16"))
    biases = [rows(n, dtype="float16") for n in (64, 256, 64)]
    parts = [
        {"weights": 1, "bias": 2, "operands": [], "epilogue": RELU, "output": -1},
        {"weights": 3, "bias": 4, "operands": [5], "epilogue": ADD_RELU, "output": 0},
        {"weights": 6, "bias": 7, "operands": [], "epilogue": RELU, "output": 1},
    ]
    return Operation(
        op="Chain",
        inputs=(x, weights[0], biases[0], weights[1], biases[1], y, weights[2], biases[2]),
        outputs=(y, x),
        attributes={"strides": (1, 1), "pads": (1,) * 4, "dilations": (1, 1), "parts": parts},
        constant=(False, True, True, True, True, False, True, True),
        own=8,
    )


if __name__ == "__main__":
    main()
