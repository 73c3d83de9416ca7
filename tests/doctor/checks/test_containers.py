from __future__ import annotations

from pathlib import Path

import pytest
from fakes import linux, sysfs

from wavefit.doctor.checks import containers
from wavefit.doctor.container import container, rootless
from wavefit.schema import Finding

MISSING = {"errno": 2}
OPEN = {"errno": 0, **linux.NODE}
SIGNS: dict[str, tuple[dict[str, object], dict[str, str], str]] = {
    "docker": ({".dockerenv": ""}, {}, "docker run --device /dev/kfd --device /dev/dri"),
    "podman": ({"run/.containerenv": 'engine="podman-5.4.0"'}, {}, "podman run"),
    "apptainer": ({}, {"APPTAINER_CONTAINER": "/a.sif"}, "apptainer exec --rocm"),
    "singularity": ({".singularity.d/runscript": ""}, {}, "--rocm"),
    "lxc": ({"run/systemd/container": "lxc"}, {}, "pct set"),
    "lxc by cgroup": ({"proc/1/cgroup": "0::/lxc/101/ns/init.scope"}, {}, "/dev/kfd"),
    "kubernetes": ({".dockerenv": ""}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "amd.com/gpu: 1"),
    "docker by cgroup": ({"proc/1/cgroup": "12:devices:/docker/0a1b2c"}, {}, "docker run"),
}


def only(root: Path, **environ: str) -> Finding:
    (finding,) = containers.check(linux.machine(root, **environ))
    return finding


@pytest.mark.parametrize("name", SIGNS)
def test_each_engine_is_told_by_its_own_sign_and_flags(tmp_path: Path, name: str) -> None:
    files, environ, command = SIGNS[name]
    sysfs.write(linux.healthy(tmp_path), files)
    linux.nodes(tmp_path, kfd=MISSING, renderD128=MISSING)
    found = only(tmp_path, **environ)
    assert found.status == "problem"
    assert command in linux.commands(found)
    assert not any(fix.safe for fix in found.fixes)


def test_on_the_host_there_is_nothing_to_say(tmp_path: Path) -> None:
    linux.nodes(linux.healthy(tmp_path), kfd=MISSING, renderD128=MISSING)
    assert containers.check(linux.machine(tmp_path)) == []


def test_given_everything(tmp_path: Path) -> None:
    linux.docker(linux.healthy(tmp_path))
    assert only(tmp_path).status == "ok"


def test_kfd_forgotten_is_a_problem_though_the_card_is_there(tmp_path: Path) -> None:
    linux.docker(linux.healthy(tmp_path))
    linux.nodes(tmp_path, kfd=MISSING, renderD128=OPEN)
    found = only(tmp_path)
    assert found.status == "problem"
    assert "missing: /dev/kfd" in found.evidence
    assert "--group-add 993" in linux.commands(found)  # the number that the render node shows


def test_one_gpu_of_two_is_as_the_owner_wanted_it(tmp_path: Path) -> None:
    linux.docker(linux.healthy(tmp_path))
    sysfs.write(sysfs.apu(tmp_path, node=3), {"drm/renderD129/dev": "226:129"})
    linux.nodes(tmp_path, kfd=OPEN, renderD128=OPEN, renderD129=MISSING)
    found = only(tmp_path)
    assert found.status == "note"
    assert "renderD129" in found.title


def test_a_recording_without_nodes_is_not_judged(tmp_path: Path) -> None:
    linux.docker(linux.healthy(tmp_path))
    (tmp_path / "wavefit/nodes.json").unlink()
    assert containers.check(linux.machine(tmp_path)) == []


@pytest.mark.parametrize(
    ("uid_map", "expected"),
    [
        ("         0          0 4294967295", False),
        ("         0       1000          1\n         1     100000      65536", True),
        ("         0     100000      65536", True),  # an unprivileged LXC container
    ],
)
def test_a_user_namespace_is_told_by_its_map(tmp_path: Path, uid_map: str, expected: bool) -> None:
    sysfs.write(linux.healthy(tmp_path), {"proc/self/uid_map": uid_map})
    assert rootless(linux.machine(tmp_path)) is expected


def test_without_a_map_rootless_is_unknown(tmp_path: Path) -> None:
    assert rootless(linux.machine(tmp_path)) is None


def test_wsl_is_no_container(tmp_path: Path) -> None:
    sysfs.write(tmp_path, {"run/systemd/container": "wsl"})
    assert container(linux.machine(tmp_path)) is None
