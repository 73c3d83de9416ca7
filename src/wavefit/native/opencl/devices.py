"""The OpenCL device that a Device means."""

from __future__ import annotations

from typing import Any

from wavefit.errors import RouteError
from wavefit.schema import Device, Runtime


def runtime(device: Device) -> Runtime | None:
    """The OpenCL runtime that drives a device; None where none was seen."""
    found = (each for each in device.runtimes if each.name == "opencl" and each.index is not None)
    return next(found, None)


def find(device: Device) -> Any:
    """The ``pyopencl.Device``.

    Raises:
        RouteError: no OpenCL platform has it (any more).
    """
    import pyopencl as cl

    seen = runtime(device)
    if seen is None:
        raise RouteError(f"OpenCL does not see {device.id}", "wavefit doctor says what is missing")
    try:
        platforms = cl.get_platforms()
    except cl.Error as error:
        raise RouteError(f"no OpenCL platform is installed: {error}") from error
    for platform in platforms:
        if platform.name.strip() == seen.platform:
            devices = platform.get_devices()
            if seen.index is not None and seen.index < len(devices):
                return devices[seen.index]
    raise RouteError(
        f"OpenCL's platform {seen.platform!r} no longer has device {seen.index}", "run the command again"
    )
