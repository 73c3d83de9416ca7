"""The data that a model is run on: the user's files, or random items where there are none."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from wavefit.errors import InputError
from wavefit.model.arrays import load_arrays
from wavefit.model.images import Preprocess, load_images
from wavefit.model.samples import Samples, random_samples
from wavefit.schema import Data, Model


def load_samples(
    model: Model,
    data: Path | None,
    labels: Path | None,
    sizes: Mapping[str, int],
    count: int,
    seed: int,
    preprocess: Preprocess | None = None,
) -> Samples:
    """The user's data, or ``count`` random samples where none is given.

    Args:
        data: a folder of images (one folder a class, or flat), an ``.npz`` with one array an input (and ``labels``),
            or an ``.npy`` for a model with one input; every item of it is taken.
        labels: a text file with one class number a line, or ``name class`` lines for a flat folder of images.
        sizes: of the symbolic dimensions other than the batch.
        preprocess: how images become tensors.

    Raises:
        InputError: the data or the labels do not fit the model; the message says what is wrong and where.
    """
    if data is None:
        if labels is not None:
            raise InputError(f"{labels} gives labels, but no data goes with them", "add --data")
        return random_samples(model, sizes, count, seed)
    if not data.exists():
        raise InputError(f"{data} does not exist", "give a folder of images, an .npz or an .npy with --data")
    if labels is not None and not labels.is_file():
        raise InputError(f"{labels} is not a file", "give a text file of class numbers with --labels")
    if data.is_dir():
        return load_images(model, data, labels, sizes, preprocess or Preprocess())
    if data.suffix in (".npz", ".npy"):
        return load_arrays(model, data, labels, sizes)
    raise InputError(f"{data} is no data that wavefit reads", "give a folder of images, an .npz or an .npy")


def read_samples(model: Model, data: Data, sizes: dict[str, int]) -> Samples:
    """The request's data: the user's, or seeded random.

    Raises:
        InputError: it does not fit the model.
    """
    preprocess = Preprocess(resize=data.resize, mean=data.mean, std=data.std)
    path = None if data.path is None else Path(data.path)
    labels = None if data.labels is None else Path(data.labels)
    return load_samples(model, path, labels, sizes, data.count, data.seed, preprocess)
