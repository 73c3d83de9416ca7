"""Sample data: what is drawn, what is read, and what is refused with one sentence."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from fakes import models
from onnx import TensorProto, helper
from PIL import Image

from wavefit.errors import InputError
from wavefit.model import images, samples
from wavefit.model.data import load_samples
from wavefit.model.images import Preprocess
from wavefit.model.load import load
from wavefit.model.samples import random_samples
from wavefit.schema import Model


@pytest.fixture(name="net")
def net_(tmp_path: Path) -> Model:
    """image: Nx3x8x8, logits: Nx10."""
    return load(models.save(models.conv_net(), tmp_path / "net.onnx"))


def model_of(tmp_path: Path, **inputs: tuple[list, int]) -> Model:
    """A model of those inputs, each (shape, type), that only sums them up."""
    nodes = [helper.make_node("Cast", [name], [f"{name}_f"], to=TensorProto.FLOAT) for name in inputs]
    nodes += [helper.make_node("ReduceSum", [f"{name}_f"], [f"{name}_s"], keepdims=0) for name in inputs]
    nodes.append(helper.make_node("Sum", [f"{name}_s" for name in inputs], ["y"]))
    values = [models.value(name, shape, dtype) for name, (shape, dtype) in inputs.items()]
    return load(models.save(models.model(nodes, values, [models.value("y", [])]), tmp_path / "sum.onnx"))


# ---- random ---------------------------------------------------------------------------------------------------------


def test_random_floats_are_standard_normal_seeded_and_never_zero(net: Model) -> None:
    drawn = random_samples(net, {}, 64, 3)
    image = drawn.inputs["image"]
    assert (image.shape, image.dtype, drawn.count, drawn.labels) == ((64, 3, 8, 8), np.float32, 64, None)
    assert abs(image.mean()) < 0.03
    assert image.std() == pytest.approx(1, abs=0.03)
    assert (image != 0).all()
    np.testing.assert_array_equal(image, random_samples(net, {}, 64, 3).inputs["image"])
    assert (image != random_samples(net, {}, 64, 4).inputs["image"]).any()


def test_integers_and_booleans_by_name_and_type(tmp_path: Path) -> None:
    model = model_of(
        tmp_path,
        input_ids=(["N", "S"], TensorProto.INT64),
        attention_mask=(["N", "S"], TensorProto.INT64),
        token_type_ids=(["N", "S"], TensorProto.INT32),
        position_ids=(["N", "S"], TensorProto.INT64),
        pixels=(["N", 50], TensorProto.UINT8),
        flag=(["N", 50], TensorProto.BOOL),
        half=(["N", 5], TensorProto.FLOAT16),
    )
    drawn = random_samples(model, {"S": 7}, 4, 0).inputs
    assert drawn["input_ids"].shape == (4, 7)
    assert 1 <= drawn["input_ids"].min() <= drawn["input_ids"].max() < 10
    assert (drawn["attention_mask"] == 1).all()
    assert set(drawn["token_type_ids"].ravel()) <= {0, 1}
    np.testing.assert_array_equal(drawn["position_ids"][2], np.arange(7))
    assert drawn["pixels"].max() > 200
    assert 0.2 < drawn["flag"].mean() < 0.8
    assert {name: array.dtype.name for name, array in drawn.items()} == {
        spec.name: spec.dtype for spec in model.inputs
    }


def test_indices_stay_below_the_rows_of_their_table(tmp_path: Path) -> None:
    table = models.weight("table", np.ones((3, 4), np.float32))
    node = helper.make_node("Gather", ["table", "word"], ["y"])
    proto = models.model(
        [node],
        [models.value("word", ["N", 40], TensorProto.INT64)],
        [models.value("y", ["N", 40, 4])],
        [table],
    )
    drawn = random_samples(load(models.save(proto, tmp_path / "m.onnx")), {}, 4, 0).inputs["word"]
    assert set(drawn.ravel()) == {0, 1, 2}


def test_a_frozen_batch_gets_a_multiple(tmp_path: Path) -> None:
    model = load(models.save(models.conv_net(batch=4), tmp_path / "m.onnx"))
    assert random_samples(model, {}, 5, 0).inputs["image"].shape == (8, 3, 8, 8)


def test_an_input_without_a_batch_axis_is_passed_whole(tmp_path: Path) -> None:
    model = model_of(
        tmp_path, x=(["N", 3], TensorProto.FLOAT), limit=([], TensorProto.FLOAT), w=([5], TensorProto.FLOAT)
    )
    drawn = random_samples(model, {}, 4, 0)
    assert drawn.whole == ("limit", "w")
    batch = drawn.batch(2, 6)
    assert {name: array.shape for name, array in batch.items()} == {"x": (6, 3), "limit": (), "w": (5,)}
    np.testing.assert_array_equal(batch["x"], drawn.inputs["x"][[2, 3, 0, 1, 2, 3]])


def test_random_refusals(net: Model, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at least 1"):
        random_samples(net, {}, 0, 0)
    with pytest.raises(InputError, match="more than the 4 GiB"):
        random_samples(net, {}, 10**9, 0)
    proto = models.model(
        [helper.make_node("Identity", ["s"], ["y"])],
        [models.value("s", ["N"], TensorProto.STRING)],
        [models.value("y", ["N"], TensorProto.STRING)],
    )
    text = load(models.save(proto, tmp_path / "t.onnx"))
    with pytest.raises(InputError, match="takes text"):
        random_samples(text, {}, 2, 0)


# ---- arrays ---------------------------------------------------------------------------------------------------------


def normal(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


def read(net: Model, data: Path, labels: Path | None = None, **preprocess: object) -> samples.Samples:
    return load_samples(net, data, labels, {}, 8, 0, Preprocess(**preprocess))  # type: ignore[arg-type]


def test_npz_and_npy(net: Model, tmp_path: Path) -> None:
    x, y = normal(5, 3, 8, 8), np.array([0, 9, 3, 3, 1], np.int32)
    np.savez(tmp_path / "d.npz", image=x, labels=y)
    loaded = read(net, tmp_path / "d.npz")
    np.testing.assert_array_equal(loaded.inputs["image"], x)
    assert loaded.labels is not None
    np.testing.assert_array_equal(loaded.labels, y)
    np.savez_compressed(tmp_path / "c.npz", image=x)
    np.testing.assert_array_equal(read(net, tmp_path / "c.npz").inputs["image"], x)
    np.save(tmp_path / "d.npy", x)
    (tmp_path / "labels.txt").write_text("0\n9\n3\n\n3\n1\n")
    loaded = read(net, tmp_path / "d.npy", tmp_path / "labels.txt")
    assert loaded.labels is not None
    assert loaded.labels.tolist() == y.tolist()
    np.save(tmp_path / "labels.npy", y)
    assert read(net, tmp_path / "d.npy", tmp_path / "labels.npy").labels is not None


def lying_header() -> bytes:
    """An .npy header that promises 76.8 GB."""
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999, 3, 8, 8), }".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()


def in_npz(path: Path, name: str, content: bytes) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)


def npy_bytes(array: np.ndarray, allow_pickle: bool = False) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=allow_pickle)
    return buffer.getvalue()


def truncated(path: Path) -> None:
    np.savez(path, image=normal(5, 3, 8, 8))
    path.write_bytes(path.read_bytes()[:2000])


def flipped(path: Path) -> None:
    np.savez(path, image=normal(5, 3, 8, 8))
    content = bytearray(path.read_bytes())
    content[1000] ^= 255
    path.write_bytes(bytes(content))


def savez(**arrays: np.ndarray) -> Callable[[Path], None]:
    return lambda path: np.savez(path, **arrays)  # type: ignore[arg-type]


BAD_NPZ: dict[str, tuple[Callable[[Path], None], str]] = {
    "no such array": (savez(picture=normal(5, 3, 8, 8)), "no array 'image'"),
    "no array at all": (savez(), "it has none"),
    "one array too many": (savez(image=normal(5, 3, 8, 8), other=normal(5)), "'other' that is no input"),
    "another type": (
        savez(image=normal(5, 3, 8, 8, dtype=np.float64)),
        "is float64, the model takes float32",
    ),
    "another size": (savez(image=normal(5, 3, 8, 9)), "has shape 5x3x8x9, the model takes Nx3x8x8"),
    "another rank": (savez(image=normal(3, 8, 8)), "the model takes Nx3x8x8"),
    "no items": (savez(image=normal(0, 3, 8, 8)), "holds nothing"),
    "NaN": (savez(image=np.full((2, 3, 8, 8), np.nan, np.float32)), "has 384 NaN or infinite values"),
    "Inf": (savez(image=np.full((1, 3, 8, 8), np.inf, np.float32)), "NaN or infinite"),
    "too few labels": (savez(image=normal(5, 3, 8, 8), labels=np.arange(4)), "4 labels for 5 items"),
    "too many labels": (savez(image=normal(5, 3, 8, 8), labels=np.arange(6)), "6 labels for 5 items"),
    "label beyond the classes": (
        savez(image=normal(1, 3, 8, 8), labels=np.array([10])),
        "label 10 is out of range",
    ),
    "negative label": (savez(image=normal(1, 3, 8, 8), labels=np.array([-1])), "label -1 is negative"),
    "labels that are floats": (savez(image=normal(1, 3, 8, 8), labels=np.ones(1)), "one integer an item"),
    "labels of two axes": (
        savez(image=normal(1, 3, 8, 8), labels=np.ones((1, 10), int)),
        "one integer an item",
    ),
    "pickled objects": (
        lambda path: in_npz(path, "image.npy", npy_bytes(np.array([{}], object), True)),
        "pickled objects",
    ),
    "pickled labels": (
        lambda path: np.savez(path, image=normal(1, 3, 8, 8), labels=np.array([{}], object)),
        "pickled objects",
    ),
    "no array inside": (lambda path: in_npz(path, "image.npy", b"hello"), "is not a numpy array"),
    "not a zip": (lambda path: path.write_bytes(b"hello"), "not a readable .npz"),
    "empty file": (lambda path: path.write_bytes(b""), "not a readable .npz"),
    "truncated": (truncated, "not a readable .npz"),
    "flipped byte": (flipped, "Bad CRC-32"),
    "zip bomb": (
        lambda path: in_npz(path, "image.npy", lying_header() + b"\0" * 1000),
        "should hold 76799999232 bytes",
    ),
}


@pytest.mark.parametrize("case", sorted(BAD_NPZ))
def test_bad_npz(net: Model, tmp_path: Path, case: str) -> None:
    make, message = BAD_NPZ[case]
    make(tmp_path / "d.npz")
    with pytest.raises(InputError) as raised:
        read(net, tmp_path / "d.npz")
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_bad_npy(net: Model, tmp_path: Path) -> None:
    (tmp_path / "d.npy").write_bytes(lying_header())
    with pytest.raises(InputError, match="should hold 76799999232 bytes and holds 0"):
        read(net, tmp_path / "d.npy")
    np.save(tmp_path / "o.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(InputError, match="pickled objects"):
        read(net, tmp_path / "o.npy")
    two = model_of(tmp_path, a=(["N", 3], TensorProto.FLOAT), b=(["N", 3], TensorProto.FLOAT))
    np.save(tmp_path / "a.npy", normal(2, 3))
    with pytest.raises(InputError, match=r"one array, the model takes 2 inputs"):
        read(two, tmp_path / "a.npy")
    np.savez(tmp_path / "ab.npz", a=normal(2, 3), b=normal(3, 3))
    with pytest.raises(InputError, match="differ in their number of items"):
        read(two, tmp_path / "ab.npz")


def test_more_data_than_may_be_taken(net: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez(tmp_path / "d.npz", image=normal(5, 3, 8, 8))
    monkeypatch.setattr(samples, "MAX_BYTES", 3000)
    with pytest.raises(InputError, match="more than"):
        read(net, tmp_path / "d.npz")


def test_bad_paths_and_label_files(net: Model, tmp_path: Path) -> None:
    np.save(tmp_path / "d.npy", normal(2, 3, 8, 8))
    labels = tmp_path / "labels.txt"
    for text, message in {
        "": "is empty",
        "1\ntwo\n": "line 2: 'two' is not a class number",
        "1\n": "1 labels for 2 items",
        "1\n2\n3\n": "3 labels for 2 items",
        "1\n99999999999999999999\n": "not a class number",
        "1\n10\n": "out of range",
    }.items():
        labels.write_text(text)
        with pytest.raises(InputError, match=message):
            read(net, tmp_path / "d.npy", labels)
    labels.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="could not be read as text"):
        read(net, tmp_path / "d.npy", labels)
    with pytest.raises(InputError, match="does not exist"):
        read(net, tmp_path / "no.npz")
    with pytest.raises(InputError, match="is not a file"):
        read(net, tmp_path / "d.npy", tmp_path)
    (tmp_path / "d.csv").write_text("1,2")
    with pytest.raises(InputError, match="no data that wavefit reads"):
        read(net, tmp_path / "d.csv")
    with pytest.raises(InputError, match="no data goes with them"):
        load_samples(net, None, labels, {}, 1, 0)


# ---- images ---------------------------------------------------------------------------------------------------------


def picture(path: Path, size: tuple[int, int] = (8, 8), mode: str = "RGB", seed: int = 0) -> np.ndarray:
    """Writes random pixels, returns them."""
    channels = {"RGB": (3,), "L": (), "RGBA": (4,)}[mode]
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], *channels), np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels, mode).save(path)
    return pixels


def test_class_folders_and_scaling(net: Model, tmp_path: Path) -> None:
    folder = tmp_path / "d"
    cat = picture(folder / "cat" / "2.png", seed=1)
    picture(folder / "ant" / "1.png", seed=2)
    loaded = read(net, folder, mean=(0.5, 0.4, 0.3), std=(0.2,))
    assert loaded.labels is not None
    assert loaded.labels.tolist() == [0, 1]
    want = (cat.astype(np.float64) / 255 - [0.5, 0.4, 0.3]) / 0.2
    np.testing.assert_allclose(loaded.inputs["image"][1], want.transpose(2, 0, 1), rtol=1e-6)
    assert loaded.inputs["image"].dtype == np.float32


def test_folders_named_by_numbers_are_those_classes(net: Model, tmp_path: Path) -> None:
    for name in ("2", "9", "0"):
        picture(tmp_path / "d" / name / "x.png")
    labels = read(net, tmp_path / "d").labels
    assert labels is not None
    assert labels.tolist() == [0, 2, 9]


def test_flat_folder_with_label_files(net: Model, tmp_path: Path) -> None:
    for name in ("b.png", "a b.png", "c.bmp"):
        picture(tmp_path / "d" / name)
    assert read(net, tmp_path / "d").labels is None
    labels = tmp_path / "l.txt"
    for text in ("c.bmp 7\nb.png 5\na b.png 3\n", "3\n5\n7\n"):
        labels.write_text(text)
        found = read(net, tmp_path / "d", labels).labels
        assert found is not None
        assert found.tolist() == [3, 5, 7]
    for text, message in {
        "b.png 5\na b.png 3\n": "no label for c.bmp",
        "c.bmp 7\nb.png 5\na b.png 3\nz.png 1\n": "4 labels for 3 images",
        "3\n5\n": "2 labels for 3 images",
        "3\nb.png 5\n7\n": "line 2",
        "c.bmp seven\n": "line 1",
    }.items():
        labels.write_text(text)
        with pytest.raises(InputError, match=message):
            read(net, tmp_path / "d", labels)


def image_model(tmp_path: Path, shape: list, dtype: int = TensorProto.FLOAT) -> Model:
    return model_of(tmp_path, x=(shape, dtype))


def test_layouts_and_types(tmp_path: Path) -> None:
    gray = picture(tmp_path / "g" / "a.png", (6, 4), "L")
    color = picture(tmp_path / "c" / "a.png", (6, 4))
    x = read(image_model(tmp_path, ["N", 4, 6, 3]), tmp_path / "c").inputs["x"]
    np.testing.assert_allclose(x[0], color / 255, rtol=1e-6)
    x = read(image_model(tmp_path, ["N", 1, 4, 6]), tmp_path / "g").inputs["x"]
    np.testing.assert_allclose(x[0, 0], gray / 255, rtol=1e-6)
    x = read(image_model(tmp_path, ["N", 4, 6]), tmp_path / "g").inputs["x"]
    np.testing.assert_allclose(x[0], gray / 255, rtol=1e-6)
    x = read(image_model(tmp_path, ["N", 4, 6, 3], TensorProto.UINT8), tmp_path / "c").inputs["x"]
    np.testing.assert_array_equal(x[0], color)
    x = read(image_model(tmp_path, ["N", 3, 4, 6]), tmp_path / "g").inputs["x"]  # gray file, colour model
    np.testing.assert_allclose(x[0, 2], gray / 255, rtol=1e-6)


def test_resizing_only_where_asked(net: Model, tmp_path: Path) -> None:
    ramp = np.tile(np.linspace(0, 255, 64).astype(np.uint8)[None, :, None], (32, 1, 3))  # 64 wide, 32 high
    (tmp_path / "d").mkdir()
    Image.fromarray(ramp).save(tmp_path / "d" / "a.png")
    with pytest.raises(InputError, match="is 64x32 pixels, the model takes 8x8"):
        read(net, tmp_path / "d")
    stretched = read(net, tmp_path / "d", resize="stretch").inputs["image"][0, 0, 4]
    np.testing.assert_allclose(stretched, (np.arange(8) * 8 + 3.5) / 63, atol=0.02)
    cropped = read(net, tmp_path / "d", resize="crop").inputs["image"][0, 0, 4]
    # the middle 28 of 64 columns: 32 * 224/256 of the shorter side
    np.testing.assert_allclose(cropped, (18 + np.arange(8) * 3.5 + 1.25) / 63, atol=0.02)


def damaged(path: Path) -> None:
    picture(path)
    path.write_bytes(path.read_bytes()[:-40])


BAD_IMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "truncated": (damaged, "is damaged"),
    "no image": (lambda path: path.write_bytes(b"hello"), "not an image that can be read"),
    "empty": (lambda path: path.write_bytes(b""), "not an image that can be read"),
    "16 bits": (lambda path: Image.fromarray(np.zeros((8, 8), np.uint16)).save(path), "8 bits a channel"),
    "another format under the name": (lambda path: path.write_bytes(b"GIF89a" + b"\0" * 50), "not an image"),
}


@pytest.mark.parametrize("case", sorted(BAD_IMAGES))
def test_bad_images(net: Model, tmp_path: Path, case: str) -> None:
    make, message = BAD_IMAGES[case]
    (tmp_path / "d").mkdir()
    make(tmp_path / "d" / "a.png")
    with pytest.raises(InputError) as raised:
        read(net, tmp_path / "d")
    assert message in str(raised.value)
    assert "a.png" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_bomb_is_refused_before_it_is_unpacked(
    net: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    header = b"IHDR" + (40_000).to_bytes(4, "big") * 2 + b"\x01\0\0\0\0"  # 1.6 gigapixels of 1 bit
    chunk = (13).to_bytes(4, "big") + header + zlib.crc32(header).to_bytes(4, "big")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + chunk + b"\0\0\0\x10IDAT" + b"\0" * 20)
    for resize in ("crop", None):
        with pytest.raises(InputError, match="too many pixels"):
            read(net, tmp_path / "d", resize=resize)
    picture(tmp_path / "d" / "a.png", (50, 50))
    monkeypatch.setattr(images, "_MAX_PIXELS", 2000)
    with pytest.raises(InputError, match="is 50x50 pixels, more than"):
        read(net, tmp_path / "d", resize="crop")
    assert not recwarn.list


def test_bad_folders(net: Model, tmp_path: Path) -> None:
    folder = tmp_path / "d"
    folder.mkdir()
    with pytest.raises(InputError, match="holds no images"):
        read(net, folder)
    picture(folder / "cat" / "a.png")
    (folder / "dog").mkdir()
    with pytest.raises(InputError, match=r"class folder .*dog holds no images"):
        read(net, folder)
    picture(folder / "dog" / "a.png")
    (tmp_path / "l.txt").write_text("0\n1\n")
    with pytest.raises(InputError, match="gives labels too"):
        read(net, folder, tmp_path / "l.txt")
    picture(folder / "a.png")
    with pytest.raises(InputError, match="both images and folders"):
        read(net, folder)
    for number in range(11):
        picture(tmp_path / "eleven" / f"class{number:02}" / "a.png")
    with pytest.raises(InputError, match="label 10 is out of range"):
        read(net, tmp_path / "eleven")


def test_models_that_take_no_image(tmp_path: Path) -> None:
    picture(tmp_path / "d" / "a.png")
    with pytest.raises(InputError, match="feeds one input, the model takes a, b"):
        read(model_of(tmp_path, a=(["N", 3], 1), b=(["N", 3], 1)), tmp_path / "d")
    for shape in (["N", 16], ["N", 4, 8, 8], ["N", 3, 8, 8, 8]):
        with pytest.raises(InputError, match="which are no images"):
            read(image_model(tmp_path, shape), tmp_path / "d")
    with pytest.raises(InputError, match="int8"):
        read(image_model(tmp_path, ["N", 3, 8, 8], TensorProto.INT8), tmp_path / "d")


def test_bad_mean_and_std(net: Model, tmp_path: Path) -> None:
    picture(tmp_path / "d" / "a.png")
    for wrong, message in (
        ({"mean": (0.5, 0.5)}, "--mean has 2 values"),
        ({"std": (0.0,)}, "above 0"),
        ({"std": (float("nan"),)}, "not finite"),
    ):
        with pytest.raises(InputError, match=message):
            read(net, tmp_path / "d", **wrong)
    with pytest.raises(InputError, match="leave --mean and --std out"):
        read(image_model(tmp_path, ["N", 3, 8, 8], TensorProto.UINT8), tmp_path / "d", mean=(0.5,))
