"""Takes personal details out of what is recorded: names of the host and of users, addresses, serial numbers, ids."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping

from wavefit.doctor.machine import Machine

# Words of the kernel's command line that bear on a GPU; the others (disks, hosts, keys) are left out.
_BOOT = re.compile(
    r"(amdgpu|amd_iommu|amdttm|drm|ttm|radeon|nouveau|nvidia|intel_iommu|iommu|pci|pcie_aspm|vfio|lockdown|module|mem|"
    r"swiotlb|hugepages|efi|lsm|selinux|apparmor|video|nomodeset|modprobe|rd\.driver|modules)([.=_]\S*)?$|"
    r"\S*(blacklist|denylist)=\S*$"
)
# Environment variables that a check may ask for.
_VARIABLES = re.compile(
    r"(HSA|HIP|ROCR|ROCM|GPU|AMD|MIOPEN|MIGRAPHX|ORT|OCL|OPENCL|PYOPENCL|PYTORCH|TORCH|CUDA|MESA|VK|RUSTICL|POCL)_\w+|"
    r"PATH|LD_LIBRARY_PATH|container|VIRTUAL_ENV|CONDA_PREFIX|TMPDIR|XDG_CACHE_HOME|HOME|"
    r"KUBERNETES_SERVICE_HOST|(APPTAINER|SINGULARITY)_CONTAINER|WSL_DISTRO_NAME"
)
# Python packages that a check may ask for; others may tell what someone works on.
_PACKAGES = re.compile(
    r"(onnx|torch|pytorch|triton|pyopencl|pocl|intel-opencl|rocm|hip|amd|migraphx|numpy|tensor|cupy|jax|openvino|nvidia|"
    r"cuda|wavefit|tinygrad|iree|olive).*"
)
_SECRET = re.compile(r"TOKEN|SECRET|PASS|CREDENTIAL|KEY|AUTH", re.IGNORECASE)  # in a variable's name
_NAMING = ("KUBERNETES_SERVICE_HOST", "APPTAINER_CONTAINER", "SINGULARITY_CONTAINER", "WSL_DISTRO_NAME")
# How the kernel's log repeats its command line. Source: Linux, init/main.c and arch/x86/kernel/setup.c.
_BOOT_LINE = re.compile(r"(command line(?: parameters)?:?)(.*)", re.IGNORECASE)
_SERIAL_LINE = re.compile(r"^(unique_id|serial\w*|Serial|product_uuid|board_serial)\b.*\n?", re.MULTILINE)
_PATTERNS = (
    (re.compile(r"/(home|Users)/[^/\s:;,\"']+"), r"/\1/user"),
    (re.compile(r"\b[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"), "UUID"),
    (re.compile(r"\b[0-9a-fA-F]{2}([:-][0-9a-fA-F]{2}){5}\b"), "MAC"),
    # The ranges in use (RFC 4291, RFC 4193): a PCI address, 0000:03:00.0, is in none of them.
    (re.compile(r"\b(fe[89ab][0-9a-f]|f[cd][0-9a-f]{2}|[23][0-9a-f]{3}):[0-9a-f:]*:[0-9a-f:]*", re.I), "IP"),
    (re.compile(r"\b[0-9a-f]{24,64}\b"), "ID"),  # of a container
    (re.compile(r"\b\d{1,3}(\.\d{1,3}){3}\b(?!\.)"), "IP"),
    (re.compile(r"[\w.+-]+@[\w.-]*\w"), "MAIL"),  # and who built a kernel, on which host
)
_SHARED_NAMES = frozenset(
    ("/", "/root", "root", "user", "home", "localhost", "ubuntu", "debian", "fedora", "linux", "amd", "gpu")
)


class Scrubber:
    """Scrubs texts of one machine.

    Args:
        names: names to take out wherever they stand alone, as "NAME".
    """

    def __init__(self, names: frozenset[str]) -> None:
        found = sorted((re.escape(name) for name in names if len(name) > 1), key=len, reverse=True)
        self._names = (
            re.compile(rf"(?<![A-Za-z0-9])({'|'.join(found)})(?![A-Za-z0-9])", re.I) if found else None
        )

    def text(self, text: str) -> str:
        """Free text: a log, a path, a variable's value."""
        text = _BOOT_LINE.sub(lambda found: f"{found[1]} {_boot(found[2])}", text)
        for pattern, instead in _PATTERNS:
            text = pattern.sub(instead, text)
        return self._names.sub("NAME", text) if self._names is not None else text

    def path(self, path: str) -> str:
        """A path in the recording, or a link's target. The ids in the names of UEFI's variables are the standard's."""
        return path if path.startswith("sys/firmware/") else self.text(path)

    def file(self, path: str, text: str) -> str:
        """A file's content, by what its path says it is."""
        if path == "proc/cmdline":
            return _boot(text) + "\n"
        text = _SERIAL_LINE.sub("", text)
        if path.startswith(("sys/", "opt/")) or path in ("proc/cpuinfo", "proc/meminfo", "etc/os-release"):
            return text  # the kernel's and the vendor's own words
        if "modprobe.d" in path or path.startswith("etc/ld.so.conf.d"):
            text = re.sub(r"#.*", "", text)
        return self.text(text)

    def environ(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The variables that a check may ask for."""
        kept = {
            name: value
            for name, value in environ.items()
            if _VARIABLES.fullmatch(name) and not _SECRET.search(name)
        }
        return {name: "set" if name in _NAMING else self.text(value) for name, value in kept.items()}

    def packages(self, packages: Mapping[str, str]) -> dict[str, str]:
        """The packages that a check may ask for."""
        return {name: version for name, version in packages.items() if _PACKAGES.match(name)}


def _boot(text: str) -> str:
    return " ".join(word for word in text.split() if _BOOT.match(word))


def scrubber(machine: Machine) -> Scrubber:
    """For this machine with its names; a recorded one has none left to look for but those in its own files."""
    names = set()
    if machine.live:
        names |= {socket.gethostname(), socket.gethostname().partition(".")[0]}
        names |= {
            os.environ.get(name, "") for name in ("USER", "LOGNAME", "USERNAME", "SUDO_USER", "HOSTNAME")
        }
        names |= _logins()
        names.add(os.environ.get("HOME", ""))
    for path in ("/etc/hostname", "/proc/sys/kernel/hostname"):
        names.add(machine.read(path) or "")
    return Scrubber(frozenset(name for name in names if name.lower() not in _SHARED_NAMES))


def _logins() -> set[str]:
    """The names of people's accounts: from 1000 on. Source: login.defs(5), UID_MIN."""
    try:
        import pwd
    except ImportError:
        return set()
    return {entry.pw_name for entry in pwd.getpwall() if 1000 <= entry.pw_uid < 60000}
