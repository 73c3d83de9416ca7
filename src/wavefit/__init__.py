"""wavefit: fit a trained model to the AMD GPU at hand.

``wavefit.open("NAME.wavefit")`` opens a bundle; calling what it returns runs the model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wavefit.bundle.runner import BundleRunner

__all__ = ["__version__", "open"]

__version__ = "0.1.0"


def open(path: str) -> BundleRunner:
    """Opens a bundle on this machine. See :func:`wavefit.bundle.runner.open_bundle`."""
    from wavefit.bundle.runner import open_bundle

    return open_bundle(path)
