"""What ``catalogue.toml`` holds, read and checked: an unknown key, an unknown value or a missing source is an error."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec

from wavefit.schema import Struct

Rate = Literal["fp32", "fp32_matrix", "fp16", "fp16_matrix", "bf16_matrix", "int8", "int8_matrix"]
"""What a peak is of: number format, with matrix instructions ("_matrix") or the vector units; dense."""

Status = Literal["official", "unofficial", "dropped", "refused"]


class Target(Struct, frozen=True, kw_only=True):
    """What every GPU of one compiler target has."""

    gfx: str  # "gfx1103"
    architecture: str  # "RDNA 3"
    integrated: bool | None  # part of an APU; None: made as both
    generic: str | None  # the generic target whose code objects it runs too: "gfx11-generic"
    wave_sizes: tuple[int, ...]  # lanes, the compiler's default first
    lds_bytes: int  # that one work-group may take
    vgprs: dict[int, int]  # wave size -> registers a lane, shared by the waves of a SIMD
    vgpr_granule: dict[int, int]  # wave size -> a wave gets a multiple of this many
    max_waves_per_simd: int | None
    simds_per_cu: int
    matrix: tuple[str, ...]  # "mfma", "smfmac", "wmma", "swmmac"
    dot: tuple[str, ...]  # dot products of vector lanes, as LLVM's assembler calls them
    packed_fp16: bool  # two fp16 operations a lane and instruction
    bf16: bool  # any bf16 arithmetic: dot product, matrix or packed
    flops: dict[Rate, int]  # operations a clock and CU, a multiply-add counts as 2; absent: not known
    source: tuple[str, ...]
    flops_source: dict[Rate, str]  # of each figure in ``flops``


class Product(Struct, frozen=True, kw_only=True):
    """A GPU as it is sold. None where no source was found."""

    name: str
    aliases: tuple[str, ...]
    vendor: Literal["amd", "nvidia"]
    gfx: str | None  # None: not AMD's
    pci_ids: tuple[str, ...]  # "1002:744c"; other products may have them too
    gpus: int  # GPUs that the system sees: 2 on an MI250X; all figures below are of the whole card
    compute_units: int  # CUs; SMs on NVIDIA
    boost_hz: float
    memory_bytes: int | None
    memory_bus_bits: int | None
    memory_bits_per_s: float | None  # a pin
    bandwidth_bytes_per_s: float | None  # of an APU: with the fastest memory that it takes
    l2_bytes: int | None
    l3_bytes: int | None  # Infinity Cache
    pcie_gen: int | None
    pcie_lanes: int | None
    power_w: float | None  # of the board; of an APU, of the whole package
    peaks: dict[Rate, float]  # FLOP/s (OP/s for int8) as published, dense
    source: tuple[str, ...]


class Support(Struct, frozen=True, kw_only=True):
    """What one runtime in some versions says of a set of targets."""

    runtime: str  # "ROCm", "MIGraphX", "Triton"
    versions: str  # for people: "10.0", "10.2 (MIGraphX 2.19)"
    status: Status
    targets: tuple[str, ...]
    note: str
    source: tuple[str, ...]


class Catalogue(Struct, frozen=True, kw_only=True):
    targets: dict[str, Target]
    products: tuple[Product, ...]
    support: tuple[Support, ...]
    shared_pci_ids: frozenset[str]  # ids that belong to more products than this file lists


# ---- As the file has them -------------------------------------------------------------------------------------------

_Sources = tuple[str, ...]


class _Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    pass


class _Family(_Strict, frozen=True, forbid_unknown_fields=True, kw_only=True):
    architecture: str
    wave_sizes: tuple[int, ...]
    lds_kib: int
    vgprs: dict[int, int]
    vgpr_granule: dict[int, int]
    max_waves_per_simd: int | None = None
    simds_per_cu: int
    matrix: tuple[Literal["mfma", "smfmac", "wmma", "swmmac"], ...] = ()
    dot: tuple[str, ...] = ()
    packed_fp16: bool
    bf16: bool
    flops: dict[Rate, int] = {}
    source: _Sources
    flops_source: dict[Rate, str] = {}


class _Target(_Strict, frozen=True, forbid_unknown_fields=True, kw_only=True):
    family: str
    integrated: bool | None = None
    generic: str | None = None
    vgprs: dict[int, int] | None = None
    vgpr_granule: dict[int, int] | None = None
    dot: tuple[str, ...] | None = None
    flops: dict[Rate, int] = {}
    source: _Sources
    flops_source: dict[Rate, str] = {}


class _Product(_Strict, frozen=True, forbid_unknown_fields=True, kw_only=True):
    name: str
    aliases: tuple[str, ...] = ()
    vendor: Literal["amd", "nvidia"]
    gfx: str | None = None
    pci_ids: tuple[str, ...] = ()
    gpus: int = 1
    compute_units: int
    boost_mhz: float
    memory_gib: float | None = None
    memory_bus_bits: int | None = None
    memory_gbps_per_pin: float | None = None
    bandwidth_gb_s: float | None = None
    l2_mib: float | None = None
    l3_mib: float | None = None
    pcie_gen: int | None = None
    pcie_lanes: int | None = None
    power_w: float | None = None
    tflops: dict[Rate, float] = {}
    source: _Sources


class _Support(_Strict, frozen=True, forbid_unknown_fields=True, kw_only=True):
    runtime: str
    versions: str
    status: Status
    targets: tuple[str, ...]
    note: str = ""
    source: _Sources


class _File(_Strict, frozen=True, forbid_unknown_fields=True, kw_only=True):
    sources: dict[str, str]
    shared_pci_ids: tuple[str, ...]
    family: dict[str, _Family]
    target: dict[str, _Target]
    product: tuple[_Product, ...]
    support: tuple[_Support, ...]


# ---- Reading --------------------------------------------------------------------------------------------------------


@cache
def load() -> Catalogue:
    """The catalogue that comes with wavefit."""
    return parse(Path(__file__).with_name("catalogue.toml").read_text("utf-8"))


def parse(text: str) -> Catalogue:
    """Reads a catalogue.

    Raises:
        ValueError: the text is no TOML, has an unknown key or value, or an entry lacks its source.
    """
    file = msgspec.toml.decode(text, type=_File)
    catalogue = Catalogue(
        targets={gfx: _target(gfx, each, file) for gfx, each in file.target.items()},
        products=tuple(_product(each, file) for each in file.product),
        support=tuple(_support(each, file) for each in file.support),
        shared_pci_ids=frozenset(file.shared_pci_ids),
    )
    _check_names(catalogue)
    return catalogue


def _target(gfx: str, given: _Target, file: _File) -> Target:
    if given.family not in file.family:
        raise ValueError(f"{gfx}: there is no family {given.family}")
    family = file.family[given.family]
    flops, flops_source = family.flops | given.flops, family.flops_source | given.flops_source
    if flops.keys() != flops_source.keys():
        raise ValueError(f"{gfx}: flops and flops_source differ in their keys")
    return Target(
        gfx=gfx,
        architecture=family.architecture,
        integrated=given.integrated,
        generic=given.generic,
        wave_sizes=family.wave_sizes,
        lds_bytes=family.lds_kib << 10,
        vgprs=family.vgprs if given.vgprs is None else given.vgprs,
        vgpr_granule=family.vgpr_granule if given.vgpr_granule is None else given.vgpr_granule,
        max_waves_per_simd=family.max_waves_per_simd,
        simds_per_cu=family.simds_per_cu,
        matrix=family.matrix,
        dot=family.dot if given.dot is None else given.dot,
        packed_fp16=family.packed_fp16,
        bf16=family.bf16,
        flops=flops,
        source=_sources(gfx, family.source + given.source, file),
        flops_source={rate: _sources(gfx, (key,), file)[0] for rate, key in flops_source.items()},
    )


def _product(given: _Product, file: _File) -> Product:
    if given.gfx is not None and given.gfx not in file.target:
        raise ValueError(f"{given.name}: there is no target {given.gfx}")
    return Product(
        name=given.name,
        aliases=given.aliases,
        vendor=given.vendor,
        gfx=given.gfx,
        pci_ids=given.pci_ids,
        gpus=given.gpus,
        compute_units=given.compute_units,
        boost_hz=given.boost_mhz * 1e6,
        memory_bytes=_binary(given.memory_gib, 30),
        memory_bus_bits=given.memory_bus_bits,
        memory_bits_per_s=_times(given.memory_gbps_per_pin, 1e9),
        bandwidth_bytes_per_s=_times(given.bandwidth_gb_s, 1e9),
        l2_bytes=_binary(given.l2_mib, 20),
        l3_bytes=_binary(given.l3_mib, 20),
        pcie_gen=given.pcie_gen,
        pcie_lanes=given.pcie_lanes,
        power_w=given.power_w,
        peaks={rate: value * 1e12 for rate, value in given.tflops.items()},
        source=_sources(given.name, given.source, file),
    )


def _support(given: _Support, file: _File) -> Support:
    where = f"support of {given.runtime} {given.versions}"
    unknown = [gfx for gfx in given.targets if gfx not in file.target]
    if unknown:
        raise ValueError(f"{where}: there is no target {', '.join(unknown)}")
    fields: dict[str, Any] = msgspec.structs.asdict(given)
    return Support(**fields | {"source": _sources(where, given.source, file)})


def _sources(where: str, keys: tuple[str, ...], file: _File) -> tuple[str, ...]:
    """The texts of sources: "llvm-td", or "techpowerup:PAGE" where the text has a place {} for the page."""
    if not keys:
        raise ValueError(f"{where}: no source")
    texts = []
    for key in dict.fromkeys(keys):
        name, _, page = key.partition(":")
        if name not in file.sources:
            raise ValueError(f"{where}: there is no source {name}")
        texts.append(file.sources[name].format(page))
    return tuple(texts)


def _check_names(catalogue: Catalogue) -> None:
    names = [product.name for product in catalogue.products]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"products that stand twice: {', '.join(twice)}")


def _binary(value: float | None, shift: int) -> int | None:
    return None if value is None else int(value * (1 << shift))


def _times(value: float | None, unit: float) -> float | None:
    return None if value is None else value * unit
