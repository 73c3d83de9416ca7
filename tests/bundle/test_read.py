from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from fakes import models, records
from msgspec.structs import replace

from wavefit.bundle.read import load_bundle, model_of, picked
from wavefit.bundle.write import write_bundle
from wavefit.errors import InputError
from wavefit.model.load import load
from wavefit.schema import Bundle

ALL = records.journal()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A written bundle, of a model whose weights lie in a file of their own."""
    source = models.save_external(models.conv_net(), tmp_path / "source.onnx", "weights.bin")
    model = load(source)
    folder = tmp_path / "net.wavefit"
    folder.mkdir()
    write_bundle(folder, records.bundle(ALL), model, [replace(ALL[0], model=model)], "<p>page</p>")
    return folder


def rewrite(folder: Path, **changes: object) -> None:
    path = folder / "bundle.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_every_file_is_listed_with_its_hash(folder: Path) -> None:
    bundle, read = load_bundle(folder)
    assert sorted(bundle.files) == ["model.onnx", "records.jsonl", "report.html", "weights.bin"]
    for name, digest in bundle.files.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
    assert [record.key for record in read] == [ALL[0].key]


def test_nothing_else_is_left(folder: Path) -> None:
    names = {path.name for path in folder.iterdir()}
    assert names == {"bundle.json", "model.onnx", "records.jsonl", "report.html", "weights.bin"}


def test_the_model_is_found_where_the_bundle_lies_now(folder: Path) -> None:
    moved = folder.rename(folder.parent / "elsewhere.wavefit")
    _, read = load_bundle(moved)
    model = model_of(moved, read[0])
    assert Path(model.path) == (moved / "model.onnx").resolve()
    assert load(Path(model.path)).sha256 == model.sha256


def test_weights_named_like_a_file_of_the_bundle_are_refused(tmp_path: Path) -> None:
    model = load(models.save_external(models.conv_net(), tmp_path / "source.onnx", "model.onnx"))
    with pytest.raises(InputError, match=r"keeps weights in 'model.onnx'"):
        write_bundle(tmp_path / "net.wavefit", records.bundle(ALL), model, [], "")


@pytest.mark.parametrize("name", ["model.onnx", "weights.bin", "records.jsonl", "report.html"])
def test_a_changed_file_is_refused_by_name(folder: Path, name: str) -> None:
    data = bytearray((folder / name).read_bytes())
    data[len(data) // 2] ^= 1
    (folder / name).write_bytes(data)
    with pytest.raises(InputError, match=rf"{name} was changed"):
        load_bundle(folder)


def test_a_missing_file_is_refused_by_name(folder: Path) -> None:
    (folder / "weights.bin").unlink()
    with pytest.raises(InputError, match=r"weights.bin is missing"):
        load_bundle(folder)


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/../../b", "C:\\x", "sub\\..\\..\\x"])
def test_a_manifest_cannot_name_files_outside(folder: Path, name: str) -> None:
    rewrite(folder, files={name: "0" * 64})
    with pytest.raises(InputError, match="outside the bundle"):
        load_bundle(folder)


def test_a_newer_schema_asks_for_an_update(folder: Path) -> None:
    rewrite(folder, schema=99, wavefit="9.0")
    with pytest.raises(InputError, match=r"written by wavefit 9.0.*update wavefit"):
        load_bundle(folder)


def test_a_broken_manifest_names_the_field(folder: Path) -> None:
    rewrite(folder, choice=5)
    with pytest.raises(InputError, match=r"bundle.json is not a Bundle.*choice"):
        load_bundle(folder)


def test_no_bundle_and_an_unfinished_one_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no bundle"):
        load_bundle(tmp_path)
    (tmp_path / ".work").mkdir()
    with pytest.raises(InputError, match="is unfinished"):
        load_bundle(tmp_path)


def test_the_pick_is_read(folder: Path) -> None:
    bundle = load_bundle(folder)[0]
    rewrite(folder, choice=json.loads(_with_pick(bundle, ALL[0].key)))
    assert picked(folder).key == ALL[0].key
    rewrite(folder, choice=json.loads(_with_pick(bundle, None)))
    with pytest.raises(InputError, match="no plan in"):
        picked(folder)


def _with_pick(bundle: Bundle, key: str | None) -> str:
    return json.dumps({"pick": key, "sentence": bundle.choice.sentence})
