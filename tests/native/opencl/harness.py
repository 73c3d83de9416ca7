"""Runs one implementation on the OpenCL device here, with canaries round every buffer and NaN where nothing is."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from wavefit.native.opencl import bench, kernels
from wavefit.native.operation import Config, Operation


@cache
def context() -> Any:
    """Of the first OpenCL device."""
    import pyopencl as cl

    return cl.Context([next(device for platform in cl.get_platforms() for device in platform.get_devices())])


def run(
    template: str, operation: Operation, config: Config, arrays: Sequence[np.ndarray | None]
) -> list[np.ndarray]:
    """The outputs of an operation, computed by one configuration of a template.

    Args:
        template: the file's name in opencl/kernels/.
        operation: its views say how the arrays lie in their buffers.
        config: of the template.
        arrays: one for each input, of the view's shape; elements of a buffer that no view shows are NaN.

    Raises:
        AssertionError: bytes outside a buffer, or elements that no output's view shows, were written.
    """
    for launch in kernels.get(template).build(operation, config).launches:
        sizes = zip(launch.kernel.global_size, launch.kernel.local_size, strict=True)
        assert all(whole % part == 0 for whole, part in sizes)  # OpenCL 1.2 wants it
    (device,) = context().devices
    done = bench.run(device, template, operation, config, arrays, context(), runs=1)
    assert not done.trespasses
    return list(done.outputs)
