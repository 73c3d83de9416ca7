"""What the routes for any vendor's GPU share: which GPUs there are, and which of them a runtime can be pointed at."""

from __future__ import annotations

from collections.abc import Sequence

from wavefit.schema import Device


def gpus(devices: Sequence[Device]) -> list[Device]:
    return [device for device in devices if device.kind == "gpu"]


def no_gpu(devices: Sequence[Device]) -> tuple[str, str] | None:
    """The reason and the fix where there is none."""
    if gpus(devices):
        return None
    return "no GPU is among the devices", "needs a GPU that `wavefit devices` lists"


def hidden(device: Device, devices: Sequence[Device], runtime: str) -> tuple[str, str] | None:
    """Why a runtime that only tells integrated from discrete GPUs cannot be pointed at this one; None where it can."""
    twins = [other.id for other in gpus(devices) if bool(other.integrated) == bool(device.integrated)]
    if twins[0] == device.id:
        return None
    kind = "integrated" if device.integrated else "discrete"
    return f"{runtime} takes the first {kind} GPU, {twins[0]}, and cannot be told to use {device.id}", (
        f"use --device {twins[0]} with this route"
    )
