"""A transformer encoder in one of whose blocks the attention scores pass 65504 before they are scaled by 1/sqrt(d).

That block's queries and keys come from the same large weights, so every token attends to itself: |q|^2 is about 1.5e5
and q.k of two tokens a fraction of that. Scaled, the scores fit half, and the softmax is as sharp in any precision.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from precision.cases.blocks import Case, Net, finished

BLOCKS, TOKENS, WIDTH, HEADS = 3, 12, 128, 2
OVERFLOWING = 1  # the block


def build(path: Path, items: int = 16) -> Case:
    """Writes the model x [N,12,128] -> logits [N,10], of 91 nodes."""
    net = Net(seed=1)
    x = "x"
    for number in range(BLOCKS):
        x = _block(net, x, f"b{number}", 48.0 if number == OVERFLOWING else 1.0)
    x = _norm(net, x, "last_norm")
    pooled = net.add("ReduceMean", [x], "pool", axes=[1], keepdims=0)
    net.write(path, [TOKENS, WIDTH], net.dense(pooled, "logits", WIDTH, 10, gain=4.0))
    data = np.random.default_rng(2).normal(size=(items, TOKENS, WIDTH)).astype(np.float32)
    return finished(path, data, [f"b{OVERFLOWING}_scores", f"b{OVERFLOWING}_scaled"])


def _block(net: Net, x: str, name: str, gain: float) -> str:
    x = net.add("Add", [x, _attention(net, _norm(net, x, f"{name}_norm1"), name, gain)], f"{name}_add1")
    hidden = net.dense(_norm(net, x, f"{name}_norm2"), f"{name}_up", WIDTH, 2 * WIDTH)
    down = net.dense(net.add("Relu", [hidden], f"{name}_relu"), f"{name}_down", 2 * WIDTH, WIDTH)
    return net.add("Add", [x, down], f"{name}_add2")


def _attention(net: Net, x: str, name: str, gain: float) -> str:
    head = WIDTH // HEADS
    query = net.dense(x, f"{name}_q", WIDTH, WIDTH, gain)
    if gain > 1:  # the same weights under another name
        same = net.weights[-2]
        key = net.add("MatMul", [x, _again(net, same.name, f"{name}_k_w")], f"{name}_k_matmul")
        key = net.add("Add", [key, net.normal(f"{name}_k_b", WIDTH, scale=0.1)], f"{name}_k")
    else:
        key = net.dense(x, f"{name}_k", WIDTH, WIDTH)
    value = net.dense(x, f"{name}_v", WIDTH, WIDTH)
    q = _heads(net, query, f"{name}_q_heads", [0, 2, 1, 3])
    k = _heads(net, key, f"{name}_k_heads", [0, 2, 3, 1])
    v = _heads(net, value, f"{name}_v_heads", [0, 2, 1, 3])
    scores = net.add("MatMul", [q, k], f"{name}_scores")
    scaled = net.add("Mul", [scores, net.constant(f"{name}_scale", head**-0.5)], f"{name}_scaled")
    weights = net.add("Softmax", [scaled], f"{name}_softmax", axis=-1)
    mixed = net.add(
        "Transpose", [net.add("MatMul", [weights, v], f"{name}_mixed")], f"{name}_back", perm=[0, 2, 1, 3]
    )
    shape = net.weight(f"{name}_flat_shape", np.array([0, 0, WIDTH]))
    return net.dense(net.add("Reshape", [mixed, shape], f"{name}_flat"), f"{name}_out", WIDTH, WIDTH)


def _heads(net: Net, x: str, name: str, order: list[int]) -> str:
    shape = net.weight(f"{name}_shape", np.array([0, 0, HEADS, WIDTH // HEADS]))
    return net.add("Transpose", [net.add("Reshape", [x, shape], f"{name}_split")], name, perm=order)


def _norm(net: Net, x: str, name: str) -> str:
    scale = net.weight(f"{name}_scale", np.ones(WIDTH))
    shift = net.weight(f"{name}_shift", np.zeros(WIDTH))
    return net.add("LayerNormalization", [x, scale, shift], name, axis=-1)


def _again(net: Net, source: str, name: str) -> str:
    from onnx import numpy_helper

    [found] = [each for each in net.weights if each.name == source]
    return net.weight(name, numpy_helper.to_array(found))
