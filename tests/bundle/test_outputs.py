from __future__ import annotations

from pathlib import Path

import numpy as np

from wavefit.bundle.outputs import save


def test_outputs_of_any_name_can_be_read_with_numpy(tmp_path: Path) -> None:
    names = ("logits", "file", "allow_pickle", "arr_0", "a/b", "größe")
    outputs = {name: np.full((2, 3), place, np.float32) for place, name in enumerate(names)}
    save(tmp_path / "out.npz", outputs)
    with np.load(tmp_path / "out.npz", allow_pickle=False) as archive:
        assert set(archive.files) == set(names)
        for name, array in outputs.items():
            np.testing.assert_array_equal(archive[name], array)
    assert [path.name for path in tmp_path.iterdir()] == ["out.npz"]


def test_text_is_written_without_pickle(tmp_path: Path) -> None:
    save(tmp_path / "out.npz", {"y": np.array([["one", "two"]], object)})
    with np.load(tmp_path / "out.npz", allow_pickle=False) as archive:
        assert archive["y"].tolist() == [["one", "two"]]
