"""HIP asked through ctypes: a library built here answers for cards that are not; Debian's real one for none."""

from __future__ import annotations

import ctypes.util
import shutil
import subprocess
from pathlib import Path

import pytest

from wavefit.device import runtimes
from wavefit.device.hip import compute_units
from wavefit.device.seen import Seen
from wavefit.schema import Pool

GIB = 1 << 30

# Two cards as HIP 6 shows them: gcnArchName lies 1,160 bytes into hipDeviceProp_tR0600.
ANSWERS = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
typedef unsigned long size;
static int current;
static const char *names[] = {"Radeon RX 7900 XTX", "AMD Radeon 780M"};
static const char *targets[] = {"gfx1100", "gfx1103:xnack-"};
int hipRuntimeGetVersion(int *version) { *version = 70125424; return 0; }
const char *hipGetErrorString(int code) { return "no ROCm-capable device is detected"; }
int hipGetDeviceCount(int *count) { BODY }
int hipDeviceGetName(char *name, int length, int i) { snprintf(name, length, "%s", names[i]); return 0; }
int hipDeviceGetPCIBusId(char *text, int length, int i) {
    snprintf(text, length, "%s", i ? "0000:C4:00.0" : "0000:03:00.0"); return 0;
}
int hipDeviceGetAttribute(int *value, int attribute, int i) {
    if (attribute == 16) *value = i;                    /* integrated */
    else if (attribute == 63) *value = i ? 6 : 48;      /* work-group processors */
    else return 1;
    return 0;
}
int hipGetDeviceProperties(void *p, int i) { return 1; }
int hipGetDevicePropertiesR0600(char *p, int i) {
    memset(p, 0, 1472); strcpy(p, names[i]); strcpy(p + 1160, targets[i]); return 0;
}
int hipSetDevice(int i) { current = i; return 0; }
int hipMemGetInfo(size *free_, size *total) { *total = (size)(current ? 16 : 24) << 30; *free_ = *total / 2; return 0; }
"""


def built(folder: Path, body: str) -> str:
    """The library with a body for hipGetDeviceCount."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    source, library = folder / "hip.c", folder / "libamdhip64.so"
    source.write_text(ANSWERS.replace("BODY", body))
    subprocess.run([compiler, "-shared", "-fPIC", "-w", str(source), "-o", str(library)], check=True)
    return str(library)


def ask(folder: Path, library: str | None, deadline_s: float = 30) -> Seen:
    asked = runtimes.Asked(
        name="hip", function=runtimes.HIP.function, deadline_s=deadline_s, vendors=("amd",)
    )
    return runtimes.ask(asked, folder / "work", library)


def test_two_cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    seen = ask(tmp_path, built(tmp_path, "*count = 2; return 0;"))
    assert (seen.version, seen.note) == ("7.1.25424", None)
    card, apu = seen.devices
    assert (card.name, card.gfx, card.pci_address) == ("Radeon RX 7900 XTX", "gfx1100", "0000:03:00.0")
    assert (apu.name, apu.gfx, apu.pci_address) == ("AMD Radeon 780M", "gfx1103", "0000:c4:00.0")
    assert (card.integrated, apu.integrated) == (False, True)
    assert (card.compute_units, apu.compute_units) == (96, 12)  # AMD's product pages
    assert card.memory == (
        Pool(name="hip", total_bytes=24 * GIB, free_bytes=12 * GIB, source="hipMemGetInfo"),
    )
    assert [device.runtimes[0].index for device in seen.devices] == [0, 1]
    assert card.runtimes[0].note is None


def test_a_variable_that_renumbers_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "1")
    seen = ask(tmp_path, built(tmp_path, "*count = 1; return 0;"))
    assert "HIP_VISIBLE_DEVICES=1" in (seen.devices[0].runtimes[0].note or "")


def test_no_card_is_an_error_with_its_code(tmp_path: Path) -> None:
    seen = ask(tmp_path, built(tmp_path, "return 100;"))
    assert seen.devices == ()
    assert seen.note == "hipGetDeviceCount: no ROCm-capable device is detected (100)"


def test_a_library_that_hangs_or_crashes_is_a_note(tmp_path: Path) -> None:
    hung = ask(tmp_path, built(tmp_path, "for (;;) sleep(1);"), deadline_s=3)
    assert hung.note is not None
    assert hung.note.startswith("timeout at ask HIP")
    crashed = ask(tmp_path, built(tmp_path, "abort();"))
    assert crashed.note is not None
    assert "SIGABRT" in crashed.note


def test_a_file_that_is_no_library_is_a_note(tmp_path: Path) -> None:
    library = tmp_path / "libamdhip64.so"
    library.write_text("no library")
    seen = ask(tmp_path, str(library))
    assert "libamdhip64.so does not load" in (seen.note or "")


def test_the_real_library_without_a_card(tmp_path: Path) -> None:
    if ctypes.util.find_library("amdhip64") is None or Path("/dev/kfd").exists():
        pytest.skip("needs HIP's library on a machine without an AMD GPU")
    seen = ask(tmp_path, None)
    assert seen.version is not None
    assert seen.devices == ()
    assert "(100)" in (seen.note or "")  # hipErrorNoDevice


@pytest.mark.parametrize(
    ("gfx", "multiprocessors", "units"),
    [("gfx90a", 104, 104), ("gfx942", 304, 304), ("gfx1030", 40, 80), ("gfx1201", 32, 64), (None, 4, None)],
)
def test_compute_units_of_products(gfx: str | None, multiprocessors: int, units: int | None) -> None:
    """MI210: 104 CUs, MI300X: 304, RX 6900 XT: 80, RX 9070 XT: 64 (AMD's product pages)."""
    assert compute_units(gfx, multiprocessors) == units
