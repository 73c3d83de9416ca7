"""OpenCL's own dot products of bytes and arithmetic in half, on a runtime for CPUs that has both: Intel's."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytest.importorskip("pyopencl")


def test_words_are_right_by_opencls_own_functions(intel: dict[str, str]) -> None:
    command = [sys.executable, "-W", "ignore", "-m", "native.opencl.narrow_here"]
    done = subprocess.run(command, env=intel, capture_output=True, text=True, timeout=300, check=False)
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
