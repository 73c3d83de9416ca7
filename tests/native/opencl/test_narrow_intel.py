"""OpenCL's own dot products of bytes and arithmetic in half, on a runtime for CPUs that has both: Intel's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyopencl")

TESTS = Path(__file__).parents[2]
LIBRARY = Path(sys.prefix) / "lib" / "libintelocl.so"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Where that runtime is the only one: loaders read this when pyopencl is imported, so in a child."""
    if not LIBRARY.exists():
        pytest.skip("pip install intel-opencl-rt intel-cmplr-lib-rt")
    (tmp_path / "intel.icd").write_text(f"{LIBRARY}\n")
    paths = [str(TESTS), *(path for path in sys.path if path)]
    return {**os.environ, "OCL_ICD_VENDORS": str(tmp_path), "PYTHONPATH": os.pathsep.join(paths)}


def test_words_are_right_by_opencls_own_functions(environment: dict[str, str]) -> None:
    command = [sys.executable, "-W", "ignore", "-m", "native.opencl.narrow_here"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert {line["sums"] for line in found} == {"dot4", "packed"}
    assert {line["case"].split(":")[0] for line in found} == {"conv_dot", "matmul_dot"}
    assert len(found) >= 6
    for line in found:
        assert not line["wrote"], line
        if line["sums"] == "dot4":
            assert line["off"] == 0, line
        else:
            assert 2.5e-4 < line["off"] < 1e-3, line  # more than the output's own rounding: sums are in half
