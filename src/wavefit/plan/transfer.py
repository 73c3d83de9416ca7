"""What has to cross the link between host and device, and the classic bound on the batch that is drawn from it."""

from __future__ import annotations

import math

from wavefit.plan.peaks import ELEMENT_BYTES, transfer_bandwidth
from wavefit.plan.trace import Trace
from wavefit.schema import Device, Figure, Precision, Struct

UTILISATION = (
    0.8  # of a link's raw rate that large copies reach: an assumption, packets' headers take the rest
)


class Transfer(Struct, frozen=True, kw_only=True):
    """One query's copies over the link. All None where host and device share their memory, or the link is unknown."""

    bytes_in: int
    bytes_out: int
    unified: bool | None  # host and device share one memory: nothing is copied
    bandwidth: Figure | None = None  # one way
    utilisation: float | None = None  # of it that is expected; 1 where it was measured
    seconds: float | None = None
    classic_max_batch: int | None = None


def transfer(trace: Trace, device: Device, parameters: int, precision: Precision) -> Transfer:
    """Bytes of the model's inputs and outputs, and the time that they take; weights are on the card already."""
    unified = True if device.kind == "cpu" else device.integrated
    figure = None if unified else transfer_bandwidth(device)
    share = None if figure is None else 1.0 if figure.source.startswith("measured") else UTILISATION
    moved = trace.input_bytes + trace.output_bytes
    seconds = 0.0 if unified else None
    if figure is not None and share is not None:
        seconds = moved / (figure.value * share)
    return Transfer(
        bytes_in=trace.input_bytes,
        bytes_out=trace.output_bytes,
        unified=unified,
        bandwidth=figure,
        utilisation=share,
        seconds=seconds,
        classic_max_batch=classic_max_batch(figure, parameters, precision, share or UTILISATION),
    )


def classic_max_batch(
    link: Figure | None, parameters: int, precision: Precision, utilisation: float = UTILISATION
) -> int | None:
    """max_batch = (PCIe bandwidth x utilisation) / (parameters x bytes per element), rounded down.

    The rule of thumb of tutorials on MI250X. In units it is (B/s) / B = 1/s: how often a second the weights could
    cross the link. It is a batch only for a second, and only if the weights crossed with every item. They stay on the
    card; what crosses are inputs and outputs. It leaves out activations, compute and the card's own memory.
    None where the link is unknown (or there is none), or the model has no parameters.
    """
    if link is None or parameters <= 0:
        return None
    return math.floor(link.value * utilisation / (parameters * ELEMENT_BYTES[precision]))
