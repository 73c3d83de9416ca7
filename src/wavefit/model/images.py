"""Sample data from a folder of images, one folder a class or flat, turned into the model's one input."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from wavefit.errors import InputError
from wavefit.model.arrays import is_integer, text_lines
from wavefit.model.samples import (
    Samples,
    check_bytes,
    check_labels,
    item_shapes,
    numpy_dtype,
    whole_inputs,
)
from wavefit.schema import Model, Struct

if TYPE_CHECKING:
    import numpy as np
    from PIL.Image import Image

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".ppm", ".pgm", ".webp", ".tif", ".tiff")
_FORMATS = ("PNG", "JPEG", "BMP", "PPM", "WEBP", "TIFF")
_MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "LAB", "HSV")  # 8 bits a channel
_MAX_PIXELS = 64_000_000
_CROP = 256 / 224
"""Shorter side over crop, as ImageNet models are evaluated (He et al., Deep Residual Learning, section 3.4)."""


class Preprocess(Struct, frozen=True, kw_only=True):
    """How an image becomes a tensor: resized, divided by 255, then (x - mean) / std by channel.

    Integer inputs (uint8) get the pixels as they are.
    """

    resize: Literal["crop", "stretch"] | None = None
    """"crop": shorter side to 256/224 of the model's, then the middle cut out; "stretch": straight to the size;
    None: an image of another size is refused."""
    mean: tuple[float, ...] = ()  # one value, or one a channel
    std: tuple[float, ...] = ()


def load_images(
    model: Model, folder: Path, labels: Path | None, sizes: Mapping[str, int], preprocess: Preprocess
) -> Samples:
    """Reads every image below ``folder``.

    With folders below it, each is a class: the number of a folder whose name is one, else its place in the sorted
    names. A flat folder may have a label file: "name class" lines, or one class a line in the order of sorted names.

    Raises:
        InputError: no images, an image that is damaged or of another size, labels that do not fit, a model that does
            not take one image, or more data than may be taken.
    """
    import numpy as np

    layout = _Layout(model, sizes)
    files, classes = _list(folder, labels)
    check_bytes({layout.name: ((len(files), *layout.shape), layout.dtype)}, f"{folder} ({len(files)} images)")
    scale = _scale(preprocess, layout)
    data = np.empty((len(files), *layout.shape), layout.dtype)
    for index, file in enumerate(files):
        data[index] = layout.arrange(scale(_pixels(file, layout, preprocess.resize)))
    if labels is not None:
        classes = _label_file(labels, files)
    where = str(labels or folder)
    checked = None if classes is None else check_labels(model, np.array(classes, np.int64), len(files), where)
    return Samples({layout.name: data}, checked, f"{len(files)} images from {folder.name}")


def load_image(
    model: Model, file: Path, sizes: Mapping[str, int], preprocess: Preprocess
) -> dict[str, np.ndarray]:
    """One image as a batch of one item, by input name.

    Raises:
        InputError: it is damaged, of another size, or the model does not take one image.
    """
    layout = _Layout(model, sizes)
    if not file.is_file():
        raise InputError(f"{file} does not exist", "give an image, an .npz or an .npy")
    pixels = _pixels(file, layout, preprocess.resize)
    return {layout.name: layout.arrange(_scale(preprocess, layout)(pixels))[None]}


class _Layout:
    """Where the channels, height and width of the model's image lie.

    Raises:
        InputError: the model takes more than one input, or its input is no image.
    """

    def __init__(self, model: Model, sizes: Mapping[str, int]) -> None:
        if len(model.inputs) != 1:
            names = ", ".join(spec.name for spec in model.inputs)
            raise InputError(f"a folder of images feeds one input, the model takes {names}", "give an .npz")
        spec = model.inputs[0]
        self.name, self.dtype = spec.name, numpy_dtype(spec)
        self.shape = item_shapes(model, sizes)[spec.name]
        self.axis = self._channel_axis()
        if whole_inputs(model) or (self.axis is None and len(self.shape) != 2):
            has = "x".join(str(size) for size in self.shape)
            raise InputError(f"input {spec.name!r} takes items of {has}, which are no images", "give an .npz")
        self.channels = 1 if self.axis is None else self.shape[self.axis]
        height, width = (size for axis, size in enumerate(self.shape) if axis != self.axis)
        self.size = (width, height)

    def _channel_axis(self) -> int | None:
        if len(self.shape) != 3:
            return None
        return next((axis for axis in (0, 2) if self.shape[axis] in (1, 3)), None)

    def arrange(self, pixels: np.ndarray) -> np.ndarray:
        """From height x width x channels to the model's order."""
        if self.axis is None:
            return pixels[:, :, 0]
        return pixels.transpose(2, 0, 1) if self.axis == 0 else pixels


class _scale:
    """Turns pixels of 0 to 255, height x width x channels, into the values that the model takes."""

    def __init__(self, preprocess: Preprocess, layout: _Layout) -> None:
        import numpy as np

        self.dtype = layout.dtype
        self.integer = layout.dtype.kind in "iu"
        self.mean = _per_channel("mean", preprocess.mean or (0.0,), layout.channels)
        self.std = _per_channel("std", preprocess.std or (1.0,), layout.channels)
        if self.integer and (preprocess.mean or preprocess.std):
            raise InputError(
                f"input {layout.name!r} takes {layout.dtype} pixels", "leave --mean and --std out"
            )
        if self.dtype == np.int8:
            raise InputError(
                f"input {layout.name!r} takes int8, which pixels of 0 to 255 do not fit", "give an .npz"
            )
        if (self.std <= 0).any():
            raise InputError("--std must be above 0")

    def __call__(self, pixels: np.ndarray) -> np.ndarray:
        if self.integer:
            return pixels.astype(self.dtype)
        return ((pixels / 255.0 - self.mean) / self.std).astype(self.dtype)


def _per_channel(option: str, values: tuple[float, ...], channels: int) -> np.ndarray:
    import numpy as np

    array = np.array(values, np.float64)
    if len(values) not in (1, channels):
        raise InputError(f"--{option} has {len(values)} values, the model's images have {channels} channels")
    if not np.isfinite(array).all():
        raise InputError(f"--{option} has a value that is not finite")
    return array


def _list(folder: Path, labels: Path | None) -> tuple[list[Path], list[int] | None]:
    """The image files in order, and their classes where the folders give them."""
    folders = sorted(entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    flat = _images(folder)
    if flat and folders:
        raise InputError(f"{folder} holds both images and folders", "use one folder a class, or images alone")
    if not folders:
        if not flat:
            raise InputError(f"{folder} holds no images", f"wavefit reads {' '.join(SUFFIXES)}")
        return flat, None
    if labels is not None:
        raise InputError(
            f"{folder} has one folder a class, and {labels} gives labels too", "leave --labels out"
        )
    numbered = all(is_integer(entry.name) for entry in folders)
    files, classes = [], []
    for place, entry in enumerate(folders):
        here = _images(entry)
        if not here:
            raise InputError(f"class folder {entry} holds no images", "remove the folder or fill it")
        files += here
        classes += [int(entry.name) if numbered else place] * len(here)
    return files, classes


def _images(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if entry.suffix.lower() in SUFFIXES and entry.is_file())


def _label_file(labels: Path, files: list[Path]) -> list[int]:
    """The class of each file, in their order."""
    lines = [line.rsplit(maxsplit=1) for line in text_lines(labels)]
    for number, parts in enumerate(lines, 1):
        if not is_integer(parts[-1]) or len(parts) != len(lines[0]):
            raise InputError(
                f"{labels}, line {number}: not a class number", 'write "name class" or "class" lines'
            )
    if len(lines[0]) == 1:
        if len(lines) != len(files):
            raise InputError(f"{labels} has {len(lines)} labels for {len(files)} images")
        return [int(parts[0]) for parts in lines]
    by_name = {parts[0]: int(parts[1]) for parts in lines}
    names = [file.name for file in files]
    missing = next((name for name in names if name not in by_name), None)
    if missing is not None:
        raise InputError(f"{labels} has no label for {missing}")
    if len(lines) != len(names):
        extra = next((parts[0] for parts in lines if parts[0] not in names), "one name twice")
        raise InputError(f"{labels} has {len(lines)} labels for {len(names)} images ({extra})")
    return [by_name[name] for name in names]


def _pixels(file: Path, layout: _Layout, resize: str | None) -> np.ndarray:
    """Pixels of 0 to 255, height x width x channels. The size is looked at before the image is decoded."""
    import struct

    import numpy as np
    from PIL import Image, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a large image is refused below, damage raises
            with Image.open(file, formats=_FORMATS) as image:
                _check_image(file, image, layout, resize)
                converted = image.convert("L" if layout.channels == 1 else "RGB")
    except UnidentifiedImageError as error:
        raise InputError(f"{file} is not an image that can be read") from error
    except Image.DecompressionBombError as error:
        raise InputError(f"{file} unpacks to too many pixels: {error}") from error
    except (OSError, SyntaxError, ValueError, EOFError, struct.error) as error:
        raise InputError(f"{file} is damaged: {error}") from error
    array = np.asarray(_fit(converted, layout.size, resize))
    return array.reshape(*array.shape[:2], layout.channels)


def _check_image(file: Path, image: Image, layout: _Layout, resize: str | None) -> None:
    width, height = image.size
    if resize is None and image.size != layout.size:
        raise InputError(
            f"{file} is {width}x{height} pixels, the model takes {layout.size[0]}x{layout.size[1]}",
            "add --resize to scale images",
        )
    if width * height > _MAX_PIXELS:
        raise InputError(
            f"{file} is {width}x{height} pixels, more than the {_MAX_PIXELS // 10**6} million allowed"
        )
    if image.mode not in _MODES:
        raise InputError(f"{file} has pixels of mode {image.mode}", "save it with 8 bits a channel")


def _fit(image: Image, size: tuple[int, int], resize: str | None) -> Image:
    from PIL import Image as pillow

    if resize is None or (image.size == size and resize == "stretch"):
        return image
    if resize == "stretch":
        return image.resize(size, pillow.Resampling.BILINEAR)
    shrink = min(image.width / size[0], image.height / size[1]) / _CROP
    width, height = size[0] * shrink, size[1] * shrink
    left, top = (image.width - width) / 2, (image.height - height) / 2
    return image.resize(size, pillow.Resampling.BILINEAR, box=(left, top, left + width, top + height))
