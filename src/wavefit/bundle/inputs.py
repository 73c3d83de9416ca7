"""Inputs for ``wavefit run``, from files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from wavefit.errors import InputError
from wavefit.model.arrays import load_array
from wavefit.model.data import load_samples
from wavefit.model.images import SUFFIXES, Preprocess, load_image
from wavefit.model.samples import random_samples
from wavefit.routes.session import Arrays
from wavefit.schema import Model, Request


def with_resize(request: Request, resize: str | None) -> Request:
    """The request with another way to bring images to the model's size; unchanged for None.

    Raises:
        InputError: there is no such way.
    """
    if resize is None:
        return request
    if resize not in ("crop", "stretch"):
        raise InputError(f"--resize {resize} is not known", "use crop or stretch")
    return replace(request, data=replace(request.data, resize=resize))


def read_inputs(model: Model, request: Request, texts: Sequence[str]) -> Arrays:
    """The arrays to run, by input name; one random item where no file is named.

    Args:
        request: what the bundle was made with: its images are prepared in the same way here.
        texts: one image, folder of images, ``.npz`` or ``.npy``; or ``NAME=FILE.npy`` for each input.

    Raises:
        InputError: a file does not fit the model, or an input is missing.
    """
    if not texts:
        return random_samples(model, request.sizes, 1, request.data.seed).inputs
    named = [_split(model, text) for text in texts]
    if all(name is None for name, _ in named):
        if len(texts) > 1:
            raise InputError("more than one --input needs names", "write --input NAME=FILE.npy for each")
        return _read_one(model, request, Path(texts[0]))
    if any(name is None for name, _ in named):
        raise InputError(
            "some --input have a name and some have none", "write --input NAME=FILE.npy for each"
        )
    names = [name for name, _ in named]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"--input {name} is given twice", "give each input once")
    return {name: load_array(model, name, path) for name, path in named if name is not None}


def _split(model: Model, text: str) -> tuple[str | None, Path]:
    name, equals, path = text.partition("=")
    if equals and any(spec.name == name for spec in model.inputs):
        return name, Path(path)
    if equals and not Path(text).exists():
        known = ", ".join(spec.name for spec in model.inputs)
        raise InputError(f"the model has no input {name!r}", f"it takes {known}")
    if not Path(text).exists():
        raise InputError(f"{text} does not exist", "give an image, an .npz or an .npy")
    return None, Path(text)


def _read_one(model: Model, request: Request, path: Path) -> Arrays:
    data = request.data
    preprocess = Preprocess(resize=data.resize, mean=data.mean, std=data.std)
    if path.suffix.lower() in SUFFIXES:
        return load_image(model, path, request.sizes, preprocess)
    return load_samples(model, path, None, request.sizes, 1, data.seed, preprocess).inputs
