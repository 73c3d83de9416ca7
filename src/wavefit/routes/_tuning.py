"""Routes that find their fastest kernels by trying them before a plan is measured.

Such a route sets ``TUNES``, and has a function ``tune(payload: Tuning, say) -> Tuned`` for a child process. What it
found shows in the route's ``versions()``, on which a record's key depends: a plan that was tuned is measured again.
"""

from __future__ import annotations

from wavefit.schema import Device, Model, Plan, Struct


class Tuning(Struct, frozen=True, kw_only=True):
    """What to tune for."""

    plan: Plan
    model: Model
    device: Device
    budget_s: float


class Tuned(Struct, frozen=True, kw_only=True):
    """What is known now."""

    operations: int  # distinct ones that were tuned, now or earlier
    faster: int  # of them, those where something beat what is taken without tuning
