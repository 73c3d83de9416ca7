"""Operators of ONNX Runtime's domain that its optimiser and the exporters of transformers write."""

from __future__ import annotations

from wavefit.native.graph import Value
from wavefit.native.onnx_ops._call import Call
from wavefit.native.onnx_ops._chain import Chain
from wavefit.native.onnx_ops.activations import gelu, gelu_tanh
from wavefit.native.onnx_ops.normalisation import layer_norm


def _like_first(call: Call) -> Value:
    """The output has the first input's type: onnx infers nothing in this domain."""
    first = call.input()
    value = Value(f"{call.name}:output", first.shape, first.dtype)
    call.outputs[0] = value
    return value


def _gelu(call: Call) -> None:
    to, given = _like_first(call), [value for value in call.inputs if value is not None]
    chain = Chain(given, literals=False)
    number = chain("add", 0, 1) if len(given) == 2 else 0  # BiasGelu, and FastGelu with its bias
    (gelu_tanh if "FastGelu" in call.op else gelu)(chain, number)
    chain.add_to(call, to)


def _quick_gelu(call: Call) -> None:
    to = _like_first(call)
    chain = Chain([call.input()], literals=False)
    chain("mul", 0, chain("sigmoid", chain("mul", 0, float(call.attribute("alpha", 1.702)))))
    chain.add_to(call, to)


def _skip_layer_norm(call: Call) -> str | None:
    """LayerNormalization of input + skip (+ bias); the sum is the fourth output."""
    first = call.input()
    summed = [value for value in (call.input(0), call.input(1), call.optional(4)) if value is not None]
    chain = Chain(summed, literals=False)
    number = chain("add", *chain.arguments[:2])
    if len(summed) == 3:
        chain("add", number, chain.arguments[2])
    total = chain.add_to(call, first.shape)
    call.attributes = {"epsilon": call.attribute("epsilon", 1e-12)}
    norm = (total, call.input(2), call.optional(3))
    layer_norm(call, norm, len(first.shape) - 1, _like_first(call))
    if len(call.outputs) > 3:
        call.outputs[3] = total
    return None


OPERATORS = {
    "com.microsoft.BiasGelu": _gelu,
    "com.microsoft.FastGelu": _gelu,
    "com.microsoft.Gelu": _gelu,
    "com.microsoft.QuickGelu": _quick_gelu,
    "com.microsoft.SkipLayerNormalization": _skip_layer_norm,
}
