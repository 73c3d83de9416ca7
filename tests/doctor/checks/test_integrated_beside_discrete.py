from __future__ import annotations

from pathlib import Path

import pytest
from fakes import linux, sysfs

from wavefit.doctor.checks import integrated_beside_discrete
from wavefit.schema import Finding


def only(root: Path, **environ: str) -> Finding:
    (finding,) = integrated_beside_discrete.check(linux.machine(root, **environ))
    return finding


@pytest.mark.parametrize(("apu_node", "index"), [(1, 1), (3, 0)], ids=["integrated first", "card first"])
def test_the_index_is_hips_place_of_the_card_not_its_place_on_the_bus(
    tmp_path: Path, apu_node: int, index: int
) -> None:
    sysfs.apu(linux.healthy(tmp_path), node=apu_node)
    found = only(tmp_path)
    assert found.status == "note"
    assert f"export HIP_VISIBLE_DEVICES={index}" in linux.commands(found)
    assert f"ROCR_VISIBLE_DEVICES={index} rocminfo" in found.verify  # which does not read HIP's


@pytest.mark.parametrize("name", ["HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"])
@pytest.mark.parametrize(
    ("value", "status"), [("1", "ok"), ("0", "note"), ("0,1", "ok"), ("GPU-4b2c1a9f", "ok")]
)
def test_a_choice_is_held_against_the_index(tmp_path: Path, name: str, value: str, status: str) -> None:
    sysfs.apu(linux.healthy(tmp_path), node=1)
    found = only(tmp_path, **{name: value})
    assert found.status == status
    assert any("hides the card" in line for line in found.evidence) == (status == "note")


@pytest.mark.parametrize("apu", [False, True])
def test_one_gpu_alone_needs_no_choice(tmp_path: Path, apu: bool) -> None:
    assert integrated_beside_discrete.check(linux.machine(linux.healthy(tmp_path, apu))) == []
