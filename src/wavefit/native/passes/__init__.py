"""What is done to a graph before it is laid out: one pass a file, each a function of the graph, in the order of PASSES.

A pass changes no answer beyond rounding. It returns how often it changed something.
"""

from __future__ import annotations

from wavefit.native.graph import Graph
from wavefit.native.passes import (
    affine,
    attention,
    common,
    elementwise,
    epilogue,
    flatten,
    integers,
    join_slices,
    layer_norm,
    nest_concats,
    pads,
    prune,
    scalars,
    softmax,
    views,
)

PASSES = (
    prune,  # what no output needs
    integers,  # products of what was dequantised
    scalars,  # constants of one number into the expressions that read them
    views,  # Reshape, Transpose, Slice and Expand merged, done to constants, taken out
    common,  # what is computed twice
    softmax,  # from its exponentials and their sum
    layer_norm,  # from its means
    attention,  # from its products and softmax
    pads,  # into convolutions and pools
    affine,  # BatchNormalization and the like into weights
    elementwise,  # chains and small graphs of elementwise functions into one
    epilogue,  # bias, residual addition and activation into the node before them
    scalars,  # what the passes above made literals of
    common,
    flatten,  # dense layers read images as they lie
    join_slices,  # what was split and is joined again
    nest_concats,  # each part of joined features made in its place once
    prune,
)


def run(graph: Graph) -> None:
    """Does all of them, in place."""
    for each in PASSES:
        each.run(graph)
