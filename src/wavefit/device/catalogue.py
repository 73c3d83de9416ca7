"""Facts about GPUs that no driver tells, each with its source: see ``catalogue.toml``."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Any

import msgspec

from wavefit.device import peaks
from wavefit.device._catalogue_load import Catalogue, Product, Rate, Support, Target, load, parse
from wavefit.device.gfx import is_integrated
from wavefit.errors import InputError
from wavefit.schema import Device, Figure, Link, Pool

__all__ = [
    "Catalogue", "Product", "Rate", "Support", "Target",
    "device_of", "fill", "parse", "product", "products", "support", "target", "targets",
]  # fmt: skip

_NOISE = {
    "amd",
    "ati",
    "nvidia",
    "radeon",
    "instinct",
    "geforce",
    "graphics",
    "ryzen",
    "rx",
    "pro",
    "ai",
    "gpu",
}
_GTS = {
    1: 2.5,
    2: 5.0,
    3: 8.0,
    4: 16.0,
    5: 32.0,
    6: 64.0,
}  # GT/s a lane; PCI-SIG, PCI Express Base Specification 6.0


# ---- Looking up -----------------------------------------------------------------------------------------------------


def targets() -> tuple[Target, ...]:
    return tuple(load().targets.values())


def target(gfx: str) -> Target | None:
    """The facts of a compiler's target, "gfx1103"; None where the catalogue lacks it."""
    return load().targets.get(gfx.lower())


def products() -> tuple[Product, ...]:
    return load().products


def product(name_or_pci: str) -> Product | None:
    """The product of a full name, "AMD Radeon RX 7900 XTX", or of a PCI id "1002:74a1" that only one product has.

    None where the catalogue lacks it, and where several products share the id.
    """
    text = name_or_pci.strip().lower()
    if re.fullmatch(r"[0-9a-f]{4}:[0-9a-f]{4}", text):
        found = [] if text in load().shared_pci_ids else [each for each in products() if text in each.pci_ids]
    else:
        found = _named(text)
    return found[0] if len(found) == 1 else None


def support(gfx: str) -> tuple[Support, ...]:
    """What each runtime says of a target; nothing where no source names it."""
    return tuple(each for each in load().support if gfx.lower() in each.targets)


def _named(name: str) -> list[Product]:
    key = _key(name)
    return [each for each in products() if key and key in (_key(text) for text in (each.name, *each.aliases))]


def _key(name: str) -> str:
    """A name without the makers' and families' names, blanks and signs: "AMD Radeon(TM) RX 7900 XT" is "7900xt"."""
    words = re.findall(r"[a-z]+|[0-9]+", re.sub(r"\((tm|r)\)|[™®]", " ", name.lower()))
    return "".join(word for word in words if word not in _NOISE)


# ---- A GPU that is not here -----------------------------------------------------------------------------------------


def device_of(name: str) -> Device:
    """A Device for a GPU that is not here, by target ("gfx1103") or product name ("7900 xtx", "780M").

    A target alone stands for the product that the catalogue lists first for it; the Device's name says so.

    Raises:
        InputError: nothing is called so, or several products are; the message lists them.
    """
    if re.fullmatch(r"gfx[0-9a-f]+", name.strip().lower()):
        return _of_target(name.strip().lower())
    return _of_product(_find(name))


def _of_target(gfx: str) -> Device:
    facts = target(gfx)
    if facts is None:
        known = ", ".join(sorted(load().targets, key=lambda each: (len(each), each)))
        raise InputError(f"the catalogue has no target {gfx}", f"it has {known}")
    typical = next((each for each in products() if each.gfx == gfx), None)
    if typical is None:
        return fill(Device(id=gfx, kind="gpu", vendor="amd", gfx=gfx, integrated=facts.integrated))
    return msgspec.structs.replace(_of_product(typical), id=gfx, name=f"{gfx} (taken as {typical.name})")


def _find(name: str) -> Product:
    key = _key(name)
    found = _named(name) or [
        each for each in products() if key and any(key in _key(text) for text in (each.name, *each.aliases))
    ]
    if len(found) == 1:
        return found[0]
    if found:
        listed = ", ".join(each.name for each in found)
        raise InputError(f"{name!r} may be any of several GPUs", f"name one of {listed}")
    by_key = {_key(each.name): each.name for each in products()}
    near = [by_key[each] for each in get_close_matches(key, by_key, n=3, cutoff=0.5)]
    fix = f"perhaps {', '.join(near)}?" if near else "name a product (RX 7900 XTX) or a target (gfx1100)"
    raise InputError(f"the catalogue has no GPU called {name!r}", fix)


def _of_product(found: Product) -> Device:
    pci_id = found.pci_ids[0] if len(found.pci_ids) == 1 else None
    integrated = is_integrated(found.gfx, pci_id)  # MI300A is an APU with a target that cards have too
    source = "; ".join(found.source)
    memory = None if found.memory_bytes is None else found.memory_bytes // found.gpus
    speed = _GTS.get(found.pcie_gen) if found.pcie_gen else None
    device = Device(
        id=re.sub(r"[^a-z0-9]+", "-", found.name.lower()),
        kind="gpu",
        vendor=found.vendor,
        name=found.name,
        gfx=found.gfx,
        integrated=memory is None if integrated is None else integrated,
        pci_id=pci_id,
        compute_units=found.compute_units // found.gpus,
        memory=(Pool(name="vram", total_bytes=memory, source=source),) if memory else (),
        link=Link(max_speed_gts=speed, max_width=found.pcie_lanes) if speed else None,
    )
    return fill(device)


# ---- A GPU that is here ---------------------------------------------------------------------------------------------


def fill(device: Device) -> Device:
    """A Device with what the catalogue knows added: wave sizes, LDS, registers, peaks; name, caches and CUs where the
    product is certain. What the machine itself said stays, and no model is named from an id that several models share.
    """
    if device.kind != "gpu":
        return device
    facts = target(device.gfx) if device.gfx else None
    known = _identified(device)
    added: dict[str, Any] = {"peaks": _peaks(device, facts, known) | device.peaks}
    if known is not None:
        sizes = {"l2_bytes": known.l2_bytes, "l3_bytes": known.l3_bytes}
        added["name"] = device.name or known.name
        added["compute_units"] = device.compute_units or known.compute_units // known.gpus
        added["caches"] = {k: v // known.gpus for k, v in sizes.items() if v} | device.caches
    if facts is not None:
        added["wave_sizes"] = device.wave_sizes or facts.wave_sizes
        added["lds_bytes"] = device.lds_bytes or facts.lds_bytes
        wave = added["wave_sizes"][0]
        added["vgprs"] = device.vgprs or facts.vgprs.get(wave)
    return msgspec.structs.replace(device, **added)


def _identified(device: Device) -> Product | None:
    """The product that a GPU is for certain: by its full name, or by an id that no other product has."""
    by_name = product(device.name) if device.name else None
    found = by_name or (product(device.pci_id) if device.pci_id else None)
    return found if found is not None and _fits(found, device) else None


def _fits(candidate: Product, device: Device) -> bool:
    units = candidate.compute_units // candidate.gpus
    return device.gfx in (None, candidate.gfx) and device.compute_units in (None, units)


def _peaks(device: Device, facts: Target | None, known: Product | None) -> dict[str, Figure]:
    if known is not None:
        return peaks.of_product(known, facts)
    if facts is None or device.compute_units is None:
        return {}
    alike = [each for each in products() if device.pci_id in each.pci_ids and _fits(each, device)]
    if not alike and device.clock_hz is not None:
        driver = "highest compute clock that the driver names"
        return peaks.computed(facts, device.compute_units, device.clock_hz, driver)
    if not alike:
        return {}
    slowest = min(alike, key=lambda each: each.boost_hz)
    clock = f"boost clock of the {slowest.name}, which has this PCI id and as many CUs"
    found = peaks.computed(facts, device.compute_units, slowest.boost_hz, clock)
    return found | peaks.agreed([peaks.bandwidth(each) for each in alike])
