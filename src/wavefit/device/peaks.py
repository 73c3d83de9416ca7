"""What a GPU can do at most, with the source of each figure: as published, else CUs x operations a clock x clock."""

from __future__ import annotations

from collections.abc import Mapping

from wavefit.device._catalogue_load import Product, Target
from wavefit.schema import Figure


def of_product(product: Product, target: Target | None) -> dict[str, Figure]:
    """The peaks of one GPU of a product, "fp32" to "int8_matrix" in FLOP/s or OP/s and "bandwidth" in B/s.

    What the maker publishes comes first; what it leaves out is computed from the target's operations a clock. A card
    that the system sees as several GPUs is divided among them.
    """
    units = product.compute_units // product.gpus
    found = {}
    if target is not None:
        found = computed(target, units, product.boost_hz, f"boost clock of the {product.name}")
    for rate, value in product.peaks.items():
        found[rate] = Figure(value=value / product.gpus, unit=_unit(rate), source=_published(product))
    return found | bandwidth(product)


def computed(
    target: Target, compute_units: int, clock_hz: float, clock_source: str = "the clock given"
) -> dict[str, Figure]:
    """CUs x operations a clock and CU x clock, for every rate that the target's entry knows."""
    clock = f"{clock_hz / 1e9:.4g} GHz, {clock_source}"
    return {
        rate: Figure(
            value=compute_units * operations * clock_hz,
            unit=_unit(rate),
            source=f"{compute_units} CUs x {operations} a clock ({target.flops_source[rate]}) x {clock}",
        )
        for rate, operations in target.flops.items()
    }


def bandwidth(product: Product) -> dict[str, Figure]:
    """The memory bandwidth of one GPU of a product, in B/s; nothing where it is not known."""
    if product.bandwidth_bytes_per_s is None:
        return {}
    value = product.bandwidth_bytes_per_s / product.gpus
    return {"bandwidth": Figure(value=value, unit="B/s", source=_published(product))}


def agreed(all_peaks: list[Mapping[str, Figure]], tolerance: float = 0.02) -> dict[str, Figure]:
    """The figures, the lowest of each, on which all of several products agree within a tolerance."""
    if not all_peaks:
        return {}
    names = set.intersection(*(set(peaks) for peaks in all_peaks))
    found = {}
    for name in sorted(names):
        figures = sorted((peaks[name] for peaks in all_peaks), key=lambda figure: figure.value)
        if figures[-1].value <= figures[0].value * (1 + tolerance):
            found[name] = figures[0]
    return found


def _published(product: Product) -> str:
    """The product and the source that carries its figures; catalogue.toml has the others."""
    return f"{product.name}: {product.source[0]}"


def _unit(rate: str) -> str:
    return "OP/s" if rate.startswith("int8") else "FLOP/s"
