"""Known error messages: what each entry says, found under noise, and told apart."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from wavefit.doctor import explain as explain_module
from wavefit.doctor import explain_text
from wavefit.doctor.explain import Explanation, explain
from wavefit.doctor.known_errors import SHORTEST_ANCHOR, KnownError, Pattern, load
from wavefit.doctor.machine import Machine
from wavefit.errors import InputError

ERRORS = load()
PATTERNS = [(error.id, pattern) for error in ERRORS for pattern in error.compiled()]


@pytest.fixture
def nowhere(tmp_path: Path) -> Machine:
    """A machine of which nothing is known."""
    return Machine(tmp_path)


def first(text: str, on: Machine) -> Explanation:
    return explain(text, on, ERRORS).known[0]


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


# Other wordings than the samples, as they stand in issue threads.
_MET = {
    'hip_code_object.cpp:92: guarantee(false && "hipErrorNoBinaryForGpu: Coudn\'t find binary for current devices!")': (
        "no-binary-for-gpu"
    ),
    "on address 0x7fe55fb03000. Memory access fault by GPU node-2 Reason: Page not present or supervisor p rivilege.": (
        "memory-access-fault"
    ),
    'openat(AT_FDCWD, "/dev/kfd", O_RDWR|O_CLOEXEC) = -1 ENOMEM (Cannot allocate memory)': "kfd-no-memory",
    "### HCC STATUS_CHECK Error: HSA_STATUS_ERROR_OUT_OF_RESOURCES (0x1008) at file:mcwamp_hsa.cpp": (
        "hsa-out-of-resources"
    ),
    "rocBLAS error: Could not initialize Tensile host: No devices found": "hip-no-device",
    "rocBLAS error: Could not initialize Tensile host:\nregex_error(error_backref)": "rocblas-tensile",
    "ERROR: clGetPlatformIDs(-1001)": "opencl-no-platform",
    "ERROR: CLError(code=-1001, CL_PLATFORM_NOT_FOUND_KHR)": "opencl-no-platform",
    "Failed to enqueue OpenCL command (clEnqueueNDRangeKernel) CL_OUT_OF_RESOURCES": "opencl-out-of-resources",
    "docker: Error response from daemon: AMD CDI spec not found": "cdi-unresolvable",
    "ring sdma0 timeout, signaled seq=121570, emitted seq=121572": "sdma-hang",
    "amdgpu 0000:28:00.0: ring gfx_0.0.0 timeout, signaled seq=57638, emitted seq=57641": "ring-timeout",
    "(RayWorker pid=63079) HW Exception by GPU node-1 (Agent handle: 0x3508fba0) reason :GPU Hang": "gpu-hang",
    "  what():  Error 303(hipErrorSharedObjectInitFailed) main.cpp:323:": "shared-object-init",
    "Check failed: (((HRESULT)((dml_device_->GetDeviceRemovedReason()))) >= 0) == true": "directml-device-removed",
    "terminate called after throwing an instance of 'vk::DeviceLostError'": "vulkan-device-lost",
    "Pod Allocate failed due to device plugin GetPreferredAllocation rpc failed with err": "k8s-admission",
    "insmod: ERROR: could not insert module amdgpu.ko: Key was rejected by service": "secure-boot",
    "MIOpen(HIP): Error [BuildOcl] comgr status = INVALID_ARGUMENT (2)": "miopen-hiprtc",
    "ImportError: /opt/rocm-7.2.0/lib/libMIOpen.so.1: undefined symbol: _ZN2ck16": "torch-undefined-symbol",
    "amdgpu 0000:04:00.0: amdgpu: fail to request/validate toc microcode": "firmware-missing",
    "clang: error: cannot find HIP runtime; provide its path via '--rocm-path'": "device-library-missing",
    "flang2: libstdc++.so.6: version `GLIBCXX_3.4.30' not found (required by /opt/rocm/bin/flang2)": "glibcxx-too-old",
    "kfd kfd: skipped device 1002:67ef, PCI rejects atomics": "pcie-atomics",
    "RuntimeError: Triton Error [HIP]:  Code: 719, Messsage: unspecified launch failure": "hip-launch-failure",
    "FAIL : Failed to load library libonnxruntime_providers_rocm.so with error: librocm_smi64.so.7: cannot open shared "
    "object file: No such file or directory": "hip-library-missing",
    'amdgpu 0000:19:00.0: psp v11.0: Failed to load firmware "amdgpu/vega20_ta.bin"': "firmware-missing",
    "[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Failed to find kernel for Split(18) (node Split)": "ort-no-kernel",
    "MIGraphX Error: onnx_parser.cpp:281: parse_graph: Unknown operator: LessOrEqual": "migraphx-unknown-operator",
    "Fail to glob topology properties": "k8s-plugin-no-kfd",
    "ERROR: clEnqueueNDRangeKernel() : -54 : CL_INVALID_WORK_GROUP_SIZE": "opencl-work-group-size",
    "clEnqueueNDRangeKernel(supernode,1,*,{1167360,0,0},...) failed(-54) for half_scale": "opencl-work-group-size",
    "[23.02.13 2:51:49] ERROR: Failed to queue kernel, error -54": "opencl-work-group-size",
    "Error CL_INVALID_WORK_GROUP_SIZE when calling clEnqueueNDRangeKernel for 0": "opencl-work-group-size",
    "ERROR:libhipfile.so.0: cannot open shared object file: No such file or directory": "hip-math-library-missing",
    "OSError: librccl.so.1: cannot open shared object file: No such file or directory": "hip-math-library-missing",
}


@pytest.mark.parametrize(("text", "name"), _MET.items(), ids=list(_MET.values()))
def test_what_users_met_is_known(text: str, name: str, nowhere: Machine) -> None:
    assert first(text, nowhere).id == name


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
