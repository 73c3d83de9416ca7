"""What holds for every check, whoever wrote it."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes import linux, software, sysfs

from wavefit import doctor
from wavefit.doctor import checks
from wavefit.doctor.fix import may_run
from wavefit.doctor.machine import Machine
from wavefit.errors import InputError
from wavefit.schema import Finding


def everything_wrong(root: Path) -> Machine:
    """A machine on which many checks have something to say."""
    packages = {"onnxruntime": "1.32.0", "onnxruntime-migraphx": "1.27.1"}
    environ = {"PATH": "/usr/bin", "HSA_OVERRIDE_GFX_VERSION": "gfx1100"}
    files = {
        "opt/rocm/.info/version": "6.4.1",
        "opt/rocm/lib/libamdhip64.so.7": "",
        "opt/rocm/bin/rocminfo": "",
    }
    machine = software.machine(root, "card apu", environ, packages, {"torch": software.CUDA}, files)
    linux.nodes(root, kfd={"errno": 13, **linux.NODE})
    return machine


def test_a_check_is_a_file() -> None:
    (folder,) = checks.__path__
    files = {path.stem for path in Path(folder).glob("*.py")}
    assert set(doctor.names()) == {name for name in files if not name.startswith("_")}


def test_a_check_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no check 'drivers'"):
        doctor.examine(Machine(tmp_path), ["wheels_torch", "drivers"])


@pytest.mark.parametrize("name", doctor.names())
def test_a_check_names_itself_and_says_what_to_do(name: str, tmp_path: Path) -> None:
    for finding in doctor.examine(everything_wrong(tmp_path), [name]):
        assert finding.check == name
        assert finding.title
        assert "\n" not in finding.title
        if finding.status == "problem":
            assert finding.evidence, finding
            assert finding.cause, finding
            assert finding.fixes, finding
            assert finding.verify, finding
        for fix in finding.fixes:
            assert not fix.safe or may_run(fix), f"{fix.command} is called safe and would never be run"


@pytest.mark.parametrize("name", doctor.names())
def test_a_check_is_silent_or_unsure_where_nothing_was_recorded(name: str, tmp_path: Path) -> None:
    statuses = {finding.status for finding in doctor.examine(Machine(tmp_path), [name])}
    assert statuses <= {"note", "unknown", "ok"}


def garbage(root: Path) -> Path:
    sysfs.linux(root)
    sysfs.cpu_node(root)
    sysfs.card(root)
    names = ("nodes.json", "process.json", "installed.json", "dmesg.txt")
    sysfs.write(root, {f"wavefit/{name}": "" for name in names})
    for path in [path for path in root.rglob("*") if path.is_file() and path.name not in ("vendor", "class")]:
        path.write_bytes(b"\xff\x00 garbage = : \n" * 3)
    return root


@pytest.mark.parametrize("name", doctor.names())
def test_a_check_survives_garbage_in_every_file(name: str, tmp_path: Path) -> None:
    found = doctor.examine(Machine(garbage(tmp_path)), [name])
    assert all(isinstance(finding, Finding) for finding in found)
