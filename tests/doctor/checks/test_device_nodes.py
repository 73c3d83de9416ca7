from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from fakes import linux, sysfs

from wavefit.doctor import nodes
from wavefit.doctor.checks import device_nodes
from wavefit.doctor.machine import Machine
from wavefit.schema import Finding

NOBODY = {"errno": errno.EACCES, "mode": "crw-rw----", "uid": 65534, "gid": 65534}
DENIED = {"errno": errno.EACCES, **linux.NODE}
OPEN = {"errno": 0, **linux.NODE}


def both(root: Path, fact: dict[str, object]) -> None:
    linux.nodes(root, kfd=fact, renderD128=fact)


def only(machine: Machine) -> Finding:
    (finding,) = device_nodes.check(machine)
    return finding


# ---- EACCES: groups, and what containers make of them ----------------------------------------------------------------


def test_a_user_outside_the_group_is_told_its_name_and_number(tmp_path: Path) -> None:
    both(linux.healthy(tmp_path), DENIED)
    found = only(linux.machine(tmp_path, groups=(1000, 27)))
    assert found.status == "problem"
    assert "group render (gid 993)" in found.cause
    assert any("groups 1000, 27" in line for line in found.evidence)
    assert [fix.command for fix in found.fixes if fix.safe] == ['sudo usermod -aG render "$USER"']


def test_a_group_given_after_login_needs_a_new_login_not_usermod(tmp_path: Path) -> None:
    both(linux.healthy(tmp_path), DENIED)
    sysfs.write(tmp_path, {"etc/group": "render:x:993:eve,ada"})
    found = only(linux.machine(tmp_path, groups=(1000,)))
    assert "since after this login" in found.cause
    assert linux.commands(found) == "newgrp render"


def test_a_group_without_a_name_is_called_by_its_number(tmp_path: Path) -> None:
    both(linux.healthy(tmp_path), DENIED)
    sysfs.write(tmp_path, {"etc/group": "root:x:0:"})
    assert "usermod -aG 993" in linux.commands(only(linux.machine(tmp_path, groups=(1000,))))


@pytest.mark.parametrize("node", [("crw-------", 993), ("crw-rw----", 0)])
def test_a_node_that_no_group_may_open_needs_a_rule_of_udev(tmp_path: Path, node: tuple[str, int]) -> None:
    both(linux.healthy(tmp_path), {"errno": errno.EACCES, "mode": node[0], "uid": 0, "gid": node[1]})
    found = only(linux.machine(tmp_path, groups=(1000,)))
    assert "/etc/udev/rules.d" in linux.commands(found)
    assert "usermod" not in linux.commands(found)
    assert not any(fix.safe for fix in found.fixes)


def test_a_group_that_would_do_points_to_a_security_module(tmp_path: Path) -> None:
    both(linux.healthy(tmp_path), DENIED)
    assert "SELinux" in only(linux.machine(tmp_path)).cause


def test_in_docker_the_number_of_the_group_is_given_not_its_name(tmp_path: Path) -> None:
    """The image's "render" may have another number."""
    both(linux.healthy(tmp_path), DENIED)
    linux.docker(tmp_path)
    sysfs.write(tmp_path, {"etc/group": "render:x:109:ada"})
    found = only(linux.machine(tmp_path, groups=(1000, 109)))
    assert "--group-add 993" in linux.commands(found)
    assert "usermod" not in linux.commands(found)


def test_rootless_podman_keeps_groups(tmp_path: Path) -> None:
    both(linux.healthy(tmp_path), NOBODY)
    rootless = "0 1000 1\n1 100000 65536"
    sysfs.write(tmp_path, {"run/.containerenv": 'engine="podman-5.4.0"', "proc/self/uid_map": rootless})
    found = only(linux.machine(tmp_path, groups=(0, 65534)))
    assert "no number in this user namespace" in found.cause
    assert "--group-add keep-groups" in linux.commands(found)


def test_rootless_docker_has_no_keep_groups(tmp_path: Path) -> None:
    both(linux.healthy(tmp_path), NOBODY)
    linux.docker(tmp_path)
    sysfs.write(tmp_path, {"proc/self/uid_map": "0 1000 1\n1 100000 65536"})
    commands = linux.commands(only(linux.machine(tmp_path, groups=(0,))))
    assert "setfacl" in commands
    assert "keep-groups" not in commands


def test_apptainer_keeps_the_hosts_groups(tmp_path: Path) -> None:
    both(linux.healthy(tmp_path), DENIED)
    found = only(linux.machine(tmp_path, groups=(1000,), APPTAINER_CONTAINER="/a.sif"))
    assert linux.commands(found) == 'sudo usermod -aG render "$USER"'
    assert not any(fix.safe for fix in found.fixes)  # it would run inside


def test_kfd_alone_denied_is_about_kfd_alone(tmp_path: Path) -> None:
    linux.nodes(linux.healthy(tmp_path), kfd={**DENIED, "gid": 0}, renderD128=OPEN)
    found = only(linux.machine(tmp_path))
    assert "/dev/kfd" in found.title
    assert "renderD128" not in found.title


def test_two_groups_are_two_findings(tmp_path: Path) -> None:
    linux.nodes(linux.healthy(tmp_path), kfd=DENIED, renderD128={**DENIED, "gid": 44})
    found = device_nodes.check(linux.machine(tmp_path, groups=(1000,)))
    assert [("render" in each.cause, "video" in each.cause) for each in found] == [
        (True, False),
        (False, True),
    ]


# ---- other errnos ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "title", "command"),
    [
        (errno.EPERM, "cgroup", "DeviceAllow"),
        (errno.ENOENT, "missing", "HSA_AMD"),
        (errno.EINVAL, "loaded anew", "modprobe -r amdgpu"),
        (errno.ENOMEM, "no room", "dmesg"),
        (errno.ENODEV, "no device", "dmesg"),
        (errno.ENXIO, "no device", "dmesg"),
        (errno.EAGAIN, "reset", "reboot"),
        (nodes.HANGS, "does not return", "reboot"),
        (errno.EIO, "Input/output error", "dmesg"),
    ],
)
def test_each_errno_has_its_cause_and_none_is_a_permission(
    tmp_path: Path, code: int, title: str, command: str
) -> None:
    linux.nodes(linux.healthy(tmp_path), kfd={**OPEN, "errno": code}, renderD128=OPEN)
    found = only(linux.machine(tmp_path))
    assert found.status == "problem"
    assert title in found.title
    assert command in "\n".join(f"{fix.command} {fix.why}" for fix in found.fixes)
    assert "usermod" not in linux.commands(found)


def test_einval_names_the_gpu_that_was_lent(tmp_path: Path) -> None:
    linux.healthy(tmp_path, apu=True)
    sysfs.card(tmp_path)
    (tmp_path / "sys/bus/pci/devices" / linux.CARD / "uevent").write_text(
        f"DRIVER=vfio-pci\nPCI_SLOT_NAME={linux.CARD}\n"
    )
    linux.nodes(tmp_path, kfd={**OPEN, "errno": errno.EINVAL}, renderD128=OPEN)
    found = only(linux.machine(tmp_path))
    assert linux.CARD in found.cause
    assert "no permission" in found.cause


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOMEM])
def test_kfd_without_a_gpu_is_left_to_the_check_that_knows_why(tmp_path: Path, code: int) -> None:
    linux.without_compute(linux.healthy(tmp_path))
    linux.nodes(tmp_path, kfd={**OPEN, "errno": code}, renderD128=OPEN)
    assert linux.problems(device_nodes.check(linux.machine(tmp_path))) == []


def test_enomem_under_dev_mounted_noexec_is_mended_by_exec(tmp_path: Path) -> None:
    linux.nodes(linux.healthy(tmp_path), kfd={**OPEN, "errno": errno.ENOMEM}, renderD128=OPEN)
    sysfs.write(tmp_path, {"proc/mounts": "udev /dev devtmpfs rw,nosuid,noexec,relatime 0 0"})
    assert "remount,exec /dev" in linux.commands(only(linux.machine(tmp_path)))


def test_eperm_in_docker_asks_for_the_devices(tmp_path: Path) -> None:
    both(linux.healthy(tmp_path), {**OPEN, "errno": errno.EPERM})
    linux.docker(tmp_path)
    assert "--device /dev/kfd --device /dev/dri" in linux.commands(only(linux.machine(tmp_path)))


# ---- what is not known -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"nodes": [{"path": 1}]}', '{"nodes": [{"path": "/dev/kfd"}]}']
)
def test_a_recording_that_does_not_say_gives_nothing(tmp_path: Path, text: str) -> None:
    sysfs.write(linux.healthy(tmp_path), {"wavefit/nodes.json": text})
    assert device_nodes.check(linux.machine(tmp_path)) == []


def test_nodes_of_an_unbound_gpu_are_not_asked_for(tmp_path: Path) -> None:
    linux.unbind(linux.healthy(tmp_path))
    linux.nodes(tmp_path, kfd={"errno": errno.ENOENT})
    assert device_nodes.check(linux.machine(tmp_path)) == []


# ---- opening for real ------------------------------------------------------------------------------------------------


def test_open_says_what_the_kernel_says(tmp_path: Path) -> None:
    """On files of this machine: the errno of each is fixed by POSIX and tty(4)."""
    missing, folder = str(tmp_path / "none"), str(tmp_path)
    paths = ["/dev/null", missing, folder, "/dev/tty"]
    found = nodes.open_nodes(paths)
    assert [node.path for node in found] == paths
    null, none, directory, terminal = found
    assert (null.errno, null.mode, null.gid) == (0, "crw-rw-rw-", 0)
    assert (none.errno, none.mode) == (errno.ENOENT, None)
    assert directory.errno == errno.EISDIR
    assert terminal.errno == errno.ENXIO  # the child has a session of its own, and so no terminal


@pytest.mark.skipif(os.geteuid() == 0, reason="root may open everything")
def test_open_is_denied_where_the_mode_denies(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.touch(mode=0o000)
    (node,) = nodes.open_nodes([str(closed)])
    assert (node.errno, node.mode) == (errno.EACCES, "----------")


def test_an_open_that_does_not_return_is_left_at_the_deadline() -> None:
    found = nodes.open_nodes(["/dev/null", "/dev/zero"], deadline_s=0.0)  # no interpreter starts in no time
    assert found[-1].errno == nodes.HANGS


def test_nothing_is_opened_for_nothing() -> None:
    assert nodes.open_nodes([]) == ()
