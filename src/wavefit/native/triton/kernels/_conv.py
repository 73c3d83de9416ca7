"""The sizes of a convolution, one entry a spatial axis."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from wavefit.native.operation import Operation, View


@dataclass(frozen=True)
class Conv:
    """As the node has it; padding after shows in the output's size only."""

    x: View
    w: View
    y: View
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    begins: tuple[int, ...]
    dilations: tuple[int, ...]
    group: int
    zero_point: int = 0

    @property
    def ins(self) -> int:
        """Input channels of one group."""
        return self.x.shape[1] // self.group

    @property
    def outs(self) -> int:
        """Output channels of one group."""
        return self.y.shape[1] // self.group

    @property
    def taps(self) -> int:
        return prod(self.kernel)

    @property
    def pixels(self) -> int:
        """Output pixels of the whole batch."""
        return self.y.shape[0] * prod(self.y.shape[2:])

    @property
    def plain(self) -> bool:
        """Whether an output pixel reads the input pixel at its own place, and no other."""
        return (
            self.taps == 1
            and not any(self.begins)
            and all(step == 1 for step in self.strides)
            and self.x.shape[2:] == self.y.shape[2:]
        )

    @property
    def padded(self) -> tuple[bool, ...]:
        """Along which axes some tap reads outside the input."""
        spans = zip(
            self.x.shape[2:],
            self.y.shape[2:],
            self.kernel,
            self.strides,
            self.begins,
            self.dilations,
            strict=True,
        )
        return tuple(
            begin > 0 or (out - 1) * stride - begin + (taps - 1) * dilation >= size
            for size, out, taps, stride, begin, dilation in spans
        )


def conv(operation: Operation) -> Conv:
    x, w, y = operation.input(0), operation.input(1), operation.output
    rank = len(x.shape) - 2
    attributes = operation.attributes
    return Conv(
        x=x,
        w=w,
        y=y,
        kernel=w.shape[2:],
        strides=tuple(attributes.get("strides") or (1,) * rank),
        begins=tuple((attributes.get("pads") or (0,) * (2 * rank))[:rank]),
        dilations=tuple(attributes.get("dilations") or (1,) * rank),
        group=int(attributes.get("group", 1)),
        zero_point=int(attributes.get("zero_point", 0)),
    )
