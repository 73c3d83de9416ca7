"""Which container this process runs in, and how a GPU is handed to it there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from wavefit.device.files import to_int
from wavefit.doctor.machine import Machine
from wavefit.schema import Fix

Kind = Literal["docker", "podman", "apptainer", "lxc", "kubernetes", "container"]

NOBODY = 65534
"""How a user namespace shows an id of the host that it has no name for. Source: user_namespaces(7), overflowgid."""


@dataclass(frozen=True)
class Container:
    kind: Kind
    evidence: str
    rootless: bool | None  # in a user namespace; None where that is not known


def container(machine: Machine) -> Container | None:
    """The container around this process; None on the host. The innermost and best-known sign is taken.

    Sources: Kubernetes docs (service account volume, KUBERNETES_SERVICE_HOST); podman-run(1), /run/.containerenv;
    Docker's /.dockerenv; Apptainer's /.singularity.d; systemd's container interface, /run/systemd/container.
    """
    found = _kind(machine)
    return Container(*found, rootless(machine)) if found is not None else None


def _kind(machine: Machine) -> tuple[Kind, str] | None:
    environ = machine.process.environ if machine.process is not None else {}
    if "KUBERNETES_SERVICE_HOST" in environ:
        return "kubernetes", "KUBERNETES_SERVICE_HOST is set"
    if machine.exists("/var/run/secrets/kubernetes.io"):
        return "kubernetes", "/var/run/secrets/kubernetes.io is there"
    for name in ("APPTAINER_CONTAINER", "SINGULARITY_CONTAINER"):
        if name in environ:
            return "apptainer", f"{name} is set"
    if machine.exists("/.singularity.d"):
        return "apptainer", "/.singularity.d is there"
    if machine.exists("/run/.containerenv"):
        return "podman", "/run/.containerenv is there"
    if machine.exists("/.dockerenv"):
        return "docker", "/.dockerenv is there"
    manager = machine.read("/run/systemd/container") or environ.get("container", "")
    if manager.startswith("lxc"):
        return "lxc", f"the container manager says {manager!r}"
    return _from_cgroup(machine, manager)


def _from_cgroup(machine: Machine, manager: str) -> tuple[Kind, str] | None:
    groups = machine.read("/proc/1/cgroup") or ""
    for mark, kind in (
        ("kubepods", "kubernetes"),
        ("libpod", "podman"),
        ("/docker", "docker"),
        ("docker-", "docker"),
        ("/lxc", "lxc"),
    ):
        if mark in groups:
            return kind, f"/proc/1/cgroup names {mark.strip('/-')}"  # type: ignore[return-value]
    if manager and manager != "wsl":  # systemd counts WSL as a container
        return "container", f"the container manager says {manager!r}"
    return None


def rootless(machine: Machine) -> bool | None:
    """Whether user ids are mapped: the whole range onto itself is the host's own. Source: user_namespaces(7)."""
    lines = (machine.read("/proc/self/uid_map") or "").splitlines()
    if not lines:
        return None
    numbers = [to_int(word) for word in lines[0].split()]
    return not (len(lines) == 1 and numbers == [0, 0, 4294967295])


def passing(where: Container, gid: int | None = None) -> tuple[Fix, ...]:
    """How this container is started with the GPU. ``gid`` is the number of the nodes' group where it is known.

    Sources: ROCm docs, "Running ROCm Docker containers" (--device /dev/kfd --device /dev/dri, the render group);
    podman-run(1), --group-add keep-groups (with the crun runtime); Apptainer user guide, "GPU Support" (--rocm);
    pct.conf(5) of Proxmox VE, dev[n]; AMD GPU device plugin for Kubernetes (amd.com/gpu).
    """
    number = str(gid) if gid is not None and gid != NOBODY else "$(stat -c %g /dev/kfd)"
    nodes = "--device /dev/kfd --device /dev/dri"
    on_host = "start the container anew, on the host"
    keeps = f"{on_host}; keep-groups needs the runtime crun"
    if where.kind == "podman":
        return (Fix(command=f"podman run {nodes} --group-add keep-groups IMAGE", why=keeps),)
    if where.kind == "apptainer":
        return (Fix(command="apptainer exec --rocm IMAGE.sif COMMAND", why=on_host),)
    if where.kind == "lxc":
        return (
            Fix(
                command=f"pct set ID --dev0 /dev/kfd,gid={number} --dev1 /dev/dri/renderD128,gid={number}",
                why="on a Proxmox VE 8.2 host, gid is that of the render group inside the container",
            ),
            Fix(
                command="lxc config device add NAME gpu gpu",
                why="with LXD or Incus; then: lxc config device add NAME kfd unix-char source=/dev/kfd",
            ),
        )
    if where.kind == "kubernetes":
        return (
            Fix(
                command="kubectl create -f https://raw.githubusercontent.com/ROCm/k8s-device-plugin/master/k8s-ds-amdgpu-dp.yaml",
                why="AMD's device plugin, once a cluster",
            ),
            Fix(
                command="resources: {limits: {amd.com/gpu: 1}}",
                why="in the container's part of the pod's description",
            ),
            Fix(
                command=f"securityContext: {{supplementalGroups: [{number}]}}",
                why="in the pod's description, where it does not run as root",
            ),
        )
    return (Fix(command=f"docker run {nodes} --group-add {number} IMAGE", why=on_host),)
