"""Another OpenCL runtime than the one that is found first, for what that one lacks."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
LIBRARY = Path(sys.prefix) / "lib" / "libintelocl.so"


@pytest.fixture
def intel(tmp_path: Path) -> dict[str, str]:
    """The environment in which Intel's runtime for CPUs comes first: loaders read it at the import of pyopencl."""
    if not LIBRARY.exists():
        pytest.skip("pip install intel-opencl-rt intel-cmplr-lib-rt")
    (tmp_path / "intel.icd").write_text(f"{LIBRARY}\n")
    paths = [str(TESTS), *(path for path in sys.path if path)]
    return {**os.environ, "OCL_ICD_VENDORS": str(tmp_path), "PYTHONPATH": os.pathsep.join(paths)}
