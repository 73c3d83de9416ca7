"""Small graphs that are hard to type in half, each with inputs for it. The text is ONNX's own textual form."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser

GRAPHS: dict[str, tuple[int, str]] = {
    "shape subgraph": (
        17,
        """(float[N,4,6] x) => (float[N,M] y) <int64[1] zero = {0}, int64[1] rest = {-1}> {
            s = Shape(x)  n = Gather<axis = 0>(s, zero)  t = Concat<axis = 0>(n, rest)  r = Reshape(x, t)
            y = Relu(r) }""",
    ),
    "resize by scales": (
        13,
        """(float[1,2,4,4] x) => (float[1,2,8,8] y) <float[4] scales = {1.0, 1.0, 2.0, 2.0}, float[8] roi =
            {0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0}> {
            a = Sigmoid(x)  b = Resize<mode = "linear">(a, roi, scales)  y = Tanh(b) }""",
    ),
    "upsample by scales": (
        9,
        """(float[1,2,4,4] x) => (float[1,2,8,8] y) <float[4] scales = {1.0, 1.0, 2.0, 2.0}> {
            a = Sigmoid(x)  b = Upsample<mode = "nearest">(a, scales)  y = Tanh(b) }""",
    ),
    "range to cast": (
        17,
        """(float[N,8] x) => (float[N,8] y) <float zero = {0.0}, float one = {1.0}, float end = {8.0}> {
            r = Range(zero, end, one)  i = Cast<to = 7>(r)  f = Cast<to = 1>(i)  a = Add(x, f)  y = Mul(a, r) }""",
    ),
    "captured by a branch": (
        17,
        """(float[N,8] x) => (float[N,8] y) <float zero = {0.0}, float[8] w = {1.5,2.5,3.5,4.5,5.5,6.5,7.5,8.5}> {
            a = Mul(x, w)  m = ReduceMax<keepdims = 0>(a)  c = Greater(m, zero)
            b = If(c) <then_branch = g1 () => (float[N,8] p) { p = Mul(a, w) },
                       else_branch = g2 () => (float[N,8] q) { q = Neg(a) }>
            y = Add(b, a) }""",
    ),
    "loop": (
        17,
        """(float[2,3] x) => (float[2,3] y, float[T,2,3] all)
            <int64 trips = {3}, bool go = {1}, float[3] k = {1.0,2.0,3.0}> {
            a = Add(x, k)
            b, all = Loop(trips, go, a) <body = g1 (int64 i, bool c, float[2,3] s)
                => (bool d, float[2,3] t, float[2,3] u)
                { d = Identity(c)  t = Mul(s, a)  u = Add(t, k) }>
            y = Relu(b) }""",
    ),
    "constant of shape": (
        17,
        """(float[N,3] x) => (float[N,3] y) { s = Shape(x)  one = ConstantOfShape<value = float[1] {1.5}>(s)
            zero = ConstantOfShape(s)  a = Add(x, one)  y = Max(a, zero) }""",
    ),
    "where with constants": (
        17,
        """(float[N,3] x) => (float[N,3] y) <float low = {-60000.0}, float zero = {0.0}> {
            m = Greater(x, zero)  a = Where(m, x, low)  y = Softmax(a) }""",
    ),
    "clip": (
        17,
        """(float[N,3] x) => (float[N,3] y) <float a = {-0.5}, float b = {0.5}> { c = Clip(x, a, b)  d = Clip(x, , b)
            y = Sub(c, d) }""",
    ),
    "power of an integer": (
        17,
        "(float[N,3] x) => (float[N,3] y) <int64 two = {2}, float three = {3.0}> "
        "{ a = Pow(x, two)  b = Pow(a, three)  y = Sqrt(a) z = Identity(b) }",
    ),
    "cast in the middle": (
        17,
        "(float[N,3] x) => (float[N,3] y) { a = Mul(x, x)  b = Cast<to = 1>(a)  c = Cast<to = 11>(b)  d = Exp(c)"
        "  e = Cast<to = 1>(d)  f = CastLike(e, x)  y = Add(f, b) }",
    ),
    "output used inside": (
        17,
        "(float[N,3] x) => (float[N,3] a, float[N,3] y) { a = Exp(x)  b = Mul(a, a)  y = Add(b, a) }",
    ),
    "output twice": (17, "(float[N,3] x) => (float[N,3] a, float[N,3] b) { a = Exp(x)  b = Identity(a) }"),
    "input unused": (17, "(float[N,3] x, float[2] z) => (float[N,3] y) { y = Exp(x) }"),
    "shared constant": (
        17,
        """(float[8] x) => (float[8] y) <float[1] k = {1.1}, float four = {4.0}> {
            a = Mul(x, k)  s = Squeeze(k)  r = Range(s, four, s)  m = ReduceSum(r)  y = Add(a, m) }""",
    ),
    "constant given out": (
        17, "(float[N,3] x) => (float[N,3] y, float[3] w) <float[3] w = {1.1, 2.2, 3.3}> { y = Mul(x, w) }"
    ),
    "norms": (
        17,
        """(float[2,3,8] x) => (float[2,3,8] y, float[2,3,1] mean)
            <float[8] g = {1.0,1.1,1.2,1.3,1.4,1.5,1.6,1.7}, float[3] s = {0.5,1.0,2.0}, float[3] v = {0.5,1.0,2.0}> {
            a, mean, deviation = LayerNormalization<axis = -1>(x, g)
            b = InstanceNormalization(a, s, v)  c = BatchNormalization(b, s, v, s, v)  y = Softmax<axis = 1>(c) }""",
    ),
    "top": (
        17,
        "(float[2,8] x) => (float[2,3] y, int64[2,3] i) <int64[1] k = {3}> { a = Exp(x)  y, i = TopK(a, k) }",
    ),
    "quantised": (
        13,
        """(float[N,4] x) => (float[N,4] y) <float s = {0.02}, int8 z = {3}> { a = Tanh(x)
            q = QuantizeLinear(a, s, z)  d = DequantizeLinear(q, s, z)  y = Mul(d, d) }""",
    ),
    "quantised, opset 21": (
        21,
        """(float[N,4] x) => (float[N,4] y) <float s = {0.02}, int8 z = {3}> { a = Tanh(x)
            q = QuantizeLinear(a, s, z)  d = DequantizeLinear(q, s, z)  y = Mul(d, d) }""",
    ),
    "quantised, opset 23": (
        23,
        """(float[N,4] x) => (float[N,4] y) <float s = {0.02}, int8 z = {3}> { a = Tanh(x)
            q = QuantizeLinear(a, s, z)  d = DequantizeLinear(q, s, z)  y = Mul(d, d) }""",
    ),
    "sequence": (
        17,
        """(float[2,3] x) => (float[4,3] y) { a = Exp(x)  b = Neg(a)  s = SequenceConstruct(a, b)
            c = ConcatFromSequence<axis = 0>(s)  y = Abs(c) }""",
    ),
    "suppression": (
        17,
        """(float[1,4,4] boxes, float[1,1,4] scores) => (int64[K,3] y, float[1,1,4] s)
            <int64 n = {3}, float t = {0.5}> {
            b = Abs(boxes)  s = Sigmoid(scores)  y = NonMaxSuppression(b, s, n, t) }""",
    ),
    "eye, windows and one-hot": (
        17,
        """(float[4,4] x, int64[4] i) => (float[4,4] y) <int64 four = {4}, float[2] v = {0.0, 1.0}> {
            e = EyeLike(x)  w = HannWindow(four)  o = OneHot(i, four, v)  a = MatMul(x, e)
            b = Mul(a, w)  y = Add(b, o) }""",
    ),
    "all shared": (17, "(float[N,3] x) => (float[N,3] y) { a = Sum(x, x, x)  b = Max(a, x)  y = Concat<axis=0>(b) }"),
}  # fmt: skip


def graph(name: str) -> onnx.ModelProto:
    """The named graph as a checked model; every node is called by its first output."""
    opset, text = GRAPHS[name]
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]> g {text}')
    for node in model.graph.node:
        node.name = node.output[0]
    onnx.checker.check_model(model, full_check=True)
    return model


def inputs(model: onnx.ModelProto, seed: int = 0) -> dict[str, np.ndarray]:
    """Normal numbers for float inputs, 0 to 3 for integers; a symbolic size is 2."""
    random = np.random.default_rng(seed)
    weights = {tensor.name for tensor in model.graph.initializer}
    given = {}
    for value in model.graph.input:
        if value.name not in weights:
            kind = value.type.tensor_type
            shape = [dim.dim_value or 2 for dim in kind.shape.dim]
            if kind.elem_type == onnx.TensorProto.FLOAT:
                given[value.name] = random.normal(0, 1, shape).astype(np.float32)
            else:
                given[value.name] = random.integers(0, 4, shape)
    return given
