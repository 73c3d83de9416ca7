"""Can this process open /dev/kfd and the GPU's render nodes? They are opened for real, and the errno tells why not."""

from __future__ import annotations

import errno
from collections import defaultdict

from wavefit.doctor import access, kernel, nodes
from wavefit.doctor.container import container
from wavefit.doctor.machine import Machine
from wavefit.schema import Finding

CHECK = "device_nodes"

# What /dev/kfd gives where KFD has no GPU at all, by kernel: kernel_version and pcie_atomics say why it has none.
# Sources: kfd_create_process() in kfd_process.c, "no KFD gpu node! Cannot create process"; ROCm issue 2232 (ENOMEM).
_NO_GPU = (errno.EINVAL, errno.ENOMEM)


def check(machine: Machine) -> list[Finding]:
    """Only GPUs that amdgpu holds have nodes; of the others amdgpu_module tells.

    Nodes that a container lacks are left to the check of containers. Nodes that fail alike are one finding: most
    often one group opens all of them.
    """
    held = [gpu for gpu in kernel.gpus(machine) if kernel.driver(gpu) == "amdgpu"]
    if not held:
        return []
    paths = ["/dev/kfd", *(path for gpu in held for path in nodes.render_nodes(machine, gpu))]
    found = nodes.nodes(machine, paths)
    if not found:
        return []
    inside = container(machine) is not None
    idle = not inside and all(kernel.computes(machine, gpu) is False for gpu in held)
    alike: dict[tuple[int, int | None], list[nodes.Node]] = defaultdict(list)
    for node in found.values():
        if (
            node.errno
            and not (inside and node.errno == errno.ENOENT)
            and not (node.errno in _NO_GPU and idle)
        ):
            denied = node.errno in (errno.EACCES, errno.EPERM)
            alike[node.errno, node.gid if denied else None].append(node)
    if alike:
        return [access.explain(machine, CHECK, failed) for failed in alike.values()]
    opened = [node for node in found.values() if not node.errno]
    if not opened:
        return []
    return [
        Finding(
            check=CHECK,
            layer="driver",
            status="ok",
            title=f"this process may open {', '.join(node.path for node in opened)}",
            evidence=tuple(access.shown(node) for node in opened),
        )
    ]
