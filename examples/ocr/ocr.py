"""A text recogniser with trained weights, lines of text rendered for it, and its metric: characters read right.

    python ocr.py prepare             # writes recogniser.onnx, characters.txt and lines.npz into this folder
    wavefit optimize recogniser.onnx --data lines.npz --metric ocr:characters_right ...

The weights are PP-OCRv4's recogniser as rapidocr_onnxruntime 1.4.4 packs it (both Apache-2.0); pip fetches them. What a
line says follows from its number, which is its label, so that a metric needs no file of texts.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
HEIGHT, WIDTH = 48, 320
_PACKAGE = "rapidocr_onnxruntime==1.4.4"
_MODEL = "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx"
_SEED = 20_261_130
_WORDS = (
    "account amount approved arrival balance battery bridge capital carbon central charge chapter city closing "
    "cooling copper current daily delivery density device engine entrance estimate factory field filter forest "
    "garden general ground harbour heating height history import industry invoice journal kernel kitchen laboratory "
    "language library machine market measure memory method mineral mirror motion museum nature network number "
    "object office output oxygen paper parcel pattern payment planet platform pocket power pressure printer quality "
    "quarter railway receipt record region report river sample school season second signal silver station storage "
    "street summer supply surface system table target ticket total traffic transfer travel valley value vehicle "
    "voltage warehouse water weather weight window winter yellow zone"
)


def text(number: int) -> str:
    """What line ``number`` says: words, dates, prices and codes, at most 30 characters."""
    rng = np.random.default_rng((_SEED, number))
    parts: list[str] = []
    while len(" ".join(parts)) < 14:
        parts.append(_part(rng))
    return " ".join(parts)[:30].strip()


def _part(rng: np.random.Generator) -> str:
    kind = rng.integers(0, 8)
    if kind == 0:
        return f"{rng.integers(1, 29):02}.{rng.integers(1, 13):02}.{rng.integers(1990, 2027)}"
    if kind == 1:
        return f"${rng.integers(1, 2000)}.{rng.integers(0, 100):02}"
    if kind == 2:
        letters = "".join(chr(65 + each) for each in rng.integers(0, 26, 3))
        return f"{letters}-{rng.integers(100, 9999)}"
    word = str(rng.choice(_WORDS.split()))
    return word.capitalize() if kind == 3 else word.upper() if kind == 4 else word


def picture(number: int) -> np.ndarray:
    """Line ``number`` as the recogniser takes it: float32 of shape (3, 48, 320), -1 to 1, 0 right of the text.

    Size, slant, contrast, blur and noise follow from the number; the hardest lines are hard for people too.
    """
    from PIL import Image, ImageDraw, ImageFilter, ImageFont

    rng = np.random.default_rng((_SEED, number, 1))
    paper, ink = int(rng.integers(150, 256)), int(rng.integers(0, 100))
    if rng.random() < 0.2:
        paper, ink = ink, paper
    font = ImageFont.load_default(size=float(rng.integers(18, 40)))  # Pillow's own: the same on every machine
    left, top, right, bottom = font.getbbox(text(number))
    pad = 6
    image = Image.new("L", (int(right - left) + 2 * pad, int(bottom - top) + 2 * pad), paper)
    ImageDraw.Draw(image).text((pad - left, pad - top), text(number), fill=ink, font=font)
    image = image.rotate(float(rng.uniform(-1.5, 1.5)), Image.Resampling.BICUBIC, fillcolor=paper)
    image = image.filter(ImageFilter.GaussianBlur(float(rng.uniform(0, 1.6))))
    width = min(WIDTH, max(1, round(HEIGHT * image.width / image.height)))
    image = image.resize((width, HEIGHT), Image.Resampling.BILINEAR)
    values = np.asarray(image, np.float32) + rng.normal(0, rng.uniform(0, 25), (HEIGHT, width))
    line = np.zeros((3, HEIGHT, WIDTH), np.float32)
    line[:, :, :width] = np.clip(values, 0, 255).astype(np.float32) / 127.5 - 1
    return line


def characters_right(outputs: Mapping[str, np.ndarray], labels: np.ndarray) -> float:
    """1 - character error rate over all lines: edits in total, over characters in total.

    Args:
        outputs: the recogniser's one output, of shape (N, steps, characters).
        labels: line numbers, shape (N,).
    """
    edits = line_edits(outputs, labels)
    return 1 - sum(edits) / sum(len(text(int(number))) for number in labels)


def line_edits(outputs: Mapping[str, np.ndarray], labels: np.ndarray) -> list[int]:
    """Of each line: insertions, deletions and substitutions that turn what was read into what it says."""
    (scores,) = outputs.values()
    return [distance(read(line), text(int(number))) for line, number in zip(scores, labels, strict=True)]


def read(scores: np.ndarray) -> str:
    """Greedy CTC: the best character of each step, repeats taken once, blanks (0) left out."""
    best = np.argmax(scores, axis=-1)
    changed = np.append(True, best[1:] != best[:-1])
    table = characters()
    return "".join(table[index] for index in best[changed & (best != 0)])


def distance(one: str, other: str) -> int:
    """Levenshtein's edit distance."""
    row = list(range(len(other) + 1))
    for i, left in enumerate(one, 1):
        previous, row[0] = row[0], i
        for j, right in enumerate(other, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (left != right))
    return row[-1]


@lru_cache(1)
def characters() -> Sequence[str]:
    """By the recogniser's class: the blank, the characters that its file lists, the space."""
    path = HERE / "characters.txt"
    if not path.exists():
        raise FileNotFoundError(f"{path} is made by: python {Path(__file__).name} prepare")
    return ["", *path.read_text(encoding="utf-8").split("\n"), " "]


def prepare() -> Path:
    """Fetches the recogniser where it is not there yet; returns its path."""
    model = HERE / "recogniser.onnx"
    if model.exists() and (HERE / "characters.txt").exists():
        return model
    import onnx

    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", folder, _PACKAGE]
        subprocess.run(command, check=True)
        shutil.copyfile(Path(folder) / _MODEL, model.with_suffix(".partial"))
    known = {entry.key: entry.value for entry in onnx.load(model.with_suffix(".partial")).metadata_props}
    lines = io.StringIO(known["character"], newline=None).read().split("\n")
    (HERE / "characters.txt").write_text("\n".join(lines), encoding="utf-8")
    model.with_suffix(".partial").replace(model)
    return model


def lines(numbers: Sequence[int]) -> dict[str, np.ndarray]:
    """Pictures and labels of those lines, as an ``.npz`` for the recogniser has them."""
    return {"x": np.stack([picture(number) for number in numbers]), "labels": np.array(numbers, np.int64)}


if __name__ == "__main__":
    if sys.argv[1:] != ["prepare"]:
        sys.exit(__doc__)
    print(prepare())
    np.savez_compressed(HERE / "lines.npz", **lines(range(192)))
