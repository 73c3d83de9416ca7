"""ONNX's Attention (version 23 on): heads apart, then the engine's."""

from __future__ import annotations

import math

import numpy as np

from wavefit.native.graph import Value
from wavefit.native.onnx_ops._call import Call
from wavefit.native.onnx_ops._chain import Chain, is_float


def _attention(call: Call) -> str | None:
    refused = _refusal(call)
    if refused:
        return refused
    flat = len(call.input().shape) == 3
    heads, kv_heads = int(call.attribute("q_num_heads", 0)), int(call.attribute("kv_num_heads", 0))
    counts = (heads, kv_heads, kv_heads)
    q, k, v = (
        _apart(call, call.input(index), counts[index]) if flat else call.input(index) for index in range(3)
    )
    k, v = (_repeated(call, value, q.shape[1]) for value in (k, v))
    mask = _mask(call, q, k)
    scale = float(call.attribute("scale") or 1 / math.sqrt(q.shape[-1]))
    shape = (*q.shape[:-1], v.shape[-1])
    if not flat:
        call.add("Attention", [q, k, v, mask], call.output(), scale=scale)
        return None
    made = call.add("Attention", [q, k, v, mask], shape, scale=scale)
    call.reshape(call.transpose(made, (0, 2, 1, 3)), call.output())
    return None


def _refusal(call: Call) -> str | None:
    if any(call.wanted(index) for index in range(1, len(call.outputs))):
        return "its present keys and values, or its products, are read"
    if call.given(4) or call.given(5) or call.given(6):
        return "past keys and values are not taken"
    if call.attribute("softcap", 0.0):
        return "softcap is not computed"
    if call.input().dtype not in ("float32", "float16"):
        return f"its inputs are {call.input().dtype}"
    windows = (call.attribute("left_window_size", -1), call.attribute("right_window_size", -1))
    return None if windows == (-1, -1) else "a window is not computed"


def _apart(call: Call, value: Value, heads: int) -> Value:
    """(N, L, heads * D) as (N, heads, L, D)."""
    batch, length, width = value.shape
    return call.transpose(call.reshape(value, (batch, length, heads, width // heads)), (0, 2, 1, 3))


def _repeated(call: Call, value: Value, heads: int) -> Value:
    """Each head of keys or values for the group of queries that shares it."""
    batch, have, length, width = value.shape
    if have == heads:
        return value
    apart = call.reshape(value, (batch, have, 1, length, width))
    spread = call.add("Expand", [apart], (batch, have, heads // have, length, width))
    return call.reshape(spread, (batch, heads, length, width))


def _mask(call: Call, q: Value, k: Value) -> Value | None:
    """What is added to the products: -infinity where a mask of bool, or the order of time, forbids."""
    mask = call.optional(3)
    length = k.shape[-2]
    lowest = call.value(np.array(-np.inf, q.dtype))
    if mask is not None and mask.shape[-1] < length:
        pad = (0,) * (2 * len(mask.shape) - 1) + (length - mask.shape[-1],)
        mask = _as_sum(call, mask, lowest)
        shape = (*mask.shape[:-1], length)
        mask = call.add("Pad", [mask], shape, pads=pad, mode="constant", value=-3.0e38)
    elif mask is not None:
        mask = _as_sum(call, mask, lowest)
    if not call.attribute("is_causal", 0):
        return mask
    allowed = np.tril(np.ones((q.shape[-2], length), bool))
    causal = call.value(np.where(allowed, 0, -np.inf).astype(q.dtype))
    if mask is None:
        return causal
    chain = Chain([mask, causal], literals=False)
    chain("add", 0, 1)
    return chain.add_to(call, tuple(np.broadcast_shapes(mask.shape, causal.shape)))


def _as_sum(call: Call, mask: Value, lowest: Value) -> Value:
    if is_float(mask.dtype):
        return mask
    zero = call.value(np.array(0, lowest.dtype))
    chain = Chain([zero, mask, lowest], literals=False)
    chain("where", 1, 0, 2)
    # the type of a new value is that of the first operand
    return chain.add_to(call, mask.shape)


OPERATORS = {"Attention": _attention}
