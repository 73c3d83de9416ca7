"""The example that runs the tutorial's kernel beside the engine's."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

pytest.importorskip("pyopencl")

FOLDER = Path(__file__).parents[3] / "examples" / "opencl_matmul"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module("matmul")


def test_every_kernel_is_held_to_float64(example: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    rows = example.main(["--size", "48", "--most", "2"])
    assert [row.name.split(",")[0] for row in rows] == ["tutorial", "wavefit", "wavefit", "numpy on the CPU"]
    assert all(0 < row.error < 1e-6 and row.seconds > 0 for row in rows)
    assert rows[2].seconds <= rows[1].seconds  # the untuned one is among those tried
    assert len(capsys.readouterr().out.splitlines()) == 1 + len(rows)


def test_a_wrong_kernel_ends_it(example: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """With b's transpose wanted, all are wrong."""
    error = example._error
    monkeypatch.setattr(example, "_error", lambda got, want: error(np.transpose(got), want))
    with pytest.raises(SystemExit, match=r"wrong: tutorial, 16x16, numpy on the CPU"):
        example.main(["--size", "16", "--most", "1"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--size", "100"], "multiple of 16"),
        (["--size", "0"], "multiple of 16"),
        (["--device", "99"], "OpenCL devices, numbered from 0"),
        (["--most", "0"], "at least 1"),
    ],
)
def test_what_it_cannot_do_is_said(
    example: ModuleType, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        example.main(arguments)
    assert said in capsys.readouterr().err
