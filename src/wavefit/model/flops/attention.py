"""ONNX's Attention (opset 23 and later): two batched products around a softmax."""

from __future__ import annotations

from wavefit.model.flops.normalise import SOFTMAX
from wavefit.model.flops.operation import Operation, Rule, Shape, UnknownShape


def _attention(operation: Operation) -> int:
    """softmax(scale * Q K^T + mask) V, every query with every key, a causal mask notwithstanding."""
    batch, heads, queries, width = _split(operation, 0, "q_num_heads")
    _, _, keys, _ = _split(operation, 1, "kv_num_heads")
    value_width = _split(operation, 2, "kv_num_heads")[3]
    past = operation.shape(4)[2] if operation.has(4) else 0
    scores = batch * heads * queries * (keys + past)
    mask = 1 if operation.has(3) else 0
    return scores * (2 * width + 1 + mask + SOFTMAX + 2 * value_width)


def _split(operation: Operation, index: int, heads_attribute: str) -> Shape:
    """[batch, heads, length, width], from that or from [batch, length, heads * width]."""
    shape = operation.shape(index)
    if len(shape) == 4:
        return shape
    heads = operation.attributes.get(heads_attribute, 0)
    if len(shape) != 3 or not heads:
        raise UnknownShape
    return (shape[0], heads, shape[1], shape[2] // heads)


RULES: dict[str, Rule] = {"Attention": _attention}
