"""A CPU, measured with NumPy: copies by every thread at once, a product by its BLAS."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from wavefit.child.main import Reporter
from wavefit.device.measure.order import Order, Reading, Readings
from wavefit.device.measure.timing import bandwidth, launch, mib, product, seconds

_COPY_BYTES = 256 << 20  # past any cache
_MATRIX = 2048


def measure(payload: Order, say: Reporter) -> Readings:
    """Copy bandwidth of the memory, fp32 product, and what one call of a small operator takes."""
    import numpy as np

    say.stage("copy")
    readings = {"bandwidth": _copy(payload)}
    say.stage("multiply")
    random = np.random.default_rng(0)
    first, second = (random.random((_MATRIX, _MATRIX), dtype=np.float32) for _ in range(2))
    out = np.empty_like(first)
    taken = seconds(lambda: np.matmul(first, second, out=out), lambda: None)
    readings["fp32"] = product(_MATRIX, taken, f"product of {_MATRIX}x{_MATRIX} matrices")
    small = random.random(1, dtype=np.float32)
    taken = seconds(lambda: np.add(small, small, out=small), lambda: None)
    readings["launch_s"] = launch(taken, "one addition of one element")
    return Readings(runtime=f"NumPy {np.__version__}", readings=readings)


def _copy(order: Order) -> Reading:
    """Every thread copies its own part: one alone does not fill the memory's channels. Copying frees the GIL."""
    import numpy as np

    threads = order.device.threads or 1
    free = min((pool.free_bytes or 1 << 30 for pool in order.device.memory), default=1 << 30)
    count = min(_COPY_BYTES, free // 8) // 4
    source = np.random.default_rng(0).random(count, dtype=np.float32)
    target = np.ones_like(source)
    pairs = list(zip(np.array_split(target, threads), np.array_split(source, threads), strict=True))
    with ThreadPoolExecutor(threads) as pool:
        taken = seconds(lambda: list(pool.map(lambda pair: np.copyto(*pair), pairs)), lambda: None)
    return bandwidth(
        2 * source.nbytes, taken, f"copy of {mib(source.nbytes)} by {threads} threads, read and written"
    )
