from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

FAKES = Path(__file__).parents[1]


def wavefit(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run where ``fakes`` can be imported, as a user's package in the current folder is."""
    command = [sys.executable, "-m", "wavefit", "recover", *words]
    (folder / "fakes").symlink_to(FAKES / "fakes")
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.torch
def test_a_module_is_recovered_and_the_figures_are_told(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    from fakes import recover_nets

    images, labels = recover_nets.digits()
    np.savez(tmp_path / "some.npz", image=images[:64], labels=labels[:64])
    done = wavefit(
        tmp_path, "fakes.recover_nets:spread", "--input", "image:1x1x8x8", "--output-name", "scores",
        "--data", "some.npz", "--epochs", "1", "-o", "out.onnx", "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert (made["precision"], made["items"], made["heldout"], made["epochs"]) == ("int8", 48, 16, 1)
    assert made["exported"]["outputs"][0]["name"] == "scores"
    assert [proof["batch"] for proof in made["exported"]["proofs"]] == [1, 2, 3, 5]
    written = {path.name for path in tmp_path.iterdir()} - {"fakes", "some.npz"}
    assert written == {"out.onnx", "out.pt2", "out.weights.pt"}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            [],
            "recover trains on examples, and no --data is given; give a folder of images, an .npz or an .npy",
        ),
        (["--data", "x.npz", "--heldout", "0.9"], "--heldout must be above 0 and at most 0.5, not 0.9"),
        (["--data", "x.npz", "--epochs", "0"], "--epochs must be a number above 0, not 0"),
        (["--data", "x.npz", "--minutes", "nan"], "--minutes must be a number above 0, not nan"),
        (["--data", "x.npz", "--batch", "-1"], "--batch must be a number above 0, not -1"),
        (["--data", "x.npz", "--learning-rate", "inf"], "--learning-rate must be a number above 0, not inf"),
        (["--data", "x.npz", "--precision", "fp32"], "--precision 'fp32' is not known; use fp16, int8"),
        (["--data", "x.npz", "--metric", "best"], "--metric 'best' is not known"),
    ],
)
def test_bad_options_are_one_line(tmp_path: Path, words: list[str], says: str) -> None:
    done = wavefit(tmp_path, "net:net", "-o", "out.onnx", *words)
    assert done.returncode == 2
    assert done.stderr.startswith(f"wavefit: {says}")
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""
