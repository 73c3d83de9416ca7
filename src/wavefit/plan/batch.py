"""The memory that a device offers, and the largest batch that fits in it."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from wavefit.schema import Device, Pool, Struct

RESERVE_BYTES = 512 << 20  # of shared memory left to the system and its other programs: an assumption
_MOST = 1 << 16


class Budget(Struct, frozen=True, kw_only=True):
    """Bytes that may be used, and why so many. None where the machine does not tell."""

    bytes: int | None
    source: str


def with_memory(device: Device, gib: float) -> Device:
    """The device with that much memory for compute, as the user says: GTT or carve-out where it is integrated."""
    name = "ram" if device.kind == "cpu" else "gtt" if device.integrated else "vram"
    return replace(device, memory=(Pool(name=name, total_bytes=int(gib * 2**30), source="--memory"),))


def budget(device: Device, cpu: Device | None) -> Budget:
    """What a plan on this device may take.

    A discrete card offers its free VRAM. Where the memory is shared it is the least of what the runtime may map and
    what the system has left, less a reserve. Pools overlap, so they are never added.

    Args:
        device: where the plan runs.
        cpu: the machine's CPU, whose "ram" pool says what is available; None where the device is not in this machine.
    """
    pools = {pool.name: pool for pool in device.memory}
    if device.kind == "cpu":
        return _shared(None, pools.get("ram"))
    if device.integrated:
        own = pools.get("kfd") or _larger(pools.get("vram"), pools.get("gtt"))
        ram = next((pool for pool in cpu.memory if pool.name == "ram"), None) if cpu else None
        return _shared(own, ram)
    pool = pools.get("vram") or pools.get("kfd")
    if pool is None or _size(pool) is None:
        return Budget(bytes=None, source="the card's memory is not known")
    return Budget(bytes=_size(pool), source=f"{_what(pool)} VRAM ({pool.source})")


def _shared(own: Pool | None, ram: Pool | None) -> Budget:
    left = None if ram is None or _size(ram) is None else max(0, (_size(ram) or 0) - RESERVE_BYTES)
    mapped = None if own is None else _size(own)
    if left is None and mapped is None:
        return Budget(bytes=None, source="the shared memory is not known")
    if left is None or (mapped is not None and own is not None and mapped < left):
        assert own is not None
        return Budget(bytes=mapped, source=f"{_what(own)} {own.name.upper()} of the GPU ({own.source})")
    assert ram is not None
    said = f"{_what(ram)} RAM less a reserve of {RESERVE_BYTES >> 20} MiB ({ram.source})"
    return Budget(bytes=left, source=said)


def _size(pool: Pool) -> int | None:
    return pool.total_bytes if pool.free_bytes is None else pool.free_bytes


def _what(pool: Pool) -> str:
    return "total" if pool.free_bytes is None else "free"


def _larger(first: Pool | None, second: Pool | None) -> Pool | None:
    known = [pool for pool in (first, second) if pool is not None and _size(pool) is not None]
    return max(known, key=lambda pool: _size(pool) or 0, default=None)


def largest_batch(need: Callable[[int], int], limit: int, most: int = _MOST) -> int:
    """The largest batch that needs at most ``limit`` bytes; 0 where not even one item fits.

    ``need`` must not fall as the batch grows. It is asked where the straight line through two answers crosses the
    limit, at every third call halfway between what fits and what does not: few calls, each of which walks the graph.
    """
    needs = {1: need(1)}
    if needs[1] > limit:
        return 0
    low, high, last = 1, most + 1, 1  # low fits, high does not
    guess = 2
    while high - low > 1:
        guess = min(max(guess, low + 1), high - 1)
        needs[guess] = need(guess)
        if needs[guess] <= limit:
            last, low = low, guess
        else:
            last, high = low, guess
        bisects = len(needs) % 3 == 0 and high in needs
        guess = (low + high) // 2 if bisects else _crossing(needs, limit, low, high, last)
    return low


def _crossing(needs: dict[int, int], limit: int, low: int, high: int, last: int) -> int:
    """Where the line through two known batches crosses the limit; halfway where that is no better than they are."""
    other = high if high in needs else last
    rise = (needs[other] - needs[low]) / (other - low) if other != low else 0
    if rise <= 0:
        return (low + high) // 2
    return int(low + (limit - needs[low]) / rise)
