"""An integrated GPU beside a card: does HIP take the card?"""

from __future__ import annotations

from functools import partial

from wavefit.doctor import kernel
from wavefit.doctor.machine import Machine
from wavefit.schema import Device, Finding, Fix

CHECK = "integrated_beside_discrete"
_finding = partial(Finding, check=CHECK, layer="runtime")
_VARIABLES = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")


def check(machine: Machine) -> list[Finding]:
    """HIP does not put the faster GPU first, and a library without kernels for the integrated one fails on it.

    Sources: ROCm docs, "GPU isolation techniques" (HIP_VISIBLE_DEVICES takes HIP's index; on Linux
    ROCR_VISIBLE_DEVICES hides a GPU from all of ROCm); ROCm issue 1686 (index = KFD node less 1, crash without it).
    """
    gpus = [gpu for gpu in kernel.gpus(machine) if kernel.driver(gpu) == "amdgpu"]
    integrated = [gpu for gpu in gpus if gpu.integrated]
    cards = [gpu for gpu in gpus if gpu.integrated is False]
    if not integrated or not cards:
        return []
    environ = machine.process.environ if machine.process is not None else {}
    wanted = [index for card in cards if (index := kernel.hip_index(machine, card)) is not None]
    for name in _VARIABLES:
        asked = environ.get(name)
        if asked is not None and asked.strip().startswith("-"):
            return []  # visible_devices tells
        if asked is not None:
            chosen = {int(word) for word in asked.split(",") if word.strip().isdecimal()}
            if chosen and wanted and chosen.isdisjoint(wanted):
                return [_note(machine, integrated[0], cards[0], wanted, f"{name}={asked} hides the card")]
            return [
                _finding(
                    status="ok",
                    title=f"{name}={asked} says which GPU HIP takes",
                    evidence=("the environment",),
                )
            ]
    return [_note(machine, integrated[0], cards[0], wanted)]


def _note(machine: Machine, integrated: Device, card: Device, indices: list[int], asked: str = "") -> Finding:
    value = ",".join(map(str, indices)) or "INDEX"
    order = [
        f"HIP's index of {kernel.called(gpu)}: {kernel.hip_index(machine, gpu)}" for gpu in (integrated, card)
    ]
    return _finding(
        status="note",
        title=f"{kernel.called(integrated)} is integrated, beside {kernel.called(card)}: say which one HIP takes",
        evidence=(*order, asked) if asked else tuple(order),
        cause="HIP takes the first GPU, whatever its speed, and many libraries have no kernels for integrated ones",
        fixes=(
            Fix(command=f"export HIP_VISIBLE_DEVICES={value}", why="in the shell that starts the program"),
            Fix(
                command=f"export ROCR_VISIBLE_DEVICES={value}",
                why="in its place, hides the other from all of ROCm",
            ),
        ),
        # rocminfo lies below HIP, whose variable it does not read: ROCR-Runtime issue 155
        verify=f"ROCR_VISIBLE_DEVICES={value} rocminfo | grep -E 'Marketing Name|gfx'",
    )
