"""GPUs as ``rocm-smi -a --json`` told of them: what a user can send where wavefit itself is not installed.

Source of the keys: ROCm, rocm_smi.py. They differ by version ("GPU ID" became "Device ID"; a GPU that says "N/A" to a
key does not know it), so several stand for one fact.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wavefit.device.files import read_text
from wavefit.schema import Device, Link, Pool, Sensors

FILE = "wavefit/rocm-smi.json"
"""Where a recording has it."""

_SOURCE = "rocm-smi"


def gpus(root: Path) -> list[Device]:
    """One Device a card, without what the tool does not print: CUs, wave size, whether it is integrated."""
    known = cards(read_text(root / FILE) or "")
    driver = (
        f"amdgpu {known['system']['Driver version']}" if "Driver version" in known.get("system", {}) else None
    )
    return [_device(card, driver) for name, card in known.items() if re.fullmatch(r"card\d+", name)]


def cards(text: str) -> dict[str, dict[str, str]]:
    """The tool's groups, "card0" and "system", each with what it knows; empty where the text is not its output."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    groups = found.items() if isinstance(found, dict) else ()
    return {name: _known(group) for name, group in groups if isinstance(group, dict)}


def _known(group: Mapping[str, Any]) -> dict[str, str]:
    texts = {key.strip(): value.strip() for key, value in group.items() if isinstance(value, str)}
    return {key: value for key, value in texts.items() if value.upper() not in ("", "N/A", "UNKNOWN", "NONE")}


def _device(card: Mapping[str, str], driver: str | None) -> Device:
    chip = re.fullmatch(r"0x([0-9a-fA-F]{4})", _first(card, "Device ID", "GPU ID") or "")
    gfx = re.match(r"gfx[0-9a-f]{3,4}", card.get("GFX Version", "").lower())
    address = re.fullmatch(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", card.get("PCI Bus", "").lower())
    pools = [_pool(card, name, words) for name, words in _POOLS.items()]
    return Device(
        id="",
        kind="gpu",
        vendor="amd",
        name=_name(_first(card, "Card Series", "Card series")),
        gfx=gfx[0] if gfx else None,
        pci_id=f"1002:{chip[1].lower()}" if chip else None,
        pci_address=address[0] if address else None,
        memory=tuple(pool for pool in pools if pool is not None),
        link=_link(card.get("pcie clock level", "")),
        sensors=_sensors(card),
        driver=driver,
    )


_POOLS = {"vram": "VRAM", "gtt": "GTT", "vis_vram": "VIS_VRAM"}


def _pool(card: Mapping[str, str], name: str, words: str) -> Pool | None:
    total = _number(card.get(f"{words} Total Memory (B)"))
    used = _number(card.get(f"{words} Total Used Memory (B)"))
    if not total:
        return None
    free = int(total - used) if used is not None and 0 <= used <= total else None
    return Pool(name=name, total_bytes=int(total), free_bytes=free, source=_SOURCE)


def _link(text: str) -> Link | None:
    """ "1 (16.0GT/s x16)": the level, and what it is."""
    found = re.search(r"\((\d{1,3}(?:\.\d)?)GT/s x(\d{1,2})\)", text)
    return Link(speed_gts=float(found[1]), width=int(found[2])) if found else None


def _sensors(card: Mapping[str, str]) -> Sensors | None:
    cap = _number(card.get("Max Graphics Package Power (W)"))
    found = Sensors(power_cap_w=cap or None, fan_rpm=_number(card.get("Fan RPM")))
    return found if found != Sensors() else None


def _name(text: str | None) -> str | None:
    """A name, where it is one: some versions print the id again."""
    return None if text is None or text.lower().startswith("0x") else text


def _first(card: Mapping[str, str], *keys: str) -> str | None:
    return next((card[key] for key in keys if key in card), None)


def _number(text: str | None) -> float | None:
    return float(text) if text is not None and re.fullmatch(r"\d{1,18}(\.\d{1,6})?", text, re.ASCII) else None
