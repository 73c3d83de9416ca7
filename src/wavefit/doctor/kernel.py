"""The Linux kernel of a machine: its release, command line, log, and which driver holds a GPU."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from wavefit.device import kfd, system
from wavefit.device.files import children, exists, read_pairs
from wavefit.doctor.machine import Machine
from wavefit.schema import Device

_JOURNAL_DEADLINE_S = 1.5  # the doctor answers in two seconds
_MOST_LOG_BYTES = 16 << 20

# Where kmod looks. Source: modprobe.d(5).
_MODPROBE_FOLDERS = ("etc/modprobe.d", "run/modprobe.d", "usr/lib/modprobe.d", "lib/modprobe.d")


@dataclass(frozen=True)
class Log:
    """The kernel's messages since it started, as far as its buffer reaches."""

    text: str
    source: str

    def lines(self, pattern: str) -> list[str]:
        """The lines in which a pattern is found, whatever the case."""
        return [line.strip() for line in self.text.splitlines() if re.search(pattern, line, re.IGNORECASE)]


def gpus(machine: Machine) -> tuple[Device, ...]:
    """AMD GPUs of a machine that runs Linux on its hardware: none on Windows and in WSL, which have other drivers."""
    if (machine.live and sys.platform != "linux") or system.is_wsl(machine.root):
        return ()
    return machine.amd_gpus


def release(machine: Machine) -> str | None:
    """The kernel's release, "6.14.0-29-generic"."""
    return system.kernel(machine.root)


def version(text: str | None) -> tuple[int, int, int] | None:
    """The numbers of a release: "6.14.0-29-generic" is (6, 14, 0). Release candidates count as the release."""
    match = re.match(r"(\d{1,3})\.(\d{1,3})(?:\.(\d{1,6}))?", text or "")
    return (int(match[1]), int(match[2]), int(match[3] or 0)) if match else None


def command_line(machine: Machine) -> tuple[str, ...]:
    """The words that the kernel was started with."""
    return tuple((machine.read("/proc/cmdline") or "").split())


def module_loaded(machine: Machine) -> bool | None:
    """Whether amdgpu is in the kernel; None where the machine's modules are not known."""
    if machine.exists("/sys/module/amdgpu"):
        return True
    return False if machine.live or machine.exists("/sys/module") else None


def called(gpu: Device) -> str:
    """How a GPU is called in a sentence: "gfx1100 (0000:03:00.0)"."""
    return f"{gpu.name or gpu.gfx or gpu.pci_id or 'the AMD GPU'} ({gpu.pci_address or gpu.id})"


def folder(gpu: Device) -> str:
    """Where the machine itself shows a GPU's PCI device."""
    return f"/sys/bus/pci/devices/{gpu.pci_address}" if gpu.pci_address else f"the PCI folder of {gpu.id}"


def driver(gpu: Device) -> str | None:
    """The driver bound to a GPU's PCI device: "amdgpu", "" where there is none, None where that is not known."""
    if gpu.sysfs is None:
        return "amdgpu"  # only its compute driver told of it
    folder = Path(gpu.sysfs)
    if not exists(folder / "uevent"):
        return "amdgpu" if gpu.driver is not None else None
    return read_pairs(folder / "uevent", "=").get("DRIVER", "")


def computes(machine: Machine, gpu: Device) -> bool | None:
    """Whether the compute driver KFD lists a GPU; None where its list is not known."""
    if not machine.live and not machine.exists("/sys/class/kfd"):
        return None
    listed = kfd.gpus(machine.root)
    return any(
        each.pci_address == gpu.pci_address or (each.pci_address is None and each.pci_id == gpu.pci_id)
        for each in listed
    )


def hip_index(machine: Machine, gpu: Device) -> int | None:
    """The index by which HIP calls a GPU: as a runtime said it, else its place among KFD's GPUs, which ROCm follows."""
    for runtime in gpu.runtimes:
        if runtime.name == "hip" and runtime.index is not None:
            return runtime.index
    order = kfd.order(machine.root)
    return order.index(gpu.pci_address) if gpu.pci_address in order else None


def modprobe_lines(machine: Machine) -> Iterator[tuple[str, list[str]]]:
    """Every statement of modprobe's configuration: the file, and the words of the line."""
    for folder in _MODPROBE_FOLDERS:
        for path in children(machine.root / folder, r".+\.conf"):
            where = f"/{folder}/{path.name}"
            for line in (machine.read(where) or "").splitlines():
                words = line.split("#", 1)[0].split()
                if words:
                    yield where, words


def log(machine: Machine) -> Log | None:
    """The kernel's log; None where nobody lets us read it.

    Of this machine: /dev/kmsg, the file that some distributions keep of the start, or the journal. Of a recorded one:
    ``wavefit/dmesg.txt``.
    """
    for path in ("/wavefit/dmesg.txt",) if not machine.live else ():
        text = machine.read(path)
        if text is not None:
            return Log(text, path)
    if machine.live:
        text = _kmsg()
        if text:
            return Log(text, "dmesg")
    text = machine.read("/var/log/dmesg")
    if text is not None:
        return Log(text, "/var/log/dmesg")
    text = _journal() if machine.live else None
    return Log(text, "journalctl -k -b") if text else None


def _kmsg() -> str | None:
    """All records of /dev/kmsg: "priority,sequence,time,flags;message". Source: Documentation/ABI/testing/dev-kmsg."""
    try:
        handle = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, AttributeError):
        return None
    messages, size = [], 0
    try:
        while size < _MOST_LOG_BYTES:
            try:
                record = os.read(handle, 8192)
            except BrokenPipeError:
                continue  # overwritten while we read: the next read goes on behind it
            except OSError:
                break  # no more records
            if not record:
                break
            size += len(record)
            messages.append(record.decode("utf-8", "replace").partition(";")[2].partition("\n")[0])
    finally:
        os.close(handle)
    return "\n".join(messages)


def _journal() -> str | None:
    try:
        done = subprocess.run(
            ["journalctl", "-k", "-b", "-o", "cat", "--no-pager", "-q"],
            capture_output=True,
            timeout=_JOURNAL_DEADLINE_S,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout[:_MOST_LOG_BYTES].decode("utf-8", "replace").strip() or None
