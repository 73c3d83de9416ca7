from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
from fakes import sysfs

from wavefit.device.probe import probe
from wavefit.schema import Device


def wavefit(*arguments: str) -> subprocess.CompletedProcess[str]:
    code = "import wavefit.cli; wavefit.cli.main()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )


def fake(root: Path) -> Path:
    sysfs.linux(root)
    sysfs.cpu_node(root)
    sysfs.apu(root)
    sysfs.card(root)
    return root


def test_a_table_of_80_columns(tmp_path: Path) -> None:
    done = wavefit("devices", "--root", str(fake(tmp_path)))
    assert (done.returncode, done.stderr) == (0, "")
    assert max(map(len, done.stdout.splitlines())) <= 80
    said = [
        "gpu0",
        "gfx1100",
        "discrete",
        "96 CUs",
        "vram 23.0/24.0 GiB",
        "gpu1",
        "gfx1103",
        "integrated",
        "gtt 29.1/29.3 GiB",
    ]
    for text in (*said, "8 cores", "16 threads", "16 GT/s x8", "Ubuntu 24.04.3 LTS"):
        assert text in done.stdout


def test_a_card_in_partitions_says_so_and_a_packed_recording_is_read(tmp_path: Path) -> None:
    fake(tmp_path / "machine")
    for number in range(8):
        properties = sysfs.gpu_properties(
            "0000:65:00.0",
            simd_count=152,
            simd_per_cu=4,
            gfx_target_version=90402,
            device_id=0x74A1,
            location_id=number << 28 | 0x6500,
        )
        sysfs.kfd_node(tmp_path / "machine", 3 + number, properties, 24 << 30)
    files = {"vendor": "0x1002", "device": "0x74a1", "class": "0x120000", "current_compute_partition": "CPX"}
    sysfs.pci(tmp_path / "machine", "0000:65:00.0", files)
    packed = str(tmp_path / "machine.tar.gz")
    assert wavefit("doctor", "--root", str(tmp_path / "machine"), "--collect", packed).returncode == 0
    done = wavefit("devices", "--root", packed)
    for text in ("gpu2", "gfx942", "304 CUs", "mode CPX", "8 partitions"):
        assert text in done.stdout
    assert "gpu3" not in done.stdout


def test_json_is_the_records(tmp_path: Path) -> None:
    done = wavefit("devices", "--json", "--root", str(fake(tmp_path)))
    assert done.returncode == 0
    assert msgspec.json.decode(done.stdout, type=tuple[Device, ...]) == probe(tmp_path)


def test_a_wrong_root_is_one_line_and_exit_2(tmp_path: Path) -> None:
    for root in (tmp_path / "missing", tmp_path, Path(__file__)):
        done = wavefit("devices", "--root", str(root))
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.count("\n") == 1
        assert str(root) in done.stderr


def test_this_machine_lists_its_cpu() -> None:
    done = wavefit("devices")
    assert done.returncode == 0
    assert "cpu" in done.stdout
