"""Every network of benchmarks/_networks.py, small, on an OpenCL device against ONNX Runtime in fp32."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
for name in ("pyopencl", "onnxruntime", "onnx_ir", "torch"):
    pytest.importorskip(name)
if not (ROOT / "benchmarks" / "_networks.py").exists():
    pytest.skip("the networks lie in benchmarks/, which this copy lacks", allow_module_level=True)
pytestmark = pytest.mark.torch


@dataclass(frozen=True)
class Left:
    """What is known to be loose: launches that only move, and elementwise ones that belong to no other."""

    copies: int = 0
    pointwise: int = 0


KNOWN = {
    "resnet18": Left(),
    "resnet50": Left(),
    "vgg16": Left(),
    "densenet": Left(0, 9),  # BatchNormalization and Relu before a convolution, of what others read too
    "inception_v3": Left(),
    "mobilenet_v2": Left(),
    "mobilenet_v3": Left(0, 4),  # the product with each block's channel weights
    "efficientnet": Left(0, 7),
    "yolo_v5": Left(3, 9),  # scores beside the boxes, per scale; decoding
    "yolo_v8": Left(3, 6),  # channels first for the boxes' distributions, per scale; decoding
    "unet": Left(1, 0),  # channels first for the caller
    "vit_b": Left(2, 1),  # the image channels-last, the class token; places
    "bert": Left(0, 1),  # the mask, once for all layers
}


@pytest.fixture(scope="module")
def bench() -> Iterator[ModuleType]:
    """benchmarks/native_networks.py, and what it imports."""
    folders = [str(ROOT / "benchmarks"), str(ROOT / "examples" / "resnet50")]
    before = set(sys.modules)
    sys.path[:0] = folders
    try:
        yield importlib.import_module("native_networks")
    finally:
        for folder in folders:
            sys.path.remove(folder)
        for module in set(sys.modules) - before:
            if str(getattr(sys.modules[module], "__file__", "")).startswith(tuple(folders)):
                del sys.modules[module]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("networks")


def test_all_are_there(bench: ModuleType) -> None:
    assert KNOWN.keys() == bench._networks.TORCH.keys()


@pytest.mark.parametrize("name", KNOWN)
def test_answers_are_onnx_runtimes(name: str, bench: ModuleType, folder: Path) -> None:
    path = bench._networks.file(name, folder, small=True)
    feeds = [bench._networks.feeds(path, 2, seed) for seed in (1, 2)]
    for storage in ("fp32", "fp16"):
        program = bench.compiled(path, feeds[0], storage, bench.device())
        assert not isinstance(program, tuple), program
        worst, varies = bench.errors(path, program, feeds)
        assert worst <= bench.BOUNDS[storage]
        assert varies > 0.05, "answers that are all the same prove nothing"
        assert program.arena_bytes <= 1.1 * program.bound_bytes


@pytest.mark.parametrize("name", KNOWN)
def test_nothing_is_loose_beyond_what_is_known(name: str, bench: ModuleType, folder: Path) -> None:
    """Planned for an AMD target: on a CPU, other choices may be cheaper."""
    path = bench._networks.file(name, folder, small=True)
    program = bench.compiled(path, bench._networks.feeds(path, 2, 1), "fp32", None)
    assert bench.loose(program, "Copy") <= KNOWN[name].copies
    assert bench.loose(program, "Pointwise") <= KNOWN[name].pointwise


@pytest.mark.parametrize("batch", [1, 3])
def test_another_batch_is_another_program(batch: int, bench: ModuleType, folder: Path) -> None:
    path = bench._networks.file("yolo_v8", folder, small=True)
    feeds = [bench._networks.feeds(path, batch, seed) for seed in (1, 2)]
    worst, _ = bench.errors(path, bench.compiled(path, feeds[0], "fp32", bench.device()), feeds)
    assert worst <= bench.BOUNDS["fp32"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "loose"),
    [
        ("squeezenet", Left(1)),
        ("shufflenet", Left(17, 3)),
        ("inception_v1", Left(1)),
        ("inception_v2", Left(1)),
    ],
)
def test_the_onnx_packages_graphs(name: str, loose: Left, bench: ModuleType, folder: Path) -> None:
    path = bench._networks.file(f"onnx_{name}", folder)
    feeds = [bench._networks.feeds(path, 1, seed) for seed in (1, 2)]
    program = bench.compiled(path, feeds[0], "fp32", bench.device())
    worst, varies = bench.errors(path, program, feeds)
    assert worst <= bench.BOUNDS["fp32"]
    assert varies > 0.01  # a softmax of scores that averaging has brought together
    assert bench.loose(program, "Copy") <= loose.copies
    assert bench.loose(program, "Pointwise") <= loose.pointwise
    assert program.arena_bytes <= 1.1 * program.bound_bytes
