"""Does Secure Boot keep an unsigned amdgpu out of the kernel?"""

from __future__ import annotations

from wavefit.doctor import driver, kernel
from wavefit.doctor.machine import Machine
from wavefit.schema import Finding, Fix


def check(machine: Machine) -> list[Finding]:
    """A kernel under Secure Boot takes signed modules alone, and one that DKMS built is signed with the machine
    owner's key (MOK), which the firmware must know. Sources: Documentation/admin-guide/module-signing.rst; mokutil(1);
    Debian wiki, SecureBoot.
    """
    if not kernel.gpus(machine):
        return []
    cause = driver.cause(machine)
    if cause is not None and cause.kind == "secure boot":
        return [_problem(cause)]
    state = driver.secure_boot(machine)
    if state is None or cause is not None:
        return []
    title = "Secure Boot is on, and the driver is loaded" if state else "Secure Boot is off"
    return [Finding(check="secure_boot", layer="driver", status="ok", title=title)]


def _problem(cause: driver.Cause) -> Finding:
    return Finding(
        check="secure_boot",
        layer="driver",
        status="problem",
        title="Secure Boot keeps the amdgpu module out of the kernel",
        evidence=cause.evidence,
        cause="the module is not signed, or with a key that this machine's firmware does not know",
        fixes=(
            Fix(
                command="sudo mokutil --import /var/lib/shim-signed/mok/MOK.der",
                why="Ubuntu's key, elsewhere /var/lib/dkms/mok.pub; the password is asked again at the next start",
            ),
            Fix(command="sudo reboot", why="choose Enroll MOK in the blue screen that comes first"),
            Fix(
                command="sudo mokutil --disable-validation",
                why="in place of both: modules are then not checked",
            ),
        ),
        verify="mokutil --sb-state && sudo modprobe amdgpu",
    )
