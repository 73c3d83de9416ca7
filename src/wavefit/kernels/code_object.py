"""What an AMD code object says of its kernels: registers, local memory, scratch, spills, from its metadata note.

Source of the note and its keys: LLVM, User Guide for AMDGPU Backend, "Note Records" (owner AMDGPU, type 32) and "Code
Object V5 Metadata". On CDNA 2 and later ``.vgpr_count`` counts accumulation registers too; they share one file.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from typing import Any

import msgspec

from wavefit.errors import InputError
from wavefit.schema import Struct

_NOTE = 32  # NT_AMDGPU_METADATA

# Assembler's names by what they are; GFX11 renamed "dwordx4" to "b128" (LLVM, AMDGPU instruction syntax).
_KINDS = {
    "fma": r"v_(dual_)?(fmac?|mac|mad)(_legacy)?_f(32|16)",
    "packed": r"v_pk_(fma|mul|add)_f(16|32)",
    "dot": r"v_(dual_)?dot\d",
    "mfma": r"v_(s?mfmac?)_",
    "wmma": r"v_s?wmm?ac?_",
    "load_128": r"(global|flat|buffer)_load_(dwordx4|b128)",
    "load": r"(global|flat|buffer)_load_",
    "store_128": r"(global|flat|buffer)_store_(dwordx4|b128)",
    "store": r"(global|flat|buffer)_store_",
    "lds_read_128": r"ds_(read|load)_b128",
    "lds_read": r"ds_(read|load)",
    "lds_write": r"ds_(write|store)",
    "scratch": r"(scratch_|buffer_(load|store)_\w+ .*(off|offen), s\[0:3\])",
    "atomic": r"(global|flat|buffer)_atomic_",
    "barrier": r"s_barrier",
    "call": r"s_swappc",
}
_COUNTED = {kind: re.compile(pattern) for kind, pattern in _KINDS.items()}


class KernelResources(Struct, frozen=True, kw_only=True):
    """What one kernel takes. None: the target has no such thing, or the metadata does not say."""

    name: str
    vgprs: int  # a work-item's; with AGPRs where they share one file
    sgprs: int
    agprs: int | None = None
    lds_bytes: int
    scratch_bytes: int  # of one work-item
    vgpr_spills: int
    sgpr_spills: int
    work_group: int  # most work-items that it may be launched with
    required: tuple[int, ...] | None = None  # reqd_work_group_size
    wave: int
    wgp_mode: bool = False  # RDNA: a work-group may run on both CUs of a work-group processor
    instructions: dict[str, int] = msgspec.field(
        default_factory=dict
    )  # see count_instructions; empty where there was no assembly


def read(elf: bytes, what: str = "the code object", assembly: str = "") -> tuple[KernelResources, ...]:
    """The kernels of a code object.

    Args:
        elf: the file's content.
        what: it is called so in errors.
        assembly: of the same; instructions are counted in it.

    Raises:
        InputError: it is no AMD code object, or is damaged.
    """
    kernels = _metadata(elf, what).get("amdhsa.kernels")
    if not isinstance(kernels, list):
        raise InputError(f"{what}: its metadata lists no kernels", "it is damaged: compile it again")
    try:
        return tuple(_kernel(each, assembly) for each in kernels)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"{what}: its metadata lacks what every kernel has ({error})", "it is damaged: compile it again"
        ) from error


def _metadata(elf: bytes, what: str) -> dict[str, Any]:
    import msgpack
    from elftools.common.exceptions import ELFError
    from elftools.construct.core import ConstructError
    from elftools.elf.elffile import ELFFile

    damaged = "it is damaged: compile it again"
    if elf[:4] != b"\x7fELF":
        raise InputError(f"{what} is no ELF file", "give a code object for AMD GPUs")
    try:
        file = ELFFile(io.BytesIO(elf))
        if file.header["e_machine"] != "EM_AMDGPU":
            raise InputError(f"{what} is for {file.header['e_machine']}, not for an AMD GPU", "")
        notes = [
            note
            for part in (*file.iter_segments(), *file.iter_sections())
            if hasattr(part, "iter_notes")
            for note in part.iter_notes()
        ]
        found = next(
            (n for n in notes if n["n_name"] == "AMDGPU" and n["n_type"] in (_NOTE, str(_NOTE))), None
        )
        if found is None:
            raise InputError(f"{what} has no note with metadata of AMD's", damaged)
        description = found["n_descdata"]
        read = msgpack.unpackb(description, strict_map_key=False)
    except (
        ELFError,
        ConstructError,
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        UnicodeDecodeError,
        OverflowError,
    ) as error:
        raise InputError(f"{what} cannot be read ({type(error).__name__})", damaged) from error
    if not isinstance(read, dict):
        raise InputError(f"{what}: its metadata is no map", damaged)
    return read


def _kernel(entry: dict[str, Any], assembly: str) -> KernelResources:
    required = entry.get(".reqd_workgroup_size")
    agprs = entry.get(".agpr_count")
    name = str(entry[".name"])
    return KernelResources(
        name=name,
        vgprs=int(entry[".vgpr_count"]),
        sgprs=int(entry[".sgpr_count"]),
        agprs=None if agprs is None else int(agprs),
        lds_bytes=int(entry[".group_segment_fixed_size"]),
        scratch_bytes=int(entry[".private_segment_fixed_size"]),
        vgpr_spills=int(entry.get(".vgpr_spill_count", 0)),
        sgpr_spills=int(entry.get(".sgpr_spill_count", 0)),
        work_group=int(entry[".max_flat_workgroup_size"]),
        required=None if required is None else tuple(int(each) for each in required),
        wave=int(entry[".wavefront_size"]),
        wgp_mode=bool(entry.get(".workgroup_processor_mode", 0)),
        instructions=count_instructions(assembly, name) if assembly else {},
    )


def count_instructions(assembly: str, kernel: str) -> dict[str, int]:
    """How many of each kind stand in a kernel's assembly (not how often they run), and "all" of them.

    "load" counts loads of 128 bits too, and so on. Kinds without any are left out.
    """
    body = re.search(rf"^{re.escape(kernel)}:.*?$(.*?)^\.Lfunc_end", assembly, re.MULTILINE | re.DOTALL)
    counts: Counter[str] = Counter()
    for line in body[1].splitlines() if body else ():
        text = line.strip()
        if not re.match(r"[a-z]\w+(\s|$)", text):
            continue
        for part in text.split("::"):  # v_dual_... :: v_dual_...
            counts["all"] += 1
            counts.update(kind for kind, pattern in _COUNTED.items() if pattern.match(part.strip()))
    return dict(counts)
