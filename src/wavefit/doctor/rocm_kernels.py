"""The kernels that AMD names for each ROCm: ``rocm_kernels.toml``, with its sources."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import Literal

import msgspec

from wavefit.device import versions
from wavefit.device.files import read_pairs
from wavefit.doctor import kernel
from wavefit.doctor.installed import installed, rocm_version
from wavefit.doctor.machine import Machine
from wavefit.schema import Device, Struct

Family = Literal["instinct", "radeon", "ryzen"]


class Release(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One list of AMD's."""

    rocm: tuple[str, ...]  # "7.2"
    family: Family | None = None  # None: it holds for every GPU
    source: tuple[str, ...]
    kernels: dict[str, tuple[str, str]]  # "ubuntu 24.04" -> lowest and highest


class Verdict(Struct, frozen=True, kw_only=True):
    """A running kernel against AMD's list."""

    rocm: str
    os: str  # as the list calls it
    lowest: str
    highest: str
    fits: Literal["inside", "older", "newer"]
    source: str


def verdict(machine: Machine, gpu: Device) -> Verdict | None:
    """Whether AMD names this kernel for the ROCm and the distribution here; None where its list has not both."""
    rocm, running = _rocm(machine), kernel.version(kernel.release(machine))
    if rocm is None or running is None:
        return None
    for release in _releases():
        if rocm not in release.rocm or release.family not in (None, _family(gpu)):
            continue
        for name in _names(machine):
            if name in release.kernels:
                lowest, highest = release.kernels[name]
                return Verdict(
                    rocm=rocm,
                    os=name,
                    lowest=lowest,
                    highest=highest,
                    fits=_fits(running[:2], _numbers(lowest), _numbers(highest)),
                    source=release.source[0],
                )
    return None


def _rocm(machine: Machine) -> str | None:
    """Major and minor of the ROCm below /opt, else of pip's, else of the one in PyTorch's wheel."""
    build = installed(machine).build
    version = (
        versions.rocm(machine.root) or rocm_version(machine) or (build.hip if build is not None else None)
    )
    found = re.match(r"\d+\.\d+", version or "")
    return found[0] if found else None


def _names(machine: Machine) -> tuple[str, ...]:
    """The distribution as a list may call it: "rhel 9.6", then "rhel 9"."""
    known = read_pairs(machine.root / "etc/os-release", "=")
    name, version = (known.get(key, "").strip("\"'") for key in ("ID", "VERSION_ID"))
    return (f"{name} {version}", f"{name} {version.partition('.')[0]}")


def _family(gpu: Device) -> Family:
    if gpu.integrated and gpu.gfx != "gfx942":  # MI300A is an Instinct
        return "ryzen"
    return "instinct" if gpu.gfx in ("gfx908", "gfx90a", "gfx942", "gfx950") else "radeon"


def _numbers(text: str) -> tuple[int, int]:
    major, minor = text.split(".")
    return int(major), int(minor)


def _fits(
    running: tuple[int, int], lowest: tuple[int, int], highest: tuple[int, int]
) -> Literal["inside", "older", "newer"]:
    if running < lowest:
        return "older"
    return "newer" if running > highest else "inside"


@cache
def _releases() -> tuple[Release, ...]:
    text = resources.files(__package__).joinpath("rocm_kernels.toml").read_text()
    return msgspec.toml.decode(text, type=dict[str, tuple[Release, ...]])["release"]
