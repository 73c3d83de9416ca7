"""What a device really does: copy bandwidth, transfers, matrix products, launches; kept for the planner.

Each device is measured through a runtime that it has (PyTorch or OpenCL on a GPU, NumPy on the CPU), in a child process
with a deadline, on random data: a chip that multiplies zeros draws less power and clocks higher.
"""

from __future__ import annotations

import tempfile
from datetime import datetime, timezone
from pathlib import Path

from wavefit import child
from wavefit.child import Say
from wavefit.device.measure.order import Order, Reading, Readings
from wavefit.device.measure.store import keep, measured, with_figures
from wavefit.schema import Device, Failure, Figure, Runtime

__all__ = ["measure", "measured"]

DEADLINE_S = 180.0  # a driver's first start and a runtime's import included; the measurements take about 10 s


def measure(device: Device, say: Say, folder: Path | None = None) -> Device | Failure:
    """The device with its measured peaks, which are kept in the user's cache folder too.

    "bandwidth", "h2d", "h2d_pinned", "d2h" and "d2h_pinned" are bytes a second (of a copy within the device what is
    read and what is written both count), "fp32" and "fp16" FLOP a second of a large matrix product, "launch_s"
    seconds for each of many small kernels started one after another.

    Args:
        device: with its runtimes, as :func:`wavefit.device.runtimes.probe_all` gives it.
        folder: where figures are kept; the user's cache where None.
    """
    failure = Failure(
        kind="refused",
        stage="measure",
        reason=f"no runtime here runs programs on {device.id}",
        fix="install PyTorch's build for this GPU, or pip install 'wavefit[opencl]' beside its OpenCL driver",
    )
    for function, runtime in ways(device):
        say(f"measuring {device.id} with {runtime.name}")
        with tempfile.TemporaryDirectory(prefix="wavefit-") as workdir:
            order = Order(device=device, runtime=runtime)
            answer = child.run(function, order, Readings, DEADLINE_S, Path(workdir), say)
        if not isinstance(answer, Failure):
            figures = _figures(answer)
            try:
                keep(device, figures, folder)
            except OSError as error:  # a read-only home, as containers have it
                say(f"the figures are not kept: {error}")
            return with_figures(device, figures)
        failure = answer
    return failure


def ways(device: Device) -> list[tuple[str, Runtime]]:
    """The functions that can measure a device, best first, each with the runtime that it uses."""
    if device.kind == "cpu":
        return [("wavefit.device.measure.on_numpy:measure", Runtime(name="numpy"))]
    found = []
    for name in ("torch", "opencl"):
        for runtime in device.runtimes:
            if runtime.name == name and runtime.index is not None:
                found.append((f"wavefit.device.measure.on_{name}:measure", runtime))
                break
    return found


def _figures(readings: Readings) -> dict[str, Figure]:
    date = datetime.now(timezone.utc).date().isoformat()
    return {name: _figure(reading, readings.runtime, date) for name, reading in readings.readings.items()}


def _figure(reading: Reading, runtime: str, date: str) -> Figure:
    source = f"measured with {runtime}, {reading.runs} runs, {date}: {reading.how}"
    return Figure(value=reading.value, unit=reading.unit, source=source)
