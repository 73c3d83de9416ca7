"""Inside a container: was the GPU handed to it?"""

from __future__ import annotations

import errno

from wavefit.doctor import kernel, nodes
from wavefit.doctor.container import Container, container, passing
from wavefit.doctor.machine import Machine
from wavefit.schema import Finding


def check(machine: Machine) -> list[Finding]:
    """A container sees the host's GPUs in /sys, and of /dev what it was given. Whether it may open that, the check of
    device nodes tells. A container that was given one GPU of several is as its owner wanted it.
    """
    held = [gpu for gpu in kernel.gpus(machine) if kernel.driver(gpu) == "amdgpu"]
    where = container(machine)
    if not held or where is None:
        return []
    rendering = [path for gpu in held for path in nodes.render_nodes(machine, gpu)]
    found = nodes.nodes(machine, ["/dev/kfd", *rendering])
    if not found:
        return []
    missing = {path for path, node in found.items() if node.errno == errno.ENOENT}
    known = [path for path in rendering if path in found]
    if "/dev/kfd" in missing or (known and missing.issuperset(known)):
        return [_problem(where, sorted(missing), found)]
    if missing:
        return [
            _finding(
                where,
                "note",
                f"this container was given only some GPUs: it lacks {', '.join(sorted(missing))}",
            )
        ]
    return [_finding(where, "ok", f"this container ({where.kind}) was given the GPU's nodes")]


def _finding(where: Container, status: str, title: str) -> Finding:
    return Finding(
        check="containers",
        layer="environment",
        status=status,  # type: ignore[arg-type]
        title=title,
        evidence=(where.evidence,),
    )


def _problem(where: Container, missing: list[str], found: dict[str, nodes.Node]) -> Finding:
    gid = next((node.gid for node in found.values() if node.gid), None)
    rootless = ("/proc/self/uid_map: user ids are mapped, a rootless container",) if where.rootless else ()
    return Finding(
        check="containers",
        layer="environment",
        status="problem",
        title=f"this container ({where.kind}) was started without the GPU",
        evidence=(where.evidence, f"missing: {', '.join(missing)}", *rootless),
        cause="the host's amdgpu holds a GPU, and the container was not given its device nodes",
        fixes=passing(where, gid),
        verify="ls -ln /dev/kfd /dev/dri",
    )
