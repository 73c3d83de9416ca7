"""A dense layer that reads a flattened image has its weights turned to the order in which the image lies.

Images lie channels-last, and Flatten wants channels first: the rows of a constant weight are put in the image's order
once, here, in place of the image's own elements at each run. Flatten is a view then.
"""

from __future__ import annotations

import math

from wavefit.native.graph import Graph, Node, Value
from wavefit.native.passes._match import given

_IMAGE = ("Conv", "ConvTranspose", "MaxPool", "AveragePool", "Resize", "LRN", "InstanceNormalization")


def run(graph: Graph) -> int:
    """Reads channels-last images in their own order, where only products with constants read them.

    Returns:
        How many images.
    """
    return sum(_turn(graph, node) for node in list(graph.nodes) if node.op == "Reshape")


def _turn(graph: Graph, node: Node) -> int:
    image, flat = given(node.inputs[0]), node.output
    if not _flattened(image.shape, flat.shape) or not _lies_channels_last(graph, image):
        return 0
    users = graph.users(flat)
    if flat in graph.outputs or not users or not all(_weighs(user, flat) for user in users):
        return 0
    batch, channels, *space = image.shape
    turned = Value(f"{flat.name}/turned", (batch, *space, channels), image.dtype)
    perm = (0, *range(2, len(image.shape)), 1)
    graph.insert_before(node, Node("Transpose", turned.name, [image], [turned], {"perm": perm}))
    graph.rewire(node, [turned])
    for user in users:
        weight = given(user.inputs[1])
        assert weight.constant is not None
        rows = weight.constant.reshape(channels, math.prod(space), -1).swapaxes(0, 1).reshape(weight.shape)
        order = Value(f"{user.output.name}/turned", weight.shape, weight.dtype, rows)
        graph.rewire(user, [user.inputs[0], order, *user.inputs[2:]])
    return 1


def _flattened(image: tuple[int, ...], flat: tuple[int, ...]) -> bool:
    """Whether all but the batch is joined, and channels lie beside more than one place."""
    if len(image) < 3 or len(flat) != 2 or image[0] != flat[0]:
        return False
    return image[1] > 1 and math.prod(image[2:]) > 1 and flat[1] == math.prod(image[1:])


def _lies_channels_last(graph: Graph, image: Value) -> bool:
    maker = graph.producer(image)
    if maker is None:
        return False
    if maker.op == "Pointwise":
        operands = (value for value in maker.inputs if value is not None and value.shape == image.shape)
        return any(_lies_channels_last(graph, value) for value in operands)
    return maker.op in _IMAGE


def _weighs(user: Node, flat: Value) -> bool:
    """Whether it is a product of that value with a constant matrix, and reads it nowhere else."""
    weight = user.constant(1)
    return (
        user.op == "MatMul"
        and user.inputs[0] is flat
        and user.inputs.count(flat) == 1
        and weight is not None
        and weight.ndim == 2
    )
