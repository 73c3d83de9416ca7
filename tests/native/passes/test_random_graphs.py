"""All passes, on random small graphs of what networks are made of: no answer changes beyond rounding."""

from __future__ import annotations

import pytest
from native.passes.build import Builder, ops, same_after

from wavefit.native import passes
from wavefit.native.graph import Graph, Value


@pytest.mark.parametrize("seed", range(40))
def test_random_network_keeps_its_answers(seed):
    build, graph = random_graph(seed)
    nodes = len(graph.nodes)
    same_after(passes.run, graph, build.feeds())
    assert len(graph.nodes) <= nodes


def random_graph(seed: int, dtype: str = "float64") -> tuple[Builder, Graph]:
    """Eight layers on a picture of 4 channels, 6 by 6; some values between are outputs too."""
    build = Builder(seed, dtype)
    values = [build.input(2, 4, 6, 6)]
    for _ in range(8):
        values.append(_layer(build, values))
    return build, build.graph(values[-1], *(v for v in values[1:-1] if build.rng.random() < 0.2))


def _layer(build: Builder, values: list[Value]) -> Value:
    rng = build.rng
    x = values[-1]
    kind = rng.choice(
        ["block", "residual", "concat", "act", "slice", "attention", "gate", "norm", "pre", "pad"]
    )
    if kind == "block":
        kernel = int(rng.choice([1, 3]))
        return build.apply(
            "relu", build.batch_norm(build.conv(x, x.shape[1], kernel, bias=rng.random() < 0.5))
        )
    if kind == "residual":
        other = values[int(rng.integers(len(values)))]
        y = build.batch_norm(build.conv(x, x.shape[1], 3, group=int(rng.choice([1, x.shape[1]]))))
        return build.apply("add", y, other) if other.shape == y.shape else y
    if kind == "concat":
        y = build.apply("relu", build.conv(x, 2))
        z = build.node("Concat", [x, y], (2, x.shape[1] + 2, *x.shape[2:]), axis=1)
        return build.conv(z, 4)
    if kind == "act":
        return _activation(build, x)
    if kind == "slice":
        return build.node(
            "Slice", [x], (2, 2, *x.shape[2:]), starts=(0, x.shape[1] - 2, 0, 0), steps=(1, 1, 1, 1)
        )
    if kind == "attention":
        n, c, h, w = x.shape
        q = build.reshape(build.conv(x, c), n, c, h * w)
        k, v = (build.reshape(build.conv(x, c), n, c, h * w) for _ in range(2))
        q, v = build.transpose(q, 0, 2, 1), build.transpose(v, 0, 2, 1)
        scores = build.apply("mul", build.matmul(q, k), 0.3)
        y = build.matmul(build.softmax(scores, 2), v)
        return build.reshape(build.transpose(y, 0, 2, 1), n, c, h, w)
    if kind == "gate":
        pooled = build.reduce(x, "mean", 2, 3)
        return build.apply("mul", x, build.apply("sigmoid", build.conv(pooled, x.shape[1])))
    if kind == "norm":
        mean = build.reduce(x, "mean", 2, 3)
        d = build.apply("sub", x, mean)
        variance = build.apply("add", build.reduce(build.apply("mul", d, d), "mean", 2, 3), 0.1)
        return build.apply("div", d, build.apply("sqrt", variance))
    if kind == "pre":
        y = build.apply("relu", build.batch_norm(x)) if rng.random() < 0.5 else build.batch_norm(x)
        return build.conv(y, x.shape[1], int(rng.choice([1, 3])))
    n, c, h, w = x.shape
    padded = build.node(
        "Pad", [x], (n, c, h + 2, w + 2), pads=(0, 0, 1, 1, 0, 0, 1, 1), mode="constant", value=0.0
    )
    return build.conv(padded, c, 3, pad=0)


def _activation(build: Builder, x: Value) -> Value:
    kind = build.rng.choice(["silu", "gelu", "hardswish", "mish"])
    if kind == "silu":
        return build.apply("mul", x, build.apply("sigmoid", x))
    if kind == "mish":
        return build.apply("mul", x, build.apply("tanh", build.apply("softplus", x)))
    if kind == "hardswish":
        gate = build.apply("clip", build.apply("add", x, 3.0), 0.0, 6.0)
        return build.apply("div", build.apply("mul", x, gate), 6.0)
    erf = build.apply("add", build.apply("erf", build.apply("div", x, 2.0**0.5)), 1.0)
    return build.apply("mul", build.apply("mul", x, erf), 0.5)


@pytest.mark.parametrize("kind", ["silu", "gelu", "hardswish", "mish"])
def test_activation_after_a_convolution_is_its_epilogue(kind, monkeypatch):
    build = Builder()
    x = build.input(1, 3, 4, 4)
    y = build.conv(x, 5)
    monkeypatch.setattr(build, "rng", _Choosing(kind))
    graph = build.graph(_activation(build, y))
    same_after(passes.run, graph, {"in0": Builder(1).rng.standard_normal((1, 3, 4, 4))})
    assert ops(graph) == {"Conv": 1}


class _Choosing:
    def __init__(self, kind: str) -> None:
        self._kind = kind

    def choice(self, kinds: list[str]) -> str:
        assert self._kind in kinds
        return self._kind
