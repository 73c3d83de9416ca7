"""Names of targets, from published pairs."""

from __future__ import annotations

import pytest

from wavefit.device.gfx import gfx_name, gfx_of_pci_id, is_integrated


@pytest.mark.parametrize(
    ("version", "name"),
    [
        (110003, "gfx1103"),
        (90010, "gfx90a"),
        (90012, "gfx90c"),
        (90402, "gfx942"),
        (90500, "gfx950"),
        (100303, "gfx1033"),
        (110501, "gfx1151"),
        (120001, "gfx1201"),
        (120500, "gfx1250"),
        (80003, "gfx803"),
        (0, None),
        (-1, None),
        (None, None),
        (10**12, None),
    ],
)
def test_names(version: int | None, name: str | None) -> None:
    assert gfx_name(version) == name


@pytest.mark.parametrize(
    ("pci_id", "gfx", "integrated"),
    [
        ("1002:6860", "gfx900", False),  # 26720
        ("1002:67df", "gfx803", False),  # RX 580
        ("1002:1636", "gfx90c", True),  # Renoir
        ("1002:744c", "gfx1100", False),
        ("1002:15bf", "gfx1103", True),
        ("1002:1586", "gfx1151", True),  # Strix Halo
        ("1002:ffff", None, None),
        ("10de:744c", None, None),
        (None, None, None),
    ],
)
def test_targets_of_pci_ids(pci_id: str | None, gfx: str | None, integrated: bool | None) -> None:
    assert gfx_of_pci_id(pci_id) == gfx
    assert is_integrated(gfx, pci_id) is integrated


def test_gfx942_without_an_id_may_be_either() -> None:
    assert is_integrated("gfx942", None) is None
