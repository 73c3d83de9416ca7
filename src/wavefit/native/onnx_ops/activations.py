"""Activations, each as steps of one expression with its parameters as literals."""

from __future__ import annotations

import math
from collections.abc import Callable

from wavefit.native.onnx_ops._call import Call
from wavefit.native.onnx_ops._chain import Chain

# defaults of Selu, as ONNX states them
_SELU_ALPHA = 1.67326319217681884765625
_SELU_GAMMA = 1.05070102214813232421875


def _relu(call: Call, step: Chain) -> None:
    step("relu", 0)


def _leaky_relu(call: Call, step: Chain) -> None:
    step("leaky_relu", 0, float(call.attribute("alpha", 0.01)))


def _elu(call: Call, step: Chain) -> None:
    step("elu", 0, float(call.attribute("alpha", 1.0)))


def _celu(call: Call, step: Chain) -> None:
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1))."""
    alpha = float(call.attribute("alpha", 1.0))
    scaled = step("mul", 0, 1 / alpha)
    step("mul", step("elu", scaled, 1.0), alpha)


def _selu(call: Call, step: Chain) -> None:
    alpha, gamma = call.attribute("alpha", _SELU_ALPHA), call.attribute("gamma", _SELU_GAMMA)
    step("mul", step("elu", 0, float(alpha)), float(gamma))


def _sigmoid(call: Call, step: Chain) -> None:
    step("sigmoid", 0)


def _tanh(call: Call, step: Chain) -> None:
    step("tanh", 0)


def _softplus(call: Call, step: Chain) -> None:
    step("softplus", 0)


def _softsign(call: Call, step: Chain) -> None:
    step("div", 0, step("add", step("fabs", 0), 1.0))


def _hard_sigmoid(call: Call, step: Chain) -> None:
    slope, offset = call.attribute("alpha", 0.2), call.attribute("beta", 0.5)
    step("clip", step("fma", 0, float(slope), float(offset)), 0.0, 1.0)


def _hard_swish(call: Call, step: Chain) -> None:
    step("mul", 0, step("clip", step("fma", 0, 1 / 6, 0.5), 0.0, 1.0))


def _swish(call: Call, step: Chain) -> None:
    alpha = float(call.attribute("alpha", 1.0))
    step("mul", 0, step("sigmoid", 0 if alpha == 1 else step("mul", 0, alpha)))


def _mish(call: Call, step: Chain) -> None:
    step("mul", 0, step("tanh", step("softplus", 0)))


def _gelu(call: Call, step: Chain) -> None:
    """0.5 x (1 + erf(x / sqrt 2)), or with the tanh that approximates it."""
    if call.attribute("approximate", "none") == "tanh":
        gelu_tanh(step, 0)
    else:
        gelu(step, 0)


def gelu(step: Chain, number: int) -> int:
    error = step("erf", step("mul", number, math.sqrt(0.5)))
    return step("mul", step("mul", number, 0.5), step("add", error, 1.0))


def gelu_tanh(step: Chain, number: int) -> int:
    """0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))."""
    cubic = step("mul", step("mul", number, number), number)
    inner = step("mul", step("fma", cubic, 0.044715, number), math.sqrt(2 / math.pi))
    return step("mul", step("mul", number, 0.5), step("add", step("tanh", inner), 1.0))


def _thresholded_relu(call: Call, step: Chain) -> None:
    above = step("greater", 0, float(call.attribute("alpha", 1.0)))
    step("where", above, 0, 0.0)


def _shrink(call: Call, step: Chain) -> None:
    """x + bias below -lambd, x - bias above lambd, else 0."""
    bias, limit = float(call.attribute("bias", 0.0)), float(call.attribute("lambd", 0.5))
    rest = step("where", step("greater", 0, limit), step("sub", 0, bias), 0.0)
    step("where", step("less", 0, -limit), step("add", 0, bias), rest)


def _activation(build: Callable[[Call, Chain], None]) -> Callable[[Call], None]:
    def handle(call: Call) -> None:
        chain = Chain([call.input()], literals=False)
        build(call, chain)
        chain.add_to(call, call.output())

    return handle


def _prelu(call: Call) -> None:
    chain = Chain([call.input(0), call.input(1)])
    chain("leaky_relu", *chain.arguments)
    chain.add_to(call, call.output())


_BUILDERS = {
    "Celu": _celu,
    "Elu": _elu,
    "Gelu": _gelu,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_swish,
    "LeakyRelu": _leaky_relu,
    "Mish": _mish,
    "Relu": _relu,
    "Selu": _selu,
    "Shrink": _shrink,
    "Sigmoid": _sigmoid,
    "Softplus": _softplus,
    "Softsign": _softsign,
    "Swish": _swish,
    "Tanh": _tanh,
    "ThresholdedRelu": _thresholded_relu,
}
OPERATORS = {**{op: _activation(build) for op, build in _BUILDERS.items()}, "PRelu": _prelu}
