"""The real packages, each in its own environment: see verify_packages.py, which anyone can run for all of them."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("verify_packages.py")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["migraphx", "ep-webgpu"])
def test_a_real_package_without_its_gpu_is_a_clear_refusal(name: str, tmp_path: Path) -> None:
    if sys.platform != "linux" or importlib.util.find_spec("pip") is None:
        pytest.skip("installs Linux packages with pip")
    command = [sys.executable, str(SCRIPT), name, "--borrow", "--keep", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if "pip" in done.stderr and not done.stdout:
        pytest.skip(f"pip could not install it here: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok  ") == 5, done.stdout
