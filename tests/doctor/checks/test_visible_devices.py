from __future__ import annotations

from pathlib import Path

import pytest
from fakes import linux, sysfs

from wavefit.doctor.checks import integrated_beside_discrete, visible_devices


@pytest.mark.parametrize("name", ["ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"])
@pytest.mark.parametrize(
    ("value", "hides"),
    [
        ("0", False),
        ("0,5", False),
        ("1", True),
        ("-1", True),
        ("7,0", True),
        ("", False),
        ("GPU-4b2c", False),
    ],
)
def test_an_index_that_no_gpu_has(tmp_path: Path, name: str, value: str, hides: bool) -> None:
    found = visible_devices.check(linux.machine(linux.healthy(tmp_path), **{name: value}))
    assert [finding.status for finding in found] == (["problem"] if hides else [])
    assert not hides or f"unset {name}" in linux.commands(found[0])


def test_hip_counts_what_rocr_leaves(tmp_path: Path) -> None:
    sysfs.apu(linux.healthy(tmp_path), node=3)
    both = {"ROCR_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "1"}
    (found,) = visible_devices.check(linux.machine(tmp_path, **both))
    assert found.title == "HIP_VISIBLE_DEVICES=1 hides every AMD GPU"
    assert visible_devices.check(linux.machine(tmp_path, HIP_VISIBLE_DEVICES="1")) == []


def test_what_hides_all_is_not_said_to_choose_one(tmp_path: Path) -> None:
    sysfs.apu(linux.healthy(tmp_path), node=3)
    assert integrated_beside_discrete.check(linux.machine(tmp_path, HIP_VISIBLE_DEVICES="-1")) == []


def test_without_a_gpu_nothing_is_hidden(tmp_path: Path) -> None:
    assert visible_devices.check(linux.machine(sysfs.linux(tmp_path), HIP_VISIBLE_DEVICES="-1")) == []
