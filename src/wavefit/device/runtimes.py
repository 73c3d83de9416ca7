"""What the installed runtimes say of the devices, merged with what sysfs says: one GPU is one Device.

Each runtime is asked in a child process with a deadline: loading a driver may hang or crash.
"""

from __future__ import annotations

import importlib.util
import re
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from wavefit import child
from wavefit.child import Say
from wavefit.device import files, torch_build
from wavefit.device.catalogue import fill
from wavefit.device.partitions import number_runtimes
from wavefit.device.probe import merge, probe
from wavefit.device.seen import Question, Seen
from wavefit.schema import Device, Failure, Runtime, Struct

_ADDRESS = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])")


class Asked(Struct, frozen=True, kw_only=True):
    """A runtime that may be asked: by which function, for how long, and which devices it could drive."""

    name: str
    function: str
    deadline_s: float
    vendors: tuple[str, ...]  # whose GPUs a silent runtime is listed at
    cpu: bool = False  # whether it drives CPUs as well


HIP = Asked(name="hip", function="wavefit.device.hip:ask", deadline_s=30, vendors=("amd",))
OPENCL = Asked(
    name="opencl",
    function="wavefit.device.opencl:ask",
    deadline_s=45,
    vendors=("amd", "nvidia", "intel"),
    cpu=True,
)
TORCH = Asked(
    name="torch",
    function="wavefit.device.torch_devices:ask",
    deadline_s=120,  # the import of a ROCm build from a slow disk
    vendors=("amd", "nvidia"),
)


def probe_all(say: Say) -> tuple[Device, ...]:
    """:func:`wavefit.device.probe.probe` of this machine, with what its runtimes add."""
    return with_runtimes(probe(), say)


def with_runtimes(devices: Sequence[Device], say: Say) -> tuple[Device, ...]:
    """The devices with the runtimes that see them; GPUs that only a runtime sees (WSL) are added at the end.

    The ids of known devices stay. A runtime that is missing is not listed; one that crashed, hung or sees nothing
    is, with a note, at every GPU that it should drive.
    """
    return merge_seen(devices, ask_all(say))


def ask_all(say: Say) -> tuple[Seen, ...]:
    """What each runtime here sees, asked one after another."""
    answers = []
    if not files.temporary():
        note = "not asked: no folder for temporary files can be written"
        return tuple(Seen(runtime=runtime.name, note=note) for runtime in installed())
    with tempfile.TemporaryDirectory(prefix="wavefit-") as folder:
        for runtime in installed():
            say(f"asking {runtime.name}")
            answers.append(ask(runtime, Path(folder) / runtime.name))
    return (*answers, *_torch_without_gpu())


def installed() -> list[Asked]:
    """The runtimes worth a child process. Whether HIP is there shows by loading it."""
    found = [HIP]
    if importlib.util.find_spec("pyopencl") is not None:
        found.append(OPENCL)
    build = torch_build.installed()
    if build is not None and (build.hip or build.cuda):
        found.append(TORCH)
    return found


def _torch_without_gpu() -> list[Seen]:
    """A CPU-only build needs no import to say what it sees."""
    build = torch_build.installed()
    if build is None or build.hip or build.cuda:
        return []
    cpu = Device(id="", kind="cpu", runtimes=(Runtime(name="torch", version=build.version),))
    return [Seen(runtime="torch", version=build.version, devices=(cpu,))]


def ask(runtime: Asked, workdir: Path, library: str | None = None) -> Seen:
    """What one runtime sees; why it did not answer is a note."""
    question = Question(library=library)
    answer = child.run(runtime.function, question, Seen, runtime.deadline_s, workdir, _silent)
    if not isinstance(answer, Failure):
        return answer
    return Seen(
        runtime=runtime.name, note=f"{answer.kind} at {answer.stage}: {' '.join(answer.reason.split())}"
    )


def _silent(text: str) -> None:
    pass


def merge_seen(devices: Sequence[Device], answers: Iterable[Seen]) -> tuple[Device, ...]:
    """The devices with what runtimes saw: the devices' own facts stand, the runtimes fill what is unknown."""
    merged = list(devices)
    for answer in answers:
        groups: dict[int, list[Device]] = {}
        for seen in answer.devices:
            index = find(merged, seen)
            if index is None and (twins := _twins(merged, seen)):
                merged = [_untold(each, seen) if at in twins else each for at, each in enumerate(merged)]
                continue
            if index is None:
                merged.append(_new(seen, merged))
                index = len(merged) - 1
            groups.setdefault(index, []).append(seen)
        for index, group in groups.items():
            merged[index] = _add(merged[index], group)
        merged = _note(merged, answer, set(groups))
    return tuple(merged)


def find(devices: Sequence[Device], seen: Device) -> int | None:
    """Which known device a runtime means: by PCI address, else the only one that it can be; None: a new one."""
    rules: tuple[Callable[[Device], bool], ...]
    if seen.kind == "cpu":
        rules = (lambda known: known.kind == "cpu",)
    elif seen.pci_address is not None:
        same = _parts(seen.pci_address)
        rules = (
            lambda known: _agree(_parts(known.pci_address), same, function=True),
            # A partition's number, or PyTorch's missing function, stands where the function should.
            lambda known: _agree(_parts(known.pci_address), same, function=False),
            lambda known: known.pci_address is None and _alike(known, seen) and _same_name(known, seen),
            lambda known: known.pci_address is None and _alike(known, seen),
        )
    else:
        rules = (
            lambda known: _alike(known, seen) and _same_name(known, seen),
            lambda known: _alike(known, seen),
        )
    for rule in rules:
        matching = [index for index, known in enumerate(devices) if rule(known)]
        if len(matching) == 1:
            return matching[0]
    return None


def _parts(address: str | None) -> tuple[int | None, int, int, int] | None:
    found = _ADDRESS.fullmatch((address or "").lower())
    if found is None:
        return None
    domain = None if found[1] is None else int(found[1], 16)
    return domain, int(found[2], 16), int(found[3], 16), int(found[4], 16)


def _agree(
    first: tuple[int | None, int, int, int] | None,
    second: tuple[int | None, int, int, int] | None,
    function: bool,
) -> bool:
    """Whether two addresses are of one card; an unknown domain agrees with any."""
    if first is None or second is None:
        return False
    domains = first[0] is None or second[0] is None or first[0] == second[0]
    return domains and first[1 : 4 if function else 3] == second[1 : 4 if function else 3]


def _alike(known: Device, seen: Device) -> bool:
    """Whether nothing tells two GPUs apart."""
    gfx = known.gfx is None or seen.gfx is None or known.gfx == seen.gfx
    vendor = seen.vendor is None or known.vendor == seen.vendor
    return known.kind == "gpu" and gfx and vendor


def _same_name(known: Device, seen: Device) -> bool:
    return known.name is not None and known.name == seen.name


def _twins(devices: Sequence[Device], seen: Device) -> set[int]:
    """The known devices that a runtime may mean, where it does not tell which of them."""
    return {
        index
        for index, known in enumerate(devices)
        if _alike(known, seen) and (known.pci_address is None or seen.pci_address is None)
    }


def _untold(device: Device, seen: Device) -> Device:
    """Lists a runtime without its index: by a guessed one, another GPU would be used."""
    note = "it does not tell which of its indices is this GPU"
    unnumbered = [msgspec.structs.replace(runtime, index=None, note=note) for runtime in seen.runtimes]
    return msgspec.structs.replace(device, runtimes=_joined(device.runtimes, unnumbered))


def _new(seen: Device, devices: Sequence[Device]) -> Device:
    """A GPU that only a runtime sees, with an id of its own and an address in full."""
    number = sum(device.kind == "gpu" for device in devices)
    address = seen.pci_address
    return msgspec.structs.replace(
        seen,
        id=f"gpu{number}",
        pci_address=f"0000:{address}" if address and address.count(":") == 1 else address,
        machine=devices[0].machine if devices else None,
        runtimes=(),
    )


def _add(known: Device, group: Sequence[Device]) -> Device:
    """A device with one runtime's word on it; several words are the card's partitions."""
    runtimes = [
        (runtime, (_parts(seen.pci_address) or (0, 0, 0, 0))[3])
        for seen in group
        for runtime in seen.runtimes
    ]
    numbered = number_runtimes(known, runtimes)
    facts = msgspec.structs.replace(group[0], runtimes=())
    if known.kind == "cpu":
        facts = msgspec.structs.replace(known, runtimes=())  # a runtime's idea of a CPU adds nothing
    elif len(group) > 1 or known.partitions:
        facts = msgspec.structs.replace(facts, compute_units=None, memory=())  # those of a part
    if facts.pci_address is not None and facts.pci_address.count(":") == 1:
        facts = msgspec.structs.replace(facts, pci_address=f"0000:{facts.pci_address}")
    both = merge(known, facts)
    link = None if both.integrated else both.link
    both = msgspec.structs.replace(both, id=known.id, link=link, runtimes=_joined(known.runtimes, numbered))
    return fill(both)  # a runtime may have told the target or the name that the catalogue goes by


def _joined(first: Sequence[Runtime], second: Sequence[Runtime]) -> tuple[Runtime, ...]:
    keys = {(runtime.name, runtime.platform, runtime.index) for runtime in first}
    return (*first, *(new for new in second if (new.name, new.platform, new.index) not in keys))


def _note(devices: Sequence[Device], answer: Seen, seen: set[int]) -> list[Device]:
    """Lists a runtime that failed at the devices that it should drive and does not see."""
    asked = next((runtime for runtime in (HIP, OPENCL, TORCH) if runtime.name == answer.runtime), None)
    if answer.note is None or asked is None:
        return list(devices)
    silent = Runtime(name=answer.runtime, version=answer.version, note=answer.note)
    return [
        msgspec.structs.replace(device, runtimes=(*device.runtimes, silent))
        if index not in seen and _drives(asked, device)
        else device
        for index, device in enumerate(devices)
    ]


def _drives(runtime: Asked, device: Device) -> bool:
    return runtime.cpu if device.kind == "cpu" else device.vendor in runtime.vendors
