"""Operators that move data and calculate nothing."""

from __future__ import annotations

from wavefit.model.flops.operation import Operation, Rule


def _none(operation: Operation) -> int:
    return 0


VIEWS = frozenset(
    ("Constant", "Dropout", "Flatten", "Identity", "Reshape", "Size", "Shape", "Squeeze", "Unsqueeze")
)
"""These only rename data, or answer from the shape: no bytes move."""

PICKS = frozenset(("Gather", "GatherElements", "GatherND", "Slice"))
"""These read as much of their first input as they write."""

_MOVES = (
    "BitCast Cast CastLike CenterCropPad Compress Concat ConstantOfShape DepthToSpace Expand EyeLike OneHot Pad Range "
    "ReverseSequence ScatterElements ScatterND Scatter SpaceToDepth Split Tile TensorScatter Transpose Trilu"
)

RULES: dict[str, Rule] = dict.fromkeys((*VIEWS, *PICKS, *_MOVES.split()), _none)
