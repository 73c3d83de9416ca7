from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from fakes import models

pytestmark = pytest.mark.torch

NET = """
import os, time, torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv = torch.nn.Conv2d(3, 4, 3)

    def forward(self, x):
        return self.conv(x).relu().flatten(1)

def net():
    return Net()

def dies():
    os.abort()
"""


def wavefit(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "wavefit", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_a_module_in_the_current_folder_is_exported_and_its_proof_is_shown(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    (tmp_path / "mine.py").write_text(NET)
    done = wavefit(tmp_path, "export", "mine:net", "--input", "x:1x3x8x8", "-o", "net.onnx", "--json")
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert [proof["batch"] for proof in made["proofs"]] == [1, 2, 3, 5]
    image = np.random.default_rng(0).normal(size=(4, 3, 8, 8)).astype(np.float32)
    torch.manual_seed(0)
    convolution = torch.nn.Conv2d(3, 4, 3)
    expected = convolution(torch.from_numpy(image)).relu().flatten(1).detach().numpy()
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx")
    actual = session.run(None, {session.get_inputs()[0].name: image})[0]
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


def test_a_module_that_ends_the_process_is_one_sentence(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "mine.py").write_text(NET)
    done = wavefit(tmp_path, "export", "mine:dies", "--input", "x:1x3x8x8", "-o", "net.onnx")
    assert done.returncode == 1
    assert "wavefit: exporting mine:dies: crash" in done.stderr
    assert "SIGABRT" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix == ".onnx") == []


def test_a_frozen_batch_is_reopened(tmp_path: Path) -> None:
    models.save(models.conv_net(batch=1), tmp_path / "frozen.onnx")
    done = wavefit(tmp_path, "export", "frozen.onnx", "--dynamic-batch", "-o", "open.onnx")
    assert done.returncode == 0, done.stderr
    image = np.random.default_rng(0).normal(size=(3, 3, 8, 8)).astype(np.float32)
    alone = onnxruntime.InferenceSession(tmp_path / "frozen.onnx")
    expected = np.concatenate([alone.run(None, {"image": image[i : i + 1]})[0] for i in range(3)])
    together = onnxruntime.InferenceSession(tmp_path / "open.onnx").run(None, {"image": image})[0]
    np.testing.assert_allclose(together, expected, rtol=1e-5, atol=1e-6)
