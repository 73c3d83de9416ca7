"""Known error messages: found under noise, told apart, and explained by the machine's facts."""

from __future__ import annotations

import io
import random
import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from fakes import sysfs

from wavefit.doctor import explain as explain_module
from wavefit.doctor import explain_text
from wavefit.doctor.explain import Answer, Explanation, explain
from wavefit.doctor.known_errors import SHORTEST_ANCHOR, KnownError, Pattern, load
from wavefit.doctor.machine import Machine, Process
from wavefit.errors import InputError

ERRORS = load()
PATTERNS = [(error.id, pattern) for error in ERRORS for pattern in error.compiled()]
GROUP = 993


@pytest.fixture
def nowhere(tmp_path: Path) -> Machine:
    """A machine of which nothing is known."""
    return Machine(tmp_path)


def machine(
    root: Path, *gpus: Callable[[Path], Path], groups: tuple[int, ...] = (), **environ: str
) -> Machine:
    sysfs.linux(root)
    sysfs.cpu_node(root)
    for gpu in gpus:
        gpu(root)
    node = {
        "path": "/dev/kfd",
        "errno": 0 if GROUP in groups else 13,
        "gid": GROUP,
        "uid": 0,
        "mode": "crw-rw----",
    }
    sysfs.write(root, {"wavefit/nodes.json": msgspec.json.encode({"nodes": [node]}).decode()})
    return Machine(root, Process(1000, (1000, *groups), environ, {}, "3.12.3"))


def kernels(root: Path, *targets: str) -> None:
    folder = "opt/rocm/lib/rocblas/library"
    sysfs.write(root, {f"{folder}/TensileLibrary_lazy_{target}.dat": "" for target in targets})


def first(text: str, on: Machine) -> Explanation:
    return explain(text, on, ERRORS).known[0]


def commands(found: Explanation) -> str:
    return "\n".join(fix.command for fix in found.fixes)


# ---- the data -------------------------------------------------------------------------------------------------------


def test_every_area_is_there() -> None:
    areas = "HSA HIP rocBLAS MIOpen MIGraphX PyTorch OpenCL DirectML WebGPU Vulkan Docker Podman Kubernetes amdgpu"
    assert len(ERRORS) >= 60
    assert {error.area for error in ERRORS} == {*areas.split(), "ONNX Runtime"}


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.id)
def test_an_entry_says_everything(error: KnownError) -> None:
    assert [other.id for other in ERRORS].count(error.id) == 1
    assert re.fullmatch(r"https://\S+/\S+", error.source)
    assert 10 <= error.stage <= 90
    assert error.patterns
    assert error.fix
    assert error.title
    assert error.verify
    assert error.cause.endswith((".", ".)"))
    for variant in error.variants:
        assert variant.cause or variant.fix
        assert msgspec.to_builtins(variant.when) != msgspec.to_builtins(type(variant.when)())


@pytest.mark.parametrize(("name", "pattern"), PATTERNS, ids=[f"{name}-{p.text[:30]}" for name, p in PATTERNS])
def test_a_pattern_takes_linear_time(name: str, pattern: Pattern) -> None:
    """A literal beginning, bounded repetitions, two gaps at most, no alternative at the top."""
    bare = re.sub(r"\\.|\[[^\]]*\]", "x", pattern.text)  # escapes and classes hold no repetition
    assert len(pattern.anchor) >= SHORTEST_ANCHOR
    assert not re.search(r"[*+]|\{\d*,\}", bare)
    assert all(int(most) <= 160 for most in re.findall(r"\{\d+,(\d+)\}", bare))
    assert len(re.findall(r"\.\{", bare)) <= 2
    assert "|" not in re.sub(r"\([^()]*\)", "", bare)
    assert not re.search(r"\\[dswb]", pattern.text[: len(pattern.anchor)])
    assert pattern.regex


def test_what_is_safe_can_be_run_as_it_stands() -> None:
    """No word to fill in, nothing that deletes, takes out a package, edits the boot or ends the session."""
    fixes = [fix for error in ERRORS for part in (error, *error.variants) for fix in part.fix]
    blank = r"\b(COMMAND|IMAGE|MODEL|NODE|CONTAINER|EXTENSION|NAME)\b"
    unsafe = blank + "|rm -|remove|uninstall|reboot|shutdown|grub|modprobe -r"
    assert len([fix for fix in fixes if fix.safe]) > 50
    assert [fix.command for fix in fixes if fix.safe and re.search(unsafe, fix.command)] == []


def test_wavefit_commands_are_commands() -> None:
    """Each verb and option that an answer names is one that is there."""
    from typer.main import get_command

    from wavefit.cli import app

    verbs = getattr(get_command(app), "commands")  # noqa: B009 - the stubs of click's groups are not seen
    texts = {
        text
        for error in ERRORS
        for part in (error, *error.variants)
        for text in (*(fix.command for fix in part.fix), getattr(part, "verify", ""))
        if text.startswith("wavefit ")
    }
    assert len(texts) > 10
    for text in sorted({*texts, explain_module.COLLECT}):
        verb, *words = text.split()[1:]
        known = {option for parameter in verbs[verb].params for option in parameter.opts}
        assert {word for word in words if word.startswith("-")} <= known, text


# ---- told apart, under noise ----------------------------------------------------------------------------------------

_CHATTER = """Traceback (most recent call last):
  File "/home/me/run.py", line 12, in <module>
    main()
[INFO] loading weights from /home/me/model.safetensors
 33%|███▎      | 1/3 [00:12<00:24, 12.1s/it]
ROCk module is loaded
"""


def dmesg(text: str) -> str:
    return "\n".join(
        f"\x1b[32m[  {12 + n}.3553884] \x1b[0m\x1b[31m{line}\x1b[0m"
        for n, line in enumerate(text.split("\n"))
    )


def journal(text: str) -> str:
    return "\r\n".join(
        f"Nov 14 10:46:5{n % 10} leviathan kernel: {line}" for n, line in enumerate(text.split("\n"))
    )


def compose(text: str) -> str:
    return "\n".join(f"worker-1  | 2026-03-01T12:34:56.789Z ERROR {line}" for line in text.split("\n"))


def wrapped(text: str) -> str:
    """As a narrow terminal breaks it: in the middle of words."""
    return "\n".join(re.sub(r"(.{37})", r"\1\n    ", line) for line in text.split("\n"))


def quoted(text: str) -> str:
    return "\n".join(f"> │ {line}" for line in text.split("\n"))


def surrounded(text: str) -> str:
    return _CHATTER * 20 + text + "\n" + _CHATTER * 20


def shouted(text: str) -> str:
    return text.upper().replace(" ", "  ")


@pytest.mark.parametrize("noise", [str, dmesg, journal, compose, wrapped, quoted, surrounded, shouted])
def test_every_sample_is_its_own_entry_first(noise: Callable[[str], str], nowhere: Machine) -> None:
    found = {error.id: first(noise(error.sample), nowhere).id for error in ERRORS}
    assert {name: other for name, other in found.items() if name != other} == {}


def test_a_sample_names_few_others(nowhere: Machine) -> None:
    """The whole confusion matrix: off the diagonal stands only what a sample really says as well."""
    others = {
        (error.id, found.id)
        for error in ERRORS
        for found in explain(error.sample, nowhere, ERRORS).known
        if found.id != error.id
    }
    assert others == {
        ("wsl-unsupported-gpu", "hsa-out-of-resources"),
        ("migraphx-wheel-libraries", "ort-provider-library"),
    }


@pytest.mark.parametrize(
    "text",
    [
        _CHATTER,
        "amdgpu 0000:c3:00.0: amdgpu: no uncorrectable hardware errors detected in umc block",
        "amdgpu 0000:03:00.0: amdgpu: ring gfx_0.0.0 uses VM inv eng 0 on hub 0",
        "[drm] Initialized amdgpu 3.57.0 20150101 for 0000:03:00.0 on minor 1",
        "  Name:                    gfx1103\n  Marketing Name:          AMD Radeon Graphics",
        "Segmentation fault (core dumped)",
        "pci 0000:25:00.0: BAR 7: no space for [mem size 0x00100000 64bit]",
        "vboxdrv: module verification failed: signature and/or required key missing - tainting kernel",
        "sha256 80070057887a0005887a00068007000e",
        "\x00\xff\x1b[31m",
        "\N{GRINNING FACE}" * 1000,
    ],
)
def test_what_is_not_known_is_said_to_be_unknown(text: str, nowhere: Machine) -> None:
    if not explain_text.Log(text):
        text += "x"
    answer = explain(text, nowhere)
    assert answer.known == ()
    assert answer.collect.startswith("wavefit doctor --collect ")


@pytest.mark.parametrize("text", ["", " \n\t", "\x1b[31m\x1b[0m", "\x00\x00"])
def test_nothing_is_refused(text: str, nowhere: Machine) -> None:
    with pytest.raises(InputError, match="there is no error text"):
        explain(text, nowhere)


def test_causes_come_before_what_follows_from_them(nowhere: Machine) -> None:
    log = """RuntimeError: No HIP GPUs are available
Call returned HSA_STATUS_ERROR_OUT_OF_RESOURCES: The runtime failed to allocate the necessary resources.
Unable to open /dev/kfd read-write: No such file or directory
ROCk module is NOT loaded, possibly no GPU devices
amdgpu 0000:01:00.0: amdgpu: Fatal error during GPU init
amdgpu 0000:01:00.0: Direct firmware load for amdgpu/psp_13_0_8_toc.bin failed with error -2
"""
    found = [known.id for known in explain(log * 50, nowhere).known]
    assert found == [
        "firmware-missing",
        "gpu-init-failed",
        "rock-not-loaded",
        "kfd-missing",
        "hsa-out-of-resources",
        "torch-no-hip-gpus",
    ]


def test_a_hang_is_told_from_its_cause_to_its_end(nowhere: Machine) -> None:
    log = """[  950.8] amdgpu 0000:c5:00.0: amdgpu: GPU reset begin!. Source:  3
[  950.7] amdgpu 0000:c5:00.0: amdgpu: ring comp_1.1.0 timeout, signaled seq=7, emitted seq=9
[  949.1] amdgpu 0000:c5:00.0: amdgpu: MES failed to respond to msg=REMOVE_QUEUE
[  948.0] amdgpu 0000:c5:00.0: amdgpu: [gfxhub] page fault (src_id:0 ring:24 vmid:8 pasid:32772)
vk::Queue::submit: ErrorDeviceLost"""
    found = [known.id for known in explain(log, nowhere).known]
    assert found == ["vm-fault", "mes-failed", "ring-timeout", "gpu-reset", "vulkan-device-lost"]


def test_the_line_is_shown_without_what_steers_a_terminal(nowhere: Machine) -> None:
    text = "ok\n\x1b]0;title\x07\x1b[2JHW Exception by GPU node-1\x08\x9b31m reason :GPU Hang" + "!" * 900
    line = first(text, nowhere).line
    assert line.startswith("HW Exception by GPU node-1")
    assert len(line) == 200
    assert line.isprintable()


# ---- the machine's facts --------------------------------------------------------------------------------------------


def test_an_override_is_for_the_gpu_that_is_here(tmp_path: Path) -> None:
    said = first("rocBLAS error: Cannot read TensileLibrary.dat", machine(tmp_path, sysfs.apu))
    assert commands(said) == "export HSA_OVERRIDE_GFX_VERSION=11.0.0"
    assert "gfx1103" in said.cause
    assert said.machine


def test_a_card_with_kernels_gets_no_override(tmp_path: Path) -> None:
    here = machine(tmp_path, sysfs.card)
    kernels(tmp_path, "gfx1100")
    said = first("HIP error: invalid device function", here)
    assert "HSA_OVERRIDE" not in commands(said)
    assert "gfx1100" in said.cause
    assert "extension" in said.cause


def test_the_build_is_compared_with_the_gpu(tmp_path: Path) -> None:
    here = machine(tmp_path, sysfs.apu)
    kernels(tmp_path, "gfx1030", "gfx1100")
    said = first("HIP error: invalid device function", here)
    assert "kernels for gfx1030, gfx1100, and none for this GPU's gfx1103" in said.cause
    assert commands(said) == "export HSA_OVERRIDE_GFX_VERSION=11.0.0"


def test_no_override_fits_where_no_relative_has_kernels(tmp_path: Path) -> None:
    here = machine(tmp_path, sysfs.apu)
    kernels(tmp_path, "gfx90a", "gfx1030")
    said = first("HIP error: invalid device function", here)
    assert "no override fits" in said.cause
    assert "ort_webgpu" in commands(said)


def test_an_override_that_is_set_is_suspected(tmp_path: Path) -> None:
    here = machine(tmp_path, sysfs.apu, HSA_OVERRIDE_GFX_VERSION="10.3.0")
    for text in (
        "HIP error: invalid device function",
        "Memory access fault by GPU node-1",
        "HSA_STATUS_ERROR_INVALID_ISA",
        "HSA_STATUS_ERROR_ILLEGAL_INSTRUCTION",
        "HW Exception by GPU node-1 reason :GPU Hang",
        "rocBLAS error: Cannot read TensileLibrary.dat",
    ):
        said = first(text, here)
        assert commands(said) == "unset HSA_OVERRIDE_GFX_VERSION"
        assert "10.3.0" in said.cause


DENIED = "Unable to open /dev/kfd read-write: Permission denied"


def test_permission_outside_a_container(tmp_path: Path) -> None:
    said = first(DENIED, machine(tmp_path, sysfs.card))
    assert commands(said) == "sudo usermod -a -G render,video $LOGNAME"
    assert not said.machine


def test_permission_of_a_member_is_something_else(tmp_path: Path) -> None:
    said = first(DENIED, machine(tmp_path, sysfs.card, groups=(GROUP,)))
    assert "usermod" not in commands(said)
    assert "SELinux" in said.cause


def test_permission_inside_a_container_is_given_by_number(tmp_path: Path) -> None:
    sysfs.write(tmp_path, {".dockerenv": ""})
    said = first(DENIED, machine(tmp_path, sysfs.card))
    assert f"--group-add {GROUP} " in commands(said)
    assert "--group-add keep-groups" in commands(said)
    assert "usermod" not in commands(said)


def test_wsl_has_no_kfd(tmp_path: Path) -> None:
    here = machine(tmp_path)
    sysfs.write(tmp_path, {"proc/sys/kernel/osrelease": "6.6.87.2-microsoft-standard-WSL2"})
    said = first("Unable to open /dev/kfd read-write: No such file or directory", here)
    assert "--usecase=wsl" in commands(said)


def test_no_gpu_is_said(tmp_path: Path) -> None:
    said = first("RuntimeError: No HIP GPUs are available", machine(tmp_path))
    assert "shows no AMD GPU" in said.cause


def test_an_integrated_gpu_beside_a_card(tmp_path: Path) -> None:
    here = machine(tmp_path, sysfs.apu, sysfs.card)
    for text in (
        "Memory access fault by GPU node-2",
        "HIP out of memory. Tried to allocate",
        "hipErrorNoBinaryForGpu",
    ):
        said = first(text, here)
        assert "HIP_VISIBLE_DEVICES" in commands(said)
        assert "integrated" in said.cause


def test_memory_of_an_integrated_gpu_and_of_a_card(tmp_path: Path) -> None:
    text = "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 432.00 MiB."
    assert "pages_limit" in commands(first(text, machine(tmp_path / "apu", sysfs.apu)))
    assert "pages_limit" not in commands(first(text, machine(tmp_path / "card", sysfs.card)))


@pytest.mark.parametrize(
    ("version", "machine_says"), [("6.0.2-115", True), ("6.1.0-82", False), ("7.2.0-43", False)]
)
def test_the_second_copy_hangs_before_rocm_6_1(tmp_path: Path, version: str, machine_says: bool) -> None:
    here = machine(tmp_path, sysfs.apu)
    sysfs.write(tmp_path, {"opt/rocm/.info/version": version})
    said = first("#3 in rocr::core::BusyWaitSignal::WaitRelaxed(", here)
    assert said.machine is machine_says
    assert ("ROCm 6.0.2 on an integrated GPU" in said.cause) is machine_says


def test_a_rocm_build_is_not_blamed_for_cuda(tmp_path: Path) -> None:
    here = machine(tmp_path, sysfs.card)
    assert "whl/rocm" in commands(first("Found no NVIDIA driver on your system", here))
    text = "__version__ = '2.9.1+rocm6.4'\nhip = '6.4.43482'\ncuda = None\n"
    sysfs.write(tmp_path, {"wavefit/installed.json": msgspec.json.encode({"torch": text}).decode()})
    assert "whl/rocm" not in commands(first("Found no NVIDIA driver on your system", here))


def test_every_blank_in_a_text_is_filled(tmp_path: Path) -> None:
    """On machines of every kind: no "<gfx>" is left where the machine's facts are used."""
    kinds = [
        machine(tmp_path / "none"),
        machine(tmp_path / "apu", sysfs.apu),
        machine(tmp_path / "card", sysfs.card, groups=(GROUP,)),
        machine(tmp_path / "both", sysfs.apu, sysfs.card, HSA_OVERRIDE_GFX_VERSION="11.0.0"),
        machine(tmp_path / "box", sysfs.apu, container="lxc"),
        Machine(tmp_path / "nowhere"),
    ]
    kernels(tmp_path / "apu", "gfx1100")
    sysfs.write(tmp_path / "apu", {"opt/rocm/.info/version": "6.0.0-91"})
    for here in kinds:
        for error in ERRORS:
            said = first(error.sample, here)
            text = " ".join((said.cause, said.verify, commands(said)))
            assert not re.search(r"<(gfx|override|set|compiled|group|rocm)>", text), (
                here.root,
                error.id,
                text,
            )


# ---- what is given to it --------------------------------------------------------------------------------------------


class Endless(io.RawIOBase):
    """A stream of so many bytes of a log that says nothing, and then a last line."""

    def __init__(self, size: int, last: bytes) -> None:
        self._left, self._last = size, last

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        if self._left <= 0:
            part, self._last = self._last[: len(buffer)], self._last[len(buffer) :]
        else:
            part = (b"[ 12.345] all is well with GPU node and memory access\n" * 1300)[
                : min(len(buffer), self._left)
            ]
            self._left -= len(part)
        buffer[: len(part)] = part
        return len(part)


def test_a_log_of_100_megabytes_is_read_at_both_ends(nowhere: Machine) -> None:
    data, cut = explain_text.read(io.BufferedReader(Endless(100 << 20, b"\nHW Exception by GPU node-1\n")))
    assert cut
    assert len(data) <= 2 * explain_text.MOST_BYTES + 1
    assert first(explain_text.decode(data), nowhere).id == "gpu-hang"


@pytest.mark.parametrize("size", [0, 1, explain_text.MOST_BYTES, 2 * explain_text.MOST_BYTES])
def test_a_log_that_fits_is_read_whole(size: int) -> None:
    given = random.Random(1).randbytes(size)
    assert explain_text.read(io.BytesIO(given)) == (given, False)


def test_binary_is_searched_like_text(nowhere: Machine) -> None:
    noise = random.Random(7).randbytes(1 << 20)
    assert explain(explain_text.decode(noise), nowhere).known == ()
    text = explain_text.decode(noise + b"\nHW Exception by GPU node-1\n" + noise)
    assert first(text, nowhere).id == "gpu-hang"


def test_powershell_writes_utf_16(nowhere: Machine) -> None:
    data = "RuntimeError: No HIP GPUs are available\r\n".encode("utf-16")
    assert first(explain_text.decode(data), nowhere).id == "torch-no-hip-gpus"


def test_a_text_that_almost_matches_everywhere_ends() -> None:
    """The beginning of each message, thousands of times, never its end: every try is bounded, and so are they."""
    for name, pattern in PATTERNS:
        if pattern.regex.match(f"{pattern.anchor}~"):
            continue  # its beginning is all there is to it
        text = f"{pattern.anchor}~" * (200_000 // len(pattern.anchor))
        assert explain_text.Log(text).first([pattern]) is None, name


def test_an_answer_is_read_back(nowhere: Machine) -> None:
    answer = explain("HW Exception by GPU node-1", nowhere)
    assert msgspec.json.decode(msgspec.json.encode(answer), type=Answer) == answer
