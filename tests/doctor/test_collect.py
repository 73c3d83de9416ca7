from __future__ import annotations

import getpass
import gzip
import io
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import linux, software, sysfs

from wavefit.doctor import examine, names
from wavefit.doctor.collect import collect
from wavefit.doctor.machine import Machine, this_process
from wavefit.doctor.nodes import RECORDING
from wavefit.doctor.scrub import Scrubber
from wavefit.doctor.unpack import open_machine, unpack
from wavefit.errors import InputError
from wavefit.schema import Device, Finding

FIXTURES = Path(__file__).parents[2].parent / "shared/fixtures/lact"
UUID = "0a1b2c3d-1111-2222-3333-444455556666"
SERIAL = "0123456789abcdef"


def findings(machine: Machine) -> list[Finding]:
    return examine(machine, [name for name in names() if name != "selftests"])


def hurt(root: Path) -> Machine:
    """A machine with several things wrong, and personal details in every file that may hold one."""
    nodes = {"nodes": [{"path": "/dev/kfd", "errno": 13, "mode": "crw-rw----", "uid": 0, "gid": 993}]}
    files = {
        "proc/cmdline": f"root=UUID={UUID} ip=10.1.2.3 hostname=gemini amdgpu.gpu_recovery=1 iommu=pt",
        "etc/hostname": "gemini",
        "etc/modprobe.d/own.conf": "# by alice@example.org\noptions amdgpu ppfeaturemask=0xffffffff",
        "proc/self/cgroup": "0::/user.slice/user-1000.slice/docker-" + "ab" * 32 + ".scope",
        "wavefit/dmesg.txt": "amdgpu 0000:03:00.0: on gemini, MAC 12:34:56:78:9a:bc, /home/alice/x, uuid "
        + UUID,
        "sys/class/kfd/kfd/topology/nodes/2/mem_banks/0/used_memory": 1 << 30,
        RECORDING.lstrip("/"): json.dumps(nodes),
        "opt/rocm/lib/libamdhip64.so.7": "\x7fELF",
        "opt/rocm/.info/version": "7.1.0-42",
        **software.kernels("gfx1100"),
    }
    environ = {
        "PATH": "/home/alice/bin:/usr/bin",
        "HSA_ENABLE_SDMA": "0",
        "KUBERNETES_SERVICE_HOST": "10.9.8.7",
        "AWS_SECRET": "hunter2",
        "HOME": "/home/alice",
    }
    packages = {"onnxruntime": "1.32.0", "onnxruntime-migraphx": "1.27.1", "secret-project": "1"}
    machine = software.machine(
        root, "card apu", environ, packages, {"torch": software.CUDA, "shell": ["~/.bashrc: x"]}, files
    )
    card = root / "sys/devices/pci0000:00/0000:00:01.1/0000:01:00.0/0000:02:00.0/0000:03:00.0"
    sysfs.write(card, {"unique_id": SERIAL, "serial_number": SERIAL})
    properties = root / "sys/class/kfd/kfd/topology/nodes/2/properties"
    properties.write_text(properties.read_text() + f"unique_id {int(SERIAL, 16)}\n")
    return machine


def content(file: Path) -> str:
    """Everything in a recording, decompressed: names, links and contents."""
    return gzip.decompress(file.read_bytes()).decode("latin-1")


def same(devices: tuple[Device, ...]) -> list[dict[str, object]]:
    """Devices without the folder that they were read from."""
    return [
        {name: getattr(each, name) for name in each.__struct_fields__ if name != "sysfs"} for each in devices
    ]


def test_a_recording_gives_the_same_devices_and_findings(tmp_path: Path) -> None:
    machine = hurt(tmp_path / "machine")
    collect(machine, tmp_path / "a.tar.gz")
    with open_machine(tmp_path / "a.tar.gz") as recorded:
        assert same(recorded.devices) == same(machine.devices)
        expected = findings(machine)
        assert {finding.check for finding in expected if finding.status == "problem"} >= {
            "wheels_onnxruntime",
            "wheels_torch",
        }
        assert findings(recorded) == expected
        assert recorded.devices[1].link is not None
        assert recorded.devices[1].link.width == 8, "read through the links up to the slot"
    collect(machine, tmp_path / "b.tar.gz")
    assert (tmp_path / "a.tar.gz").read_bytes() == (tmp_path / "b.tar.gz").read_bytes()


def firmware_missing(root: Path) -> None:
    linux.unbind(root, loaded=True)
    linux.log(
        root, "amdgpu 0000:03:00.0: Direct firmware load for amdgpu/gc_11_0_0_pfp.bin failed with error -2"
    )


def unsigned(root: Path) -> None:
    linux.unbind(root)
    linux.secure_boot(root, True)
    linux.log(root, "[    3.0] Loading of unsigned module is rejected")


STATES: dict[str, Callable[[Path], object]] = {
    "healthy": lambda root: None,
    "firmware": firmware_missing,
    "atomics": lambda root: linux.log(
        root, "kfd kfd: amdgpu: skipped device 1002:744c, PCI rejects atomics 730<0"
    ),
    "nomodeset": lambda root: sysfs.write(root, {"proc/cmdline": "ro nomodeset"}) and linux.unbind(root),
    "blacklist": lambda root: (
        sysfs.write(root, {"etc/modprobe.d/a.conf": "blacklist amdgpu"}) and linux.unbind(root)
    ),
    "vfio": lambda root: linux.unbind(root, driver="vfio-pci"),
    "dkms": lambda root: (
        sysfs.write(root, {"var/lib/dkms/amdgpu/6.12/source/dkms.conf": ""}) and linux.unbind(root)
    ),
    "unsigned": unsigned,
    "denied": lambda root: linux.nodes(root, kfd={"errno": 13, **linux.NODE}),
    "docker": lambda root: linux.nodes(root, kfd={"errno": 2}) or linux.docker(root),
}


@pytest.mark.parametrize("state", STATES)
def test_every_state_of_a_machine_survives_its_recording(state: str, tmp_path: Path) -> None:
    STATES[state](linux.healthy(tmp_path / "machine"))
    machine = linux.machine(tmp_path / "machine")
    collect(machine, tmp_path / "a.tar.gz")
    expected = findings(machine)
    assert bool(linux.problems(expected)) == (state not in ("healthy", "atomics"))
    with open_machine(tmp_path / "a.tar.gz") as recorded:
        assert findings(recorded) == expected


@pytest.mark.skipif(not FIXTURES.is_dir(), reason="the recorded machines are not here")
@pytest.mark.parametrize("name", ["phoenix", "vangogh", "rx7900xtx", "rx580"])
def test_a_real_machines_tree_survives_its_recording(name: str, tmp_path: Path) -> None:
    (card,) = (FIXTURES / name).glob("card*")
    root = tmp_path / "machine"
    skip = shutil.ignore_patterns("ip_discovery")
    shutil.copytree(card, root / "sys/class/drm" / card.name, ignore=skip)
    if (FIXTURES / name / "kfd").is_dir():
        shutil.copytree(FIXTURES / name / "kfd", root / "sys/class/kfd/kfd")
    machine = Machine(root)
    collect(machine, tmp_path / "a.tar.gz")
    with open_machine(tmp_path / "a.tar.gz") as recorded:
        assert same(recorded.devices) == same(machine.devices)
        assert findings(recorded) == findings(machine)


def test_a_recording_of_a_recording_is_the_same(tmp_path: Path) -> None:
    collect(hurt(tmp_path / "machine"), tmp_path / "a.tar.gz")
    unpack(tmp_path / "a.tar.gz", tmp_path / "unpacked")
    with open_machine(tmp_path / "unpacked") as machine:
        collect(machine, tmp_path / "b.tar.gz")
    assert content(tmp_path / "a.tar.gz") == content(tmp_path / "b.tar.gz")


def test_personal_details_are_left_out(tmp_path: Path) -> None:
    collect(hurt(tmp_path / "machine"), tmp_path / "a.tar.gz")
    text = content(tmp_path / "a.tar.gz")
    details = (
        "gemini",
        "alice",
        UUID,
        SERIAL,
        str(int(SERIAL, 16)),
        "12:34:56:78:9a:bc",
        "10.1.2.3",
        "10.9.8.7",
    )
    for detail in (*details, "hunter2", "secret", "ab" * 32, "example.org", str(tmp_path)):
        assert detail not in text, detail
    for kept in ("amdgpu.gpu_recovery=1", "iommu=pt", "ppfeaturemask", "HSA_ENABLE_SDMA", "/home/user/bin"):
        assert kept in text, kept


def test_secrets_of_the_command_line_and_of_variables_are_left_out(tmp_path: Path) -> None:
    """The kernel repeats its command line in its log, and a line with iommu or amdgpu in it is recorded."""
    words = "root=/dev/sda1 rootpw=hunter2 iommu=pt amdgpu.gpu_recovery=1 systemd.set_credential=pw:hunter2"
    log = (
        f"[0.0] Command line: {words}\n[0.1] Kernel command line: {words}\n"
        f'[0.2] Unknown kernel command line parameters "{words}", will be passed to user space.\n'
        "[3.0] amdgpu 0000:03:00.0: peer fe80::1234:abcd:5678:1, 2001:db8::7 and fd12:3456:789a:1::1"
    )
    files = {"wavefit/dmesg.txt": log, "proc/cmdline": words, "etc/kernel/cmdline": words}
    environ = {"AMD_API_TOKEN": "hunter2", "ORT_PASSWORD": "hunter2", "HSA_ENABLE_SDMA": "0"}
    collect(software.machine(tmp_path / "machine", "card", environ, files=files), tmp_path / "a.tar.gz")
    text = content(tmp_path / "a.tar.gz")
    for secret in ("hunter2", "sda1", "fe80", "2001:db8", "fd12"):
        assert secret not in text, secret
    for kept in ("amdgpu.gpu_recovery=1", "0000:03:00.0: peer IP", "HSA_ENABLE_SDMA"):
        assert kept in text, kept


def test_this_machine_is_recorded_without_its_names(tmp_path: Path) -> None:
    machine = Machine(process=this_process())
    collect(machine, tmp_path / "a.tar.gz")
    text = content(tmp_path / "a.tar.gz")
    personal = {socket.gethostname(), getpass.getuser(), os.environ.get("HOME", "")}
    for name in personal - {"", "root", "localhost", "/root", "/"}:
        assert not re.search(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", text), name
    with open_machine(tmp_path / "a.tar.gz") as recorded:
        mine = ("wheels_torch", "wheels_onnxruntime", "rocm_install", "override_gfx", "unsupported_gfx")
        assert examine(recorded, mine) == examine(machine, mine)
        assert recorded.devices[0].name == machine.devices[0].name
        assert not recorded.live


def test_words_are_taken_out_where_they_stand_alone() -> None:
    scrub = Scrubber(frozenset({"al", "gemini"}))
    assert scrub.text("al gemini-2 total al") == "NAME NAME-2 total NAME"
    assert scrub.text("Linux version 6.14 (ada@den) #1") == "Linux version 6.14 (MAIL) #1"
    assert scrub.text("0000:03:00.0 1002:744c 7.1.0-42 fw 0x12") == "0000:03:00.0 1002:744c 7.1.0-42 fw 0x12"


def member(name: str, data: bytes = b"", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, data


def packed(file: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(file, "w:gz") as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))
    return file


def link(name: str, target: str) -> tuple[tarfile.TarInfo, bytes]:
    return member(name, type=tarfile.SYMTYPE, linkname=target)


@pytest.mark.parametrize(
    "members",
    [
        [member("../outside", b"x")],
        [member("/outside", b"x")],
        [member("sys/../../outside", b"x")],
        [link("sys", "../..")],
        [link("sys", "/etc")],
        [link("a", "b"), link("b", "a")],
        [link("sys", "."), member("sys/../../outside", b"x")],
        [link("a/b/up", "../.."), link("out", "a/b/up/..")],
        [link("d", "."), member("d/x", b"x")],
        [member("sys/x", b"x"), member("sys/x", b"y")],
        [member("sys", b"x"), member("sys/x", b"y")],
        [member("sys/" + "x" * 256, b"x")],
        [member("x/" * 2000 + "x", b"x")],
        [member("kfd", type=tarfile.CHRTYPE)],
        [member("pipe", type=tarfile.FIFOTYPE)],
        [member("hard", type=tarfile.LNKTYPE, linkname="/etc/passwd")],
    ],
    ids=lambda members: members[-1][0].name[:40],
)
def test_a_recording_that_leads_outside_is_refused(
    members: list[tuple[tarfile.TarInfo, bytes]], tmp_path: Path
) -> None:
    folder = tmp_path / "a/b"
    folder.mkdir(parents=True)
    with pytest.raises(InputError, match=r"bad\.tar\.gz"):
        unpack(packed(tmp_path / "bad.tar.gz", *members), folder)
    assert {path.name for path in tmp_path.iterdir()} == {"a", "bad.tar.gz"}
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b"]


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    file = tmp_path / "bomb.tar.gz"
    with gzip.open(file, "wb") as packed_file:
        for _ in range(65):
            packed_file.write(bytes(1 << 20))
    assert file.stat().st_size < 1 << 17
    with pytest.raises(InputError, match="too large"):
        unpack(file, tmp_path)


@pytest.mark.parametrize("data", [b"", b"not gzip", gzip.compress(b"not tar" * 99), gzip.compress(b"x")[:-9]])
def test_what_is_no_recording(data: bytes, tmp_path: Path) -> None:
    file = tmp_path / "bad.tar.gz"
    file.write_bytes(data)
    with pytest.raises(InputError, match=r"recording|recorded"), open_machine(file):
        pass


def test_a_torn_process_is_an_unknown_one(tmp_path: Path) -> None:
    software.machine(tmp_path)
    (tmp_path / "wavefit/process.json").write_text('{"uid": "x"}')
    with open_machine(tmp_path) as machine:
        assert machine.process is None
        assert findings(machine) is not None


def wavefit(*arguments: str, largest: int | None = None) -> subprocess.CompletedProcess[str]:
    """The command, with the size that a file may have at most: a full disk, as far as a test can make one."""
    limit = (
        f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({largest}, {largest}));"
        if largest
        else ""
    )
    code = f"{limit}import wavefit.cli; wavefit.cli.main()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )


@pytest.mark.skipif(sys.platform == "win32", reason="no such limit, no /proc")
def test_a_disk_that_is_full_or_read_only_is_one_sentence_and_leaves_no_file(tmp_path: Path) -> None:
    root, file = software.machine(tmp_path / "machine").root, tmp_path / "a.tar.gz"
    full = wavefit("doctor", "--root", str(root), "--collect", str(file), largest=512)
    nowhere = wavefit("doctor", "--root", str(root), "--collect", "/proc/self/a.tar.gz")
    for done in (full, nowhere):
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.count("\n") == 1
        assert "a.tar.gz cannot be written: " in done.stderr
    assert not file.exists()
