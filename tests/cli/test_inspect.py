"""`wavefit inspect` as it is typed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from fakes import models
from onnx import helper

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"


def wavefit(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from wavefit.cli import main; main()", "inspect", *map(str, words)]
    environment = {**os.environ, "COLUMNS": "80", "PYTHONIOENCODING": "utf-8"}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, encoding="utf-8", timeout=120, env=environment
    )


def facts(output: str) -> dict[str, str]:
    """The lines of two or more columns, by the first."""
    lines = (line.split("  ", 1) for line in output.splitlines() if "  " in line)
    return {name.strip(): " ".join(rest.split()) for name, rest in lines}


def test_a_model_fits_on_eighty_columns(tmp_path: Path) -> None:
    done = wavefit(models.save_external(models.conv_net(), tmp_path / "net.onnx"), "--batch", 4)
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    said = facts(done.stdout)
    assert said["model"] == "net"
    assert said["made by"] == "wavefit-tests"
    assert said["opset"] == "17 (IR version 8)"
    assert said["dynamic"] == said["batch"] == "N"
    assert said["parameters"] == "314, 1.23 KiB stored"
    assert said["input"] == "image float32 Nx3x8x8 costed at 4x3x8x8"
    assert said["output"] == "logits float32 Nx10"
    assert said["weights in"] == "weights.data"
    assert said["5 nodes"] == "Conv 1, Relu 1, GlobalAveragePool 1, Flatten 1, Gemm 1"
    convolution = 4 * (2 * 8 * 64 * 27 + 8 * 64)  # 3 x 3 x 3 products and the bias
    assert said["conv"].startswith(f"Conv {convolution / 1e3:.2f} k")


def test_resnet50_says_its_published_figure() -> None:
    done = wavefit(LIGHT / "light_resnet50.onnx")
    assert done.returncode == 0, done.stderr
    said = facts(done.stdout)
    assert said["FLOPs"] == "8.22 G (4.11 G MAC)"
    assert said["dynamic"] == "none: every dimension is fixed"
    assert sum("  Conv  " in line for line in done.stdout.splitlines()) == 8  # the costliest, no more


def test_every_node_can_be_shown() -> None:
    done = wavefit(LIGHT / "light_squeezenet.onnx", "--nodes")
    assert sum("  Conv  " in line for line in done.stdout.splitlines()) == 26


def test_json_is_one_object(tmp_path: Path) -> None:
    path = models.save(models.mlp(), tmp_path / "m.onnx")
    done = wavefit(path, "--json", "--batch", 3)
    record = json.loads(done.stdout)
    assert record["model"]["path"] == str(path)
    assert record["model"]["inputs"][0]["shape"] == ["N", 16]
    assert record["cost"]["shapes"] == {"x": [3, 16]}
    assert record["cost"]["flops"] == 3 * (2 * 16 * 32 + 32 + 32 + 2 * 32 * 4 + 4)
    assert sum(node["flops"] for node in record["cost"]["nodes"]) == record["cost"]["flops"]


def sequence(path: Path) -> Path:
    node = helper.make_node("Relu", ["x"], ["y"], "relu")
    proto = models.model([node], [models.value("x", ["N", "seq"])], [models.value("y", ["N", "seq"])])
    return models.save(proto, path)


def test_a_missing_size_is_asked_for_and_the_rest_is_shown(tmp_path: Path) -> None:
    path = sequence(tmp_path / "m.onnx")
    done = wavefit(path)
    assert done.returncode == 0, done.stderr
    said = facts(done.stdout)
    assert said["FLOPs"] == "unknown without sizes, give them: --size seq=N"
    assert said["dynamic"] == "N, seq"
    assert json.loads(wavefit(path, "--json").stdout)["cost"] is None
    assert facts(wavefit(path, "--size", "seq=8", "--batch", 2).stdout)["FLOPs"] == "16 (8 MAC)"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["none.onnx"], "none.onnx does not exist"),
        (["net.onnx", "--batch", "0"], "the batch is 0"),
        (["net.onnx", "--size", "K=3"], "no such symbolic dimension"),
        (["net.onnx", "--size", "K"], "is not NAME=N"),
        (["fixed.onnx", "--batch", "3"], "fixed batch of 2, not 3"),
    ],
)
def test_bad_input_is_one_line_and_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], says: str
) -> None:
    models.save(models.conv_net(), tmp_path / "net.onnx")
    models.save(models.conv_net(batch=2), tmp_path / "fixed.onnx")
    monkeypatch.chdir(tmp_path)
    done = wavefit(*words)
    assert done.returncode == 2
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fixed.onnx", "net.onnx"]
