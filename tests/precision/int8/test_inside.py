"""What runs in int8 without being a kernel: counted as such, and not taken apart by casts."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("onnx_ir")
pytest.importorskip("onnxruntime")

import numpy as np
from precision.quantised import int8

import wavefit
from wavefit.model.samples import Samples
from wavefit.precision import graph
from wavefit.precision.int8.inside import absorbed, inside_kernels
from wavefit.precision.int8.qdq import quantisable

DEMO = Path(wavefit.__file__).parent / "demo"


def test_every_node_of_a_plain_network_runs_in_int8() -> None:
    """Convolutions and Gemms are kernels, pool and flatten carry integers, each Relu lies in a range's lower end."""
    model = graph.load(DEMO / "digits.onnx")
    images = np.load(DEMO / "digits.npz")["image"][:32]
    lowered = int8(model, Samples({"image": images}, None, "digits"))
    kernels = set(quantisable(model))
    rest = inside_kernels(lowered, kernels) | absorbed(model, lowered)
    types = {name: node.op_type for name, node in graph.nodes(model).items()}
    assert {types[name] for name in kernels} == {"Conv", "Gemm"}
    assert kernels | rest == set(types)
