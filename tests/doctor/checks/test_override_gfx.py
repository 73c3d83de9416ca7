from __future__ import annotations

from pathlib import Path

import pytest
from fakes import software

from wavefit.doctor.checks import override_gfx
from wavefit.doctor.targets import version_of
from wavefit.schema import Finding

NAME = "HSA_OVERRIDE_GFX_VERSION"


def findings(root: Path, version: int, known: tuple[str, ...], **environ: str) -> list[Finding]:
    """Of a machine with one card of a gfx_target_version."""
    machine = software.machine(root, gpus="", environ=environ, files=software.kernels(*known))
    software.gpu(root, version)
    return override_gfx.check(machine)


@pytest.mark.parametrize(
    ("version", "known", "value"),
    [
        (110003, ("gfx1030", "gfx1100"), "11.0.0"),  # Radeon 780M
        (100305, ("gfx1030",), "10.3.0"),  # Radeon 680M
        (100302, ("gfx1030", "gfx1100"), "10.3.0"),  # RX 6600
        (90012, ("gfx900", "gfx906"), "9.0.0"),  # Ryzen 4000's Vega, gfx90c
    ],
)
def test_a_target_without_kernels_needs_its_familys(
    version: int, known: tuple[str, ...], value: str, tmp_path: Path
) -> None:
    (finding,) = findings(tmp_path, version, known)
    assert finding.status == "problem"
    assert finding.fixes[0].command == f"export {NAME}={value}"
    (finding,) = findings(tmp_path / "set", version, known, **{NAME: value})
    assert finding.status == "ok"


def test_a_target_with_kernels_needs_none(tmp_path: Path) -> None:
    assert findings(tmp_path / "none", 110003, ("gfx1100", "gfx1103")) == []
    (finding,) = findings(tmp_path / "set", 110003, ("gfx1100", "gfx1103"), **{NAME: "11.0.0"})
    assert finding.status == "note"
    assert "needless" in finding.title
    assert finding.fixes[0].command == f"unset {NAME}"


def test_another_generations_target(tmp_path: Path) -> None:
    (finding,) = findings(tmp_path, 120001, ("gfx1201",), **{NAME: "11.0.0"})
    assert finding.status == "problem"
    assert "another generation" in finding.title


def test_a_target_that_has_no_kernels_either(tmp_path: Path) -> None:
    (finding,) = findings(tmp_path, 110003, ("gfx1100",), **{NAME: "11.0.2"})
    assert finding.status == "problem"
    assert finding.fixes[0].command == f"export {NAME}=11.0.0"


@pytest.mark.parametrize("value", ["gfx1100", "1100", "11.0", '"11.0.0"', "", "11.0.0.0", "11.0.x", "64.0.0"])
def test_what_rocm_does_not_read_as_a_version(value: str, tmp_path: Path) -> None:
    (finding,) = findings(tmp_path, 110003, ("gfx1100",), **{NAME: value})
    assert finding.status == "problem"
    assert "is no version" in finding.title


def test_a_variable_for_one_node_counts(tmp_path: Path) -> None:
    (finding,) = findings(tmp_path, 110003, ("gfx1100",), **{NAME + "_1": "11.0.0"})
    assert finding.status == "ok"


def test_an_integrated_gpu_beside_a_card_is_not_needed(tmp_path: Path) -> None:
    machine = software.machine(tmp_path, gpus="card apu", files=software.kernels("gfx1100"))
    (finding,) = override_gfx.check(machine)
    assert finding.status == "note"
    assert "gfx1103" in finding.title


def test_no_family_lends_to_it(tmp_path: Path) -> None:
    assert findings(tmp_path / "a", 90400 + 2, ("gfx900", "gfx90a")) == []
    assert findings(tmp_path / "b", 110003, ()) == [], "without kernels here nothing is known"


def test_set_in_a_shells_file_but_not_exported(tmp_path: Path) -> None:
    shell = [f"~/.bashrc: {NAME}=11.0.0"]
    files = software.kernels("gfx1100")
    machine = software.machine(tmp_path, gpus="apu", installed={"shell": shell}, files=files)
    needed, shell_finding = override_gfx.check(machine)
    assert needed.status == "problem"
    assert shell_finding.fixes[0].command == f"export {NAME}=11.0.0"


def test_versions_are_decimal() -> None:
    assert [version_of(gfx) for gfx in ("gfx1100", "gfx90a", "gfx90c", "gfx1035")] == [
        "11.0.0",
        "9.0.10",
        "9.0.12",
        "10.3.5",
    ]
