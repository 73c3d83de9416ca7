"""gfx targets: their names, which PCI ids have which, and which belong to integrated GPUs."""

from __future__ import annotations


def gfx_name(target_version: int | None) -> str | None:
    """The compiler's name of KFD's gfx_target_version: 110003 is gfx1103, 90010 is gfx90a.

    Source: Linux, drivers/gpu/drm/amd/amdkfd/kfd_device.c: major * 10000 + minor * 100 + stepping, the stepping
    written in hexadecimal.
    """
    if target_version is None or not 60000 <= target_version < 1000000:
        return None  # 0 stands on CPU and NPU nodes
    major, minor, stepping = target_version // 10000, target_version // 100 % 100, target_version % 100
    return f"gfx{major}{minor:x}{stepping:x}"


def gfx_of_pci_id(pci_id: str | None) -> str | None:
    """The target of a PCI id "1002:744c", where no driver says it; None where this table lacks the id."""
    vendor, _, device = (pci_id or "").partition(":")
    return _GFX_OF_DEVICE.get(device) if vendor == "1002" else None


def is_integrated(gfx: str | None, pci_id: str | None) -> bool | None:
    """Whether a target belongs to an APU or to a card; None where the target is unknown, or is made as both."""
    if gfx == "gfx942":  # MI300A is an APU, MI300X and MI325X are cards
        return pci_id == "1002:74a0" if pci_id else None
    if gfx in _APU:
        return True
    return False if gfx in _CARD else None


# Source: LLVM, docs/AMDGPUUsage.rst, table "AMDGPU Processors", column "dGPU/APU". Without "gfx".
_APUS = "700 703 705 801 810 902 909 90c 1013 1033 1035 1036 1103 1150 1151 1152 1153"
_CARDS = "701 702 704 802 803 805 900 904 906 908 90a 950 1010 1011 1012 1030 1031 1032 1034 1100 1101 1102 1200 1201"
_APU = frozenset(f"gfx{number}" for number in _APUS.split())
_CARD = frozenset(f"gfx{number}" for number in _CARDS.split())

# PCI device ids of vendor 1002. Source: up to gfx1035, ROCr, libhsakmt/src/topology.c, gfxip_lookup_table; gfx1036 to
# gfx1152, GPUOpen device_info, DeviceInfo.cpp; gfx942, gfx950 and gfx12, pci.ids (the chip) and the LLVM table (its
# target).
_IDS = {
    "gfx803": "7300 730f 67c0 67c1 67c2 67c4 67c7 67c8 67c9 67ca 67cc 67cf 67d0 67df 6fdf 67e0 67e1 67e3 67e7 67e8 "
    "67e9 67eb 67ef 67ff 6980 6981 6985 6986 6987 6995 6997 699f 694c 694e 694f",
    "gfx900": "6860 6861 6862 6863 6864 6867 6868 6869 686a 686b 686c 686d 686e 687f",
    "gfx902": "15dd 15d8",
    "gfx904": "69a0 69a1 69a2 69a3 69af",
    "gfx906": "66a0 66a1 66a2 66a3 66a4 66a7 66af",
    "gfx908": "7388 738c 738e 7390",
    "gfx90a": "7408 740c 740f 7410",
    "gfx90c": "15e7 1636 1638 164c",
    "gfx942": "74a0 74a1 74a5",
    "gfx950": "75a0 75a3",
    "gfx1010": "7310 7312 7318 731a 731e 731f",
    "gfx1011": "7360 7362",
    "gfx1012": "7340 7341 7347",
    "gfx1013": "13f9 13fa 13fb 13fc 13fe 143f",
    "gfx1030": "73a0 73a1 73a2 73a3 73a5 73a8 73a9 73ab 73ac 73ad 73ae 73bf",
    "gfx1031": "73c0 73c1 73c3 73da 73db 73dc 73dd 73de 73df",
    "gfx1032": "73e0 73e1 73e2 73e8 73e9 73ea 73eb 73ec 73ed 73ef 73ff",
    "gfx1033": "163f",
    "gfx1034": "7420 7421 7422 7423 743f",
    "gfx1035": "164d 1681",
    "gfx1036": "1506 13c0 164e",
    "gfx1100": "744c 7448 7449 744a 744b 745e",
    "gfx1101": "747e 7460 7461 7470",
    "gfx1102": "7480 7481 7483 7489 748b 7499",
    "gfx1103": "15bf 1900 15c8 1901",
    "gfx1150": "150e",
    "gfx1151": "1586",
    "gfx1152": "1114",
    "gfx1200": "7590",
    "gfx1201": "7550 7551",
}
_GFX_OF_DEVICE = {device: gfx for gfx, devices in _IDS.items() for device in devices.split()}
