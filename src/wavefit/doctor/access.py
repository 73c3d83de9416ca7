"""Why a device node cannot be opened, by errno: the cause, and what mends it in the case at hand."""

from __future__ import annotations

import errno
import os

from wavefit.doctor import kernel
from wavefit.doctor.container import NOBODY, Container, container, passing
from wavefit.doctor.machine import Machine
from wavefit.doctor.nodes import HANGS, Node
from wavefit.schema import Finding, Fix

Told = tuple[str, str, tuple[Fix, ...]]  # title, cause, fixes

_LOG = Fix(command="sudo dmesg | grep -iE 'amdgpu|kfd'", why="shows what the driver says", safe=True)
_RELOAD = (
    Fix(
        command="sudo modprobe -r amdgpu && sudo modprobe amdgpu",
        why="takes every AMD GPU, and a desktop on one, down for a moment",
    ),
    Fix(command="sudo reboot", why="where the driver cannot be unloaded"),
)


def explain(machine: Machine, check: str, failed: list[Node]) -> Finding:
    """One finding for nodes that fail in the same way."""
    first = failed[0]
    names = " and ".join(node.path for node in failed)
    title, cause, fixes = _told(machine, first, names)
    return Finding(
        check=check,
        layer="environment" if first.errno in (errno.EACCES, errno.EPERM) else "driver",
        status="problem",
        title=title,
        evidence=(*(shown(node) for node in failed), *_process(machine)),
        cause=cause,
        fixes=fixes,
        verify=f"python3 -c \"open('{first.path}', 'r+b', buffering=0)\"",
    )


def shown(node: Node) -> str:
    """What open(2) said, and whose the node is."""
    if node.errno == HANGS:
        said = "does not return"
    else:
        said = f"fails with {errno.errorcode.get(node.errno, node.errno)}" if node.errno else "succeeds"
    owner = f" ({node.mode}, uid {node.uid}, gid {node.gid})" if node.mode else ""
    return f"open({node.path}) {said}{owner}"


def _process(machine: Machine) -> tuple[str, ...]:
    if machine.process is None:
        return ()
    groups = ", ".join(map(str, machine.process.groups)) or "none"
    return (f"this process: uid {machine.process.uid}, groups {groups}",)


def _told(machine: Machine, node: Node, names: str) -> Told:
    inside = container(machine)
    if node.errno == errno.EACCES:
        return _denied(machine, node, names, inside)
    if node.errno == errno.EPERM:
        return _forbidden(names, node, inside)
    if node.errno == errno.ENOENT:
        return _missing(names)
    if node.errno == errno.EINVAL:
        return _invalid(machine, names)
    if node.errno == errno.ENOMEM:
        return _no_memory(machine, names)
    if node.errno == errno.EAGAIN:
        return (
            f"{names} is locked while a GPU is reset",
            "open(2) gives EAGAIN: a GPU hung and is being reset, or its reset never ended",
            (_LOG, Fix(command="sudo reboot", why="where it stays so for a minute")),
        )
    if node.errno in (errno.ENODEV, errno.ENXIO):
        return (
            f"{names} leads to no device",
            "the node is there and no driver is behind it: the module was unloaded, or the GPU fell off the bus",
            (_LOG, *_RELOAD),
        )
    if node.errno == HANGS:
        return (
            f"opening {names} does not return",
            "the driver waits for a GPU that has stopped answering",
            (_LOG, Fix(command="sudo reboot", why="a GPU that hangs needs a reset")),
        )
    return f"{names} cannot be opened: {os.strerror(node.errno)}", "no cause is known for this errno", (_LOG,)


# ---- EACCES ----------------------------------------------------------------------------------------------------------


def _denied(machine: Machine, node: Node, names: str, inside: Container | None) -> Told:
    """File permissions forbid it. Sources: ROCm docs, installation prerequisites (groups render and video, udev rules);
    podman-run(1), --group-add keep-groups; user_namespaces(7).
    """
    title = f"this process may not open {names}"
    groups = machine.process.groups if machine.process is not None else ()
    if inside is not None:
        return title, _denied_inside(node, inside, groups), _let_in(node, inside, groups)
    if node.mode is not None and (node.mode[4:6] != "rw" or node.gid == 0):
        return (
            title,
            f"no group of users may open it ({node.mode}, gid {node.gid}): udev has no rule that gives it to one",
            _UDEV,
        )
    if node.gid is None or (machine.process is not None and node.gid in groups):
        return (
            title,
            "the group would allow it: a security module such as SELinux or AppArmor, or a sandbox, forbids it",
            (Fix(command="sudo ausearch -m avc -ts recent || sudo journalctl -k -g apparmor", safe=True),),
        )
    return _not_in_group(machine, node, title)


def _denied_inside(node: Node, inside: Container, groups: tuple[int, ...]) -> str:
    if node.gid == NOBODY:
        return (
            f"the node's group shows as {NOBODY}, nobody: it has no number in this user namespace, "
            "so it must be kept from the user who starts the container"
        )
    if node.gid is not None and node.gid not in groups:
        return f"the node belongs to group {node.gid}, and this process is not in it: names of groups do not count here"
    return f"this {inside.kind} container does not let its processes open the node"


def _let_in(node: Node, inside: Container, groups: tuple[int, ...]) -> tuple[Fix, ...]:
    """Sources: podman-run(1), --device (container_use_devices, the boolean of SELinux); acl(5). Rootless Docker has no
    keep-groups: there the user who runs it must have the right as a user.
    """
    if inside.kind == "apptainer":
        why = "on the host, then log in anew: Apptainer keeps your groups, and nothing is to be handed over"
        return (Fix(command='sudo usermod -aG render "$USER"', why=why),)
    if inside.kind in ("docker", "container") and inside.rootless:
        why = "on the host, until it is started anew: rootless Docker drops your groups, and keeps rights of your own"
        return (Fix(command='sudo setfacl -m "u:$USER:rw" /dev/kfd /dev/dri/renderD*', why=why),)
    if node.gid in groups and node.gid != NOBODY:
        return (
            Fix(
                command="sudo setsebool -P container_use_devices=true",
                why="on a host with SELinux, such as Fedora",
            ),
            Fix(command="podman run --security-opt label=disable ...", why="in its place, for one container"),
        )
    return passing(inside, node.gid)


_UDEV = (
    Fix(
        command='printf \'%s\\n\' \'KERNEL=="kfd", GROUP="render", MODE="0660"\''
        ' \'SUBSYSTEM=="drm", KERNEL=="renderD*", GROUP="render", MODE="0660"\''
        " | sudo tee /etc/udev/rules.d/70-amdgpu.rules",
    ),
    Fix(
        command="sudo udevadm control --reload-rules && sudo udevadm trigger",
        why="applies it without a restart",
    ),
)


def _not_in_group(machine: Machine, node: Node, title: str) -> Told:
    """Groups are read at login: one given since then is in /etc/group and not yet in the process. Sources:
    credentials(7), newgrp(1).
    """
    name, members = _group(machine, node.gid)
    environ = machine.process.environ if machine.process is not None else {}
    user = environ.get("USER") or environ.get("LOGNAME")
    if user is not None and user in members:
        return (
            title,
            f"you are in group {name} since after this login, and a process keeps the groups that it began with",
            (
                Fix(
                    command=f"newgrp {name}",
                    why="a shell with the group; logging in anew gives it to all programs",
                ),
            ),
        )
    return (
        title,
        f"it belongs to group {name} (gid {node.gid}), and this process is not in that group",
        (
            Fix(
                command=f'sudo usermod -aG {name} "$USER"',
                why="then log out and in again: a process keeps the groups that it began with",
                safe=True,
            ),
        ),
    )


def _group(machine: Machine, gid: int | None) -> tuple[str, list[str]]:
    """A group's name and members from /etc/group; its number where it has no name there."""
    for line in (machine.read("/etc/group") or "").splitlines():
        fields = line.split(":")
        if len(fields) == 4 and fields[2] == str(gid):
            return fields[0], fields[3].split(",")
    return str(gid), []


# ---- the other errnos ------------------------------------------------------------------------------------------------


def _forbidden(names: str, node: Node, inside: Container | None) -> Told:
    """Source: Documentation/admin-guide/cgroup-v2.rst, device controller: open(2) gives EPERM."""
    return (
        f"a cgroup's list of devices forbids {names}",
        "open(2) gives EPERM, not EACCES: the node is visible, and the container or service may not use the device",
        passing(inside, node.gid)
        if inside is not None
        else (
            Fix(
                command="systemctl edit SERVICE",
                why="[Service] DeviceAllow=/dev/kfd rw and DeviceAllow=char-drm rw",
            ),
        ),
    )


def _missing(names: str) -> Told:
    """Source: Linux, drivers/gpu/drm/amd/amdkfd/Kconfig, HSA_AMD."""
    return (
        f"{names} is missing, though amdgpu holds a GPU",
        "the kernel was built without compute for AMD GPUs (CONFIG_HSA_AMD), or nothing made the node",
        (
            Fix(command="grep HSA_AMD= /boot/config-$(uname -r)", why="should say y", safe=True),
            Fix(command="sudo udevadm trigger", why="makes nodes that are missing", safe=True),
        ),
    )


def _invalid(machine: Machine, names: str) -> Told:
    """EINVAL is no permission: KFD is locked, or has no GPU. It stays locked after a GPU was unplugged, or lent to a
    virtual machine and taken back, until amdgpu is loaded anew. Sources: kfd_create_process() in
    drivers/gpu/drm/amd/amdkfd/kfd_process.c ("KFD is locked! Cannot create process"); ROCm issue 4469.
    """
    lent = [gpu for gpu in kernel.gpus(machine) if kernel.driver(gpu) != "amdgpu"]
    held = f"{kernel.called(lent[0])} is not amdgpu's now" if lent else "a GPU was unbound, unplugged or lent"
    return (
        f"{names} is out of order until amdgpu is loaded anew",
        f"open(2) gives EINVAL, which is no permission: {held}, and the compute driver stays locked after that",
        (_LOG, *_RELOAD),
    )


def _no_memory(machine: Machine, names: str) -> Told:
    """Sources: ROCm issues 1185 (/dev mounted noexec) and 2232 (no GPU that KFD takes)."""
    for line in (machine.read("/proc/mounts") or "").splitlines():
        fields = line.split()
        if len(fields) > 3 and fields[1] == "/dev" and "noexec" in fields[3].split(","):
            return (
                f"{names} cannot be opened because /dev is mounted noexec",
                "open(2) of /dev/kfd gives ENOMEM there, and mounting /dev with exec has mended it",
                (Fix(command="sudo mount -o remount,exec /dev", safe=True),),
            )
    return (
        f"{names} cannot be opened: the compute driver found no room for this process",
        "open(2) gives ENOMEM: kernel memory is short, or KFD takes none of this machine's GPUs",
        (_LOG, Fix(command="free -h", safe=True)),
    )
