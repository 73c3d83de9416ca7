"""Bad sample data and places for the bundle, as they are typed (see test_bad_input.py)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from fakes.shell import QUICK, Shell
from PIL import Image

Change = Callable[[Path], None]
Words = list[str]


def items(count: int = 2, **changes: object) -> dict[str, object]:
    random = np.random.default_rng(0)
    return {"image": random.random((count, 3, 8, 8), np.float32), **changes}


def npz(**arrays: object) -> Change:
    return lambda folder: np.savez(folder / "data.npz", **arrays)  # type: ignore[arg-type]


def with_nan(folder: Path) -> None:
    data = items()
    data["image"][1, 2, 3, 4] = np.nan  # type: ignore[index]
    np.savez(folder / "data.npz", **data)  # type: ignore[arg-type]


def pictures(size: int = 8, labels: str = "") -> Change:
    def build(folder: Path) -> None:
        (folder / "images").mkdir()
        for number in range(3):
            Image.new("RGB", (size, size), (number, 2, 3)).save(folder / f"images/{number}.png")
        (folder / "labels.txt").write_text(labels)

    return build


def corrupt(folder: Path) -> None:
    pictures()(folder)
    whole = (folder / "images/1.png").read_bytes()
    (folder / "images/1.png").write_bytes(whole[:40])


ARRAYS = ["--data", "data.npz"]
PICTURES = ["--data", "images"]
LABELLED = [*PICTURES, "--labels", "labels.txt"]

BAD_DATA: list[tuple[str, Words, Change, str]] = [
    ("missing", ARRAYS, lambda folder: None, "data.npz does not exist"),
    ("empty folder", PICTURES, lambda folder: (folder / "images").mkdir(), "holds no images"),
    ("corrupt image", PICTURES, corrupt, "1.png"),
    ("image size", PICTURES, pictures(9), "0.png is 9x9 pixels, the model takes 8x8"),
    ("mean count", [*PICTURES, "--mean", "1,2"], pictures(), "--mean has 2 values"),
    ("few labels", LABELLED, pictures(labels="1\n2\n"), "2 labels for 3 images"),
    ("label range", LABELLED, pictures(labels="1\n2\n10\n"), "label 10 is out of range"),
    ("label text", LABELLED, pictures(labels="1\ncat\n2\n"), "labels.txt, line 2"),
    ("array name", ARRAYS, npz(picture=np.ones((2, 3, 8, 8), np.float32)), "no array 'image'"),
    ("array shape", ARRAYS, npz(image=np.ones((2, 3, 8, 9), np.float32)), "has shape 2x3x8x9"),
    ("array type", ARRAYS, npz(image=np.ones((2, 3, 8, 8))), "is float64, the model takes float32"),
    ("array objects", ARRAYS, npz(image=np.array([{}], object)), "pickled objects"),
    ("array NaN", ARRAYS, with_nan, "the first at (1, 2, 3, 4)"),
    ("array labels", ARRAYS, npz(**items(labels=np.array([0, -1]))), "label -1 is negative"),
]


@pytest.mark.parametrize(("words", "build", "says"), [c[1:] for c in BAD_DATA], ids=[c[0] for c in BAD_DATA])
def test_data(shell: Shell, words: Words, build: Change, says: str) -> None:
    build(shell.folder)
    shell.refuses("optimize", "net.onnx", *QUICK, *words, says=says)


# ---- Outputs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("output", "says"),
    [
        ("file", "file is a file, and a bundle is a folder"),
        ("file/below", "file/below cannot be written"),
        ("other", "other is a folder that holds something else"),
        ("x" * 300, "File name too long"),
    ],
)
def test_outputs(shell: Shell, output: str, says: str) -> None:
    (shell.folder / "file").write_text("mine")
    (shell.folder / "other").mkdir()
    (shell.folder / "other/mine").write_text("mine")
    shell.refuses("optimize", "net.onnx", *QUICK, "-o", output, says=says)


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root may write everywhere")
def test_an_output_that_may_not_be_written(shell: Shell) -> None:
    (shell.folder / "closed").mkdir(mode=0o500)
    shell.refuses("optimize", "net.onnx", *QUICK, "-o", "closed/out", says="Permission denied")


def test_an_empty_folder_stays_empty(shell: Shell) -> None:
    (shell.folder / "out").mkdir()
    shell.refuses("optimize", "none.onnx", *QUICK, "-o", "out", says="none.onnx")
