"""The OpenCL templates for one device."""

from __future__ import annotations

from wavefit.native import chooser
from wavefit.native.chooser import Choices
from wavefit.native.opencl.kernels import TEMPLATES
from wavefit.native.operation import Limits

__all__ = ["Choices", "Chooser"]


class Chooser(chooser.Chooser):
    """See :class:`wavefit.native.chooser.Chooser`."""

    def __init__(self, limits: Limits, tuned: Choices | None = None) -> None:
        super().__init__(TEMPLATES, limits, tuned)
