"""What a profile of the engine is, whichever language its kernels are in."""

from __future__ import annotations

from collections.abc import Sequence

from wavefit.native.opencl.timeline import Span
from wavefit.native.operation import Limits
from wavefit.schema import Device, Model, Struct


class Profiling(Struct, frozen=True, kw_only=True):
    """What a child is told.

    Args:
        shapes: of every input, a whole batch.
        sizes: of symbolic dimensions other than the batch.
        half: keep tensors in 16 bits.
        batches: of the stream.
    """

    model: Model
    device: Device
    batch: int
    shapes: dict[str, tuple[int, ...]]
    sizes: dict[str, int]
    half: bool = False
    batches: int = 8


class Launched(Struct, frozen=True, kw_only=True):
    """One launch.

    Args:
        node: of the model.
        kernel: the function.
        seconds: on the device, the median of some passes.
        flops, bytes: of the whole node, on its first launch.
        floor_s: the least that those could take at the device's peaks; None where a peak is unknown.
    """

    node: str
    op: str
    kernel: str
    seconds: float
    flops: int
    bytes: int
    floor_s: float | None = None


class Profile(Struct, frozen=True, kw_only=True):
    """What was measured.

    Args:
        launches: in the order in which they run.
        batch_s: host to host, for a batch of a stream of them; the first one is not counted.
        spans: of the stream.
        overlap_s: of it, while kernels ran, in which data moved too.
        graph_s: one inference as one launch of a graph, on the device; None where there are no graphs.
    """

    device: str
    launches: tuple[Launched, ...]
    batch_s: float | None
    spans: tuple[Span, ...] = ()
    overlap_s: float = 0.0
    graph_s: float | None = None

    @property
    def seconds(self) -> float:
        """Of all launches."""
        return sum(each.seconds for each in self.launches)


def floor_s(flops: int, moved: int, limits: Limits, dtype: str | None = None) -> float | None:
    """The roofline: work over the peak, or bytes over the bandwidth, whichever takes longer.

    Args:
        dtype: of the factors, where matrix units multiply them; else the peak is that of fp32.

    Williams, Waterman, Patterson: "Roofline", Communications of the ACM 52 (2009).
    """
    peak = limits.flops if dtype is None else limits.matrix.get(dtype, limits.flops)
    if peak is None or limits.bandwidth is None or not (flops or moved):
        return None
    return max(flops / peak, moved / limits.bandwidth)


def total_floor_s(launches: Sequence[Launched]) -> float | None:
    """Of all; None where none is known."""
    found = [each.floor_s for each in launches if each.floor_s is not None]
    return sum(found) if found else None
