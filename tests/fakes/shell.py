"""A folder to type commands in."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from wavefit import cli

QUICK = ["--route", "ort_cpu", "--duration", "0.2"]


class Shell:
    """A folder to type commands in, with ``net.onnx`` (images 8x8, 10 classes), and a folder for temporary files."""

    def __init__(self, folder: Path, temporary: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.temporary = temporary
        self._capsys = capsys

    def type(self, *words: str) -> tuple[int, str, str]:
        """Exit code, standard output and standard error."""
        sys.argv = ["wavefit", *words]
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = self._capsys.readouterr()
        code = ended.value.code
        return code if isinstance(code, int) else 0, out, err

    def files(self) -> set[Path]:
        return {*self.folder.rglob("*"), *self.temporary.rglob("*")}

    def refuses(self, *words: str, says: str) -> None:
        before = self.files()
        code, out, err = self.type(*words)
        assert (code, out) == (2, ""), err
        assert err.startswith("wavefit: ")
        assert err.count("\n") == 1
        assert says in err
        assert self.files() == before
