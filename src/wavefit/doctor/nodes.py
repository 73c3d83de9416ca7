"""Device nodes, opened for real: what open(2) says of /dev/kfd and of each render node.

A recorded machine holds what was found in ``wavefit/nodes.json``:
``{"nodes": [{"path": "/dev/kfd", "errno": 13, "mode": "crw-rw----", "uid": 0, "gid": 993}]}``, errno 0 where the node
opened; mode, uid and gid are absent where there is no node.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

from wavefit.device.files import children
from wavefit.device.pci import address
from wavefit.doctor.machine import Machine
from wavefit.schema import Device, Struct

RECORDING = "/wavefit/nodes.json"
DEADLINE_S = 3.0
HANGS = -1
"""In place of an errno: open(2) had not returned by the deadline."""


class Node(Struct, frozen=True, kw_only=True):
    """What opening a device node for reading and writing gave."""

    path: str
    errno: int  # 0: it opened
    mode: str | None = None  # as ls shows it, "crw-rw----"
    uid: int | None = None
    gid: int | None = None


class _Recording(Struct, frozen=True, kw_only=True):
    nodes: tuple[Node, ...] = ()


# A driver that has failed can keep open(2) for ever, and no signal ends that: a child opens, and is left behind if it
# must be. It prints a line a node, so that what it found before stays known.
_OPENER = """
import json, os, stat, sys
for path in sys.argv[1:]:
    found = {"path": path, "errno": 0}
    try:
        status = os.stat(path)
        found.update(mode=stat.filemode(status.st_mode), uid=status.st_uid, gid=status.st_gid)
    except OSError:
        pass
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY))
    except OSError as error:
        found["errno"] = error.errno
    print(json.dumps(found), flush=True)
"""


def nodes(machine: Machine, paths: Iterable[str]) -> dict[str, Node]:
    """The nodes of which something is known: all that are asked for on this machine, those recorded elsewhere."""
    wanted = list(paths)
    found = open_nodes(wanted) if machine.live else _recorded(machine)
    return {node.path: node for node in found if node.path in wanted}


def _recorded(machine: Machine) -> tuple[Node, ...]:
    text = machine.read(RECORDING)
    if text is None:
        return ()
    try:
        return msgspec.json.decode(text, type=_Recording).nodes
    except msgspec.DecodeError:
        return ()  # what cannot be read is not known


def open_nodes(paths: list[str], deadline_s: float = DEADLINE_S) -> tuple[Node, ...]:
    """Opens each path for reading and writing and closes it at once, in a child process with a deadline."""
    if not paths:
        return ()
    try:
        child = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _OPENER, *paths],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return ()
    end = time.monotonic() + deadline_s
    while child.poll() is None and time.monotonic() < end:
        time.sleep(0.005)
    hung = child.poll() is None
    if hung:
        child.kill()  # no wait: a child held by a driver ends when the driver lets go
        time.sleep(0.05)
    found = _lines(child, hung and child.poll() is None)
    if hung and len(found) < len(paths):
        found.append(Node(path=paths[len(found)], errno=HANGS))
    return tuple(found)


def _lines(child: subprocess.Popen[bytes], held: bool) -> list[Node]:
    """What the child printed. A pipe that a held child keeps open is read without waiting for its end."""
    import os

    assert child.stdout is not None
    if held:
        os.set_blocking(child.stdout.fileno(), False)
    with child.stdout as pipe:
        data = pipe.read() or b""
    return [msgspec.convert(json.loads(line), Node) for line in data.splitlines()]


def render_nodes(machine: Machine, gpu: Device) -> tuple[str, ...]:
    """The paths of a GPU's render nodes: "/dev/dri/renderD128"; several where it is in partitions."""
    found = []
    if gpu.sysfs is not None:
        found = [path.name for path in children(Path(gpu.sysfs) / "drm", r"renderD\d+")]
    if not found and gpu.pci_address is not None:
        found = [
            path.name
            for path in children(machine.root / "sys/class/drm", r"renderD\d+")
            if address(path / "device") == gpu.pci_address
        ]
    return tuple(f"/dev/dri/{name}" for name in found)
