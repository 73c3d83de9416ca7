import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from wavefit.bench.memory import _high_water_mark, host_peak_bytes

MIB = 1 << 20
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="proc(5)")


def _child(code: str) -> list[int]:
    full = f"from wavefit.bench.memory import host_peak_bytes\n{code}"
    return [int(word) for word in subprocess.check_output([sys.executable, "-c", full], text=True).split()]


def test_the_peak_holds_memory_that_was_given_back() -> None:
    before, after = _child(
        "print(host_peak_bytes()); block = bytearray(b'1') * (200 << 20); del block; print(host_peak_bytes())"
    )
    assert after - before >= 190 * MIB
    assert after < 190 * MIB + 10 * before


@LINUX
def test_a_childs_peak_is_its_own_not_its_parents() -> None:
    block = np.ones(300 * MIB, dtype=np.uint8)
    peak, rusage = _child(
        "import resource; print(host_peak_bytes(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)"
    )
    assert block[-1] == 1
    parent = host_peak_bytes()
    assert parent is not None
    assert parent >= 300 * MIB
    assert peak < 300 * MIB
    assert rusage >= peak  # what would have been told otherwise; equal where the kernel does not hand it on


def test_reads_a_recorded_status(tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text("Name:\tpython\nVmPeak:\t  999999 kB\nVmHWM:\t   12345 kB\nVmRSS:\t   10000 kB\n")
    assert _high_water_mark(status) == 12345 * 1024


def test_unknown_is_none(tmp_path: Path) -> None:
    kernel_thread = tmp_path / "status"
    kernel_thread.write_text("Name:\tkthreadd\n")
    assert _high_water_mark(kernel_thread) is None
    assert _high_water_mark(tmp_path / "missing") is None
