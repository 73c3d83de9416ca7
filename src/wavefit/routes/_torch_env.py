"""What a PyTorch process is told before it imports torch, and right after.

Caches lie in the user's cache folder, keyed by PyTorch's version and build, so that only the first session with a
model and a shape pays for MIOpen's search and for compiling. A variable that the user has set is left alone.

Sources: MIOpen's find modes and folders, https://rocm.docs.amd.com/projects/MIOpen/en/latest/, its pages
how-to/find-and-immediate and reference/env_variables; PYTORCH_MIOPEN_SUGGEST_NHWC, PyTorch's ATen/native/ConvUtils.h.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from wavefit.routes._cache import user_cache
from wavefit.routes._torch_build import Build


def variables(build: Build, folder: Path, channels_last: bool) -> dict[str, str]:
    """Environment variables for one session; their folders lie below ``folder``."""
    root = folder / re.sub(r"[^\w.+-]", "_", f"torch-{build.version}-{build.hip or build.cuda or 'cpu'}")
    found = {"TORCHINDUCTOR_CACHE_DIR": str(root / "inductor"), "TRITON_CACHE_DIR": str(root / "triton")}
    if build.hip:
        found |= {
            # HYBRID: take what an earlier search found, else search over all kernels. The first run of a shape pays
            # for the search, steady runs get its result. Newer defaults skip kernels or bound the time.
            "MIOPEN_FIND_MODE": "HYBRID",
            "MIOPEN_USER_DB_PATH": str(root / "miopen-db"),
            "MIOPEN_CUSTOM_CACHE_DIR": str(root / "miopen-kernels"),
        }
    if build.hip and channels_last:
        # Without them PyTorch copies channels-last tensors back before each MIOpen convolution.
        found |= {"PYTORCH_MIOPEN_SUGGEST_NHWC": "1", "PYTORCH_MIOPEN_SUGGEST_NHWC_BATCHNORM": "1"}
    return found


def prepare(build: Build, workdir: Path, channels_last: bool) -> None:
    """Sets the variables in this (child) process and makes their folders. Call it before torch is imported.

    Where the user's cache folder cannot be written, the caches go to ``workdir`` and are lost with it.
    """
    chosen = variables(build, _writable(user_cache(), workdir), channels_last)
    for name, value in chosen.items():
        if name not in os.environ:
            os.environ[name] = value
            if os.sep in value:
                Path(value).mkdir(parents=True, exist_ok=True)


def _writable(folder: Path, otherwise: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return otherwise
    return folder if os.access(folder, os.W_OK) else otherwise


def set_flags() -> None:
    """Full fp32 (no TF32), and a search for the fastest kernel of each convolution's shape."""
    import torch

    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    # On ROCm it would ask MIOpen to tune kernels as well, for minutes a convolution and past its find mode; without it
    # PyTorch calls MIOpen's find all the same (ATen/native/miopen/Conv_miopen.cpp; MIOpen's docs, conceptual/perfdb).
    torch.backends.cudnn.benchmark = torch.version.hip is None
    # One compiled version a shape; dynamo's default of 8 would refuse a longer batch sweep.
    torch._dynamo.config.cache_size_limit = 64
