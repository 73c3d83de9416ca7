"""Bad bundles, and bad inputs to good ones, as they are typed (see test_bad_input.py)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from fakes.shell import QUICK, Shell
from PIL import Image

Change = Callable[[Path], None]
Words = list[str]


def manifest(**changes: object) -> Change:
    def change(bundle: Path) -> None:
        path = bundle / "bundle.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return change


def unfinished(bundle: Path) -> None:
    (bundle / "bundle.json").unlink()
    (bundle / ".work").mkdir()


def half_packed(bundle: Path) -> None:
    """As a kill leaves it between the records and the manifest."""
    (bundle / ".work").mkdir()
    torn(bundle)


def unhashed(bundle: Path) -> None:
    path = bundle / "bundle.json"
    content = json.loads(path.read_text())
    del content["files"]["model.onnx"]
    path.write_text(json.dumps(content))


def torn(bundle: Path) -> None:
    records = bundle / "records.jsonl"
    records.write_bytes(records.read_bytes()[:-9])


BAD_BUNDLES: list[tuple[str, Change, str]] = [
    ("changed", lambda b: (b / "model.onnx").write_bytes(b"other") and None, "model.onnx was changed"),
    ("missing", lambda b: (b / "report.html").unlink(), "report.html is missing"),
    ("garbage", lambda b: (b / "bundle.json").write_bytes(b"\xff{") and None, "bundle.json is not a"),
    ("newer", manifest(schema=99, wavefit="9.9"), "written by wavefit 9.9, newer than this one"),
    (
        "newer form",
        lambda b: (b / "bundle.json").write_text('{"schema": 99}') and None,
        "newer than this one; update wavefit",
    ),
    ("outside", manifest(files={"../net.onnx": "00"}), "names a file outside the bundle"),
    ("absolute", manifest(files={"/etc/passwd": "00"}), "names a file outside the bundle"),
    ("no hash", unhashed, "has no SHA-256 of model.onnx"),
    ("torn records", torn, "records.jsonl was changed"),
    ("half packed", half_packed, "unfinished: records.jsonl is not what bundle.json names"),
    ("unfinished", unfinished, "b.wavefit is unfinished"),
    ("no bundle", lambda b: shutil.rmtree(b), "b.wavefit does not exist"),
]


@pytest.mark.parametrize(("change", "says"), [c[1:] for c in BAD_BUNDLES], ids=[c[0] for c in BAD_BUNDLES])
def test_bundles(shell: Shell, bundle: Path, change: Change, says: str) -> None:
    change(bundle)
    shell.refuses("run", "b.wavefit", says=says)


def huge(folder: Path) -> None:
    """A header that promises 10^11 images, and none after it."""
    with (folder / "x.npy").open("wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": (10**11, 3, 8, 8)}
        np.lib.format.write_array_header_1_0(file, header)


def array(value: object) -> Change:
    return lambda folder: np.save(folder / "x.npy", value, allow_pickle=True)  # type: ignore[arg-type]


NAMED, ALONE = ["--input", "image=x.npy"], ["--input", "x.npy"]
IMAGES = np.ones((2, 3, 8, 8), np.float32)

BAD_INPUTS: list[tuple[str, Words, Change, str]] = [
    ("missing", ALONE, lambda folder: None, "x.npy does not exist"),
    ("named missing", NAMED, lambda folder: None, "x.npy could not be read"),
    ("name", ["--input", "picture=x.npy"], array(IMAGES), "no input 'picture'; it takes image"),
    ("shape", NAMED, array(IMAGES[:, :, :, :7]), "has shape 2x3x8x7"),
    ("scalar", NAMED, array(np.float32(1)), "has shape scalar"),
    ("type", NAMED, array(IMAGES.astype(int)), "is int64, input 'image' takes float32"),
    ("NaN", NAMED, array(IMAGES * np.float32("nan")), "NaN"),
    ("pickle", NAMED, array(np.array([{}], object)), "pickled objects"),
    ("no items", NAMED, array(IMAGES[:0]), "holds nothing"),
    ("huge", NAMED, huge, "should hold 76800000000000 bytes and holds 0"),
    ("twice", [*NAMED, *NAMED], array(IMAGES), "--input image is given twice"),
    ("mixed", [*NAMED, *ALONE], array(IMAGES), "some have none"),
    ("archive", ["--input", "image=x.npz"], lambda f: np.savez(f / "x.npz", image=IMAGES), "is no .npy"),
    ("picture", ["--input", "x.png"], lambda f: Image.new("RGB", (9, 9)).save(f / "x.png"), "9x9 pixels"),
    ("plan", ["--plan", "nosuch"], lambda folder: None, "has no plan 'nosuch'"),
    ("output", ["-o", "x.txt"], lambda folder: None, "must end in .npz"),
    ("output place", ["-o", "net.onnx/x.npz"], lambda folder: None, "cannot be written"),
]


@pytest.mark.parametrize(
    ("words", "build", "says"), [c[1:] for c in BAD_INPUTS], ids=[c[0] for c in BAD_INPUTS]
)
def test_run_inputs(shell: Shell, bundle: Path, words: Words, build: Change, says: str) -> None:
    build(shell.folder)
    shell.refuses("run", "b.wavefit", *words, says=says)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["b.wavefit", "net.onnx"], "net.onnx, line 1, is not a Record"),
        (["b.wavefit", "."], "is no bundle"),
        (["b.wavefit", "nowhere"], "nowhere is not there"),
        (["b.wavefit"], "only one column"),
        (["b.wavefit", "b.wavefit", "--price", "b=nan"], "'b=nan' is not NAME=VALUE"),
    ],
)
def test_compare(shell: Shell, bundle: Path, words: Words, says: str) -> None:
    shell.refuses("compare", *words, says=says)


def test_an_older_bundle_stays_as_it_was(shell: Shell, bundle: Path) -> None:
    shell.refuses("optimize", "none.onnx", *QUICK, "-o", "b.wavefit", says="none.onnx")
    assert shell.type("run", "b.wavefit")[0] == 0
