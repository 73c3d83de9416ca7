"""How long a batch takes with PyTorch, from an array of the caller's to another: the roofline and what it leaves out.

- A product's tiles fill the compute units only where there are enough of them; a small one runs on a few.
- Convolutions reach less of the peak than the large product that it was measured with.
- Op by op, Python and dispatch go on beside the GPU's work: the slower of both sets the pace.
- Copies: arrays into page-locked memory, over the link, and back.

The three constants were fitted to ten nets on an H200 (`python benchmarks/predicted.py --route torch_gpu`); all else is
measured on the device at hand (`wavefit devices --measure`).
"""

from __future__ import annotations

import math

from wavefit.plan.peaks import MATRIX_OPS
from wavefit.plan.roofline import NodeRoof, Roof
from wavefit.plan.trace import Step, Trace
from wavefit.schema import Device, Plan, Prediction

_TILE = 64  # a side, in elements of the output
_CONV_SHARE = 0.65  # of the peak
_KERNEL_NODES = 3.5  # a kernel with work in it, in nodes of a graph that add to one element
NEEDS = frozenset(
    ("dispatch_s", "dispatch_matmul_s", "dispatch_conv_s", "graph_node_s", "round_trip_s", "h2d_pinned",
     "d2h_pinned", "host_to_pinned", "pinned_to_host")
)  # fmt: skip


def torch_time(found: Trace, device: Device, plan: Plan, roof: Roof) -> Prediction | None:
    """Seconds of one batch; None where the host's side was not measured, or the roofline is unknown."""
    if device.kind != "gpu" or not device.peaks.keys() >= NEEDS or roof.total_s is None:
        return None
    peaks = {name: device.peaks[name].value for name in NEEDS}
    eager = plan.options.get("mode", "eager") == "eager"
    kernel_s = _KERNEL_NODES * peaks["graph_node_s"]
    kernels = sum(bool(node.launch_s) for node in roof.nodes)
    work_s = sum(_work(step, node, found, device) for step, node in zip(found.steps, roof.nodes, strict=True))
    host_s = sum(peaks[_dispatch(step)] for step in found.steps) if eager else 0.0
    there = found.input_bytes / min(
        peaks["host_to_pinned"], peaks["h2d_pinned"]
    )  # piece by piece, side by side
    back = found.output_bytes * (1 / peaks["d2h_pinned"] + 1 / peaks["pinned_to_host"])
    transfer_s = peaks["round_trip_s"] + there + back
    return Prediction(
        compute_s=roof.compute_s,
        memory_s=roof.memory_s,
        transfer_s=transfer_s,
        launch_s=max(host_s, kernels * kernel_s),
        total_s=max(work_s + kernels * kernel_s, host_s) + transfer_s,
    )


def _dispatch(step: Step) -> str:
    if step.op in MATRIX_OPS:
        return "dispatch_conv_s" if "Conv" in step.op else "dispatch_matmul_s"
    return "dispatch_s"


def _work(step: Step, node: NodeRoof, found: Trace, device: Device) -> float:
    """Seconds of a node's kernel, without its launch."""
    compute_s = node.compute_s or 0.0
    if step.op in MATRIX_OPS:
        compute_s *= _idle(step, found, device.compute_units)
        compute_s /= _CONV_SHARE if "Conv" in step.op else 1.0
    return max(compute_s, node.memory_s or 0.0)


def _idle(step: Step, found: Trace, units: int | None) -> float:
    """How many times longer a product takes because its tiles do not fill the compute units evenly; 1 or more."""
    shape = found.shapes.get(step.outputs[0], ())
    if not units or not shape or not math.prod(shape):
        return 1.0
    columns = shape[1] if "Conv" in step.op and len(shape) > 2 else shape[-1]
    batches = math.prod(shape[:-2]) if step.op == "MatMul" and not step.weights else 1
    rows = math.prod(shape) // columns // batches
    tall, wide = min(_TILE, rows), min(_TILE, columns)
    tiles = batches * math.ceil(rows / tall) * math.ceil(columns / wide)
    waves = math.ceil(tiles / units)
    return max(1.0, waves * units * tall * wide / math.prod(shape))
