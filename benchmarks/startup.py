"""What a newcomer pays before anything runs: the base install, and `wavefit --help`.

    python benchmarks/startup.py

Makes a fresh virtual environment in a temporary folder, installs this checkout into it (no extras), and prints its
size, its number of packages, and the wall time of `wavefit --help` beside that of an empty Python.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

RUNS = 15


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "venv"
        venv.create(folder, with_pip=True)
        python = folder / "bin" / "python"
        before = size_bytes(folder)
        started = time.perf_counter()
        subprocess.run([python, "-m", "pip", "install", "-q", Path(__file__).parents[1]], check=True)
        installed_s = time.perf_counter() - started
        packages = json.loads(subprocess.check_output([python, "-m", "pip", "list", "--format=json"]))
        print(f"base install: {(size_bytes(folder) - before) / 2**20:.0f} MiB, {len(packages)} packages, "
              f"{installed_s:.0f} s")  # fmt: skip
        help_s, empty_s = [], []
        for _ in range(RUNS):
            help_s.append(seconds([folder / "bin" / "wavefit", "--help"]))
            empty_s.append(seconds([python, "-c", ""]))
        full, empty = statistics.median(help_s), statistics.median(empty_s)
        print(
            f"wavefit --help: median {full:.3f} s of {RUNS}, an empty Python {empty:.3f} s, ratio {full / empty:.1f}"
        )


def seconds(command: list[object]) -> float:
    started = time.perf_counter()
    subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def size_bytes(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


if __name__ == "__main__":
    sys.exit(main())
