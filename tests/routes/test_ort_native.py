"""What native libraries print is read at the level of file descriptors, and named causes are found in it."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

from wavefit.routes._native import NativeOutput, explain, first_line

posix = pytest.mark.skipif(sys.platform == "win32", reason="uses the C library of POSIX")


def _native_print(text: str, descriptor: int = 2) -> None:
    ctypes.CDLL(None).write(descriptor, text.encode(), len(text.encode()))


@posix
@pytest.mark.parametrize("descriptor", [1, 2])
def test_native_writing_is_kept(descriptor: int, capfd: pytest.CaptureFixture[str]) -> None:
    with NativeOutput() as native:
        _native_print("before the end\n", descriptor)
    _native_print("after\n", descriptor)
    assert native.text.strip() == "before the end"
    out, err = capfd.readouterr()
    assert "before the end\nafter" in (out if descriptor == 1 else err), (
        "and still reaches where it was meant for"
    )


PROGRAM = """
import ctypes, os, sys
from wavefit.routes._native import NativeOutput
with NativeOutput() as native:
    print("from Python", flush=True)
    ctypes.CDLL(None).write(2, b"from C\\n", 7)
    {then}
sys.stdout.write(repr(sorted(native.text.split("\\n"))))
"""


@posix
def test_pipes_are_read_and_passed_on() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(then="pass")], capture_output=True, text=True, check=True
    )
    assert done.stderr == "from C\n"
    assert done.stdout.startswith("from Python\n")
    assert "'from C'" in done.stdout
    assert "'from Python'" in done.stdout


@posix
def test_a_closed_descriptor_is_left_alone() -> None:
    code = "import os\nos.close(1)\n" + PROGRAM.format(then="pass").replace(
        'print("from Python", flush=True)', "pass"
    )
    code = code.replace("sys.stdout.write", "sys.stderr.write")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "'from C'" in done.stderr


@posix
def test_a_crash_leaves_its_reason_in_the_log(tmp_path: Path) -> None:
    """A child process writes to a log file: what a library says before it aborts must stay readable there."""
    log = tmp_path / "log.txt"
    with log.open("wb") as sink:
        code = PROGRAM.format(then="os.abort()")
        done = subprocess.run([sys.executable, "-c", code], stdout=sink, stderr=sink, check=False)
    assert done.returncode != 0
    assert "from C" in log.read_text()


# Words of real packages, as they wrote them on a machine without a GPU (November 2026).
MIGRAPHX = (
    "/root/Codes/onnx_runtime/onnxruntime/onnxruntime-1.27.1/onnxruntime/core/session/provider_bridge_ort.cc:1988 "
    "onnxruntime::Provider& onnxruntime::ProviderLibrary::Get() [ONNXRuntimeError] : 1 : FAIL : Failed to load library "
    "/site-packages/onnxruntime/capi/libonnxruntime_providers_migraphx.so with error: libmigraphx_c.so.3: "
    "cannot open shared object file: No such file or directory\n"
)
ROCM = (
    "[E:onnxruntime:Default, provider_bridge_ort.cc:2251 TryGetProviderInfo_ROCM] [ONNXRuntimeError] : 1 : FAIL : "
    "Failed to load library libonnxruntime_providers_rocm.so with error: libhipblas.so.3: cannot open shared object "
    "file: No such file or directory"
)
WEBGPU = (
    "/onnxruntime_src/onnxruntime/core/providers/webgpu/webgpu_context.cc:65 status == "
    "wgpu::RequestAdapterStatus::Success was false. Failed to get a WebGPU adapter: No supported adapters\n"
)


@pytest.mark.parametrize(
    ("text", "reason", "fix"),
    [
        (MIGRAPHX, "the library libmigraphx_c.so.3 is missing", "sudo apt install amdrocm10-migraphx"),
        (ROCM, "the library libhipblas.so.3 is missing", "install ROCm"),
        (WEBGPU, "WebGPU found no GPU", "vulkaninfo"),
        ("x: libamdhip64.so.7: cannot open shared object file", "libamdhip64.so.7", "ROCm 7 or newer"),
        ("libvulkan.so.1: cannot open shared object file", "libvulkan.so.1", "sudo apt install libvulkan1"),
        ("HIP failure 100: no ROCm-capable device is detected ; GPU=-1", "sees no GPU", "usermod -aG render"),
        ("HIP failure 209: hipErrorNoBinaryForGpu", "no kernels for this GPU", "ort_webgpu"),
        ("/lib/libm.so.6: version `GLIBC_2.38' not found (required by x)", "older", "newer"),
        ('Error loading "x.dll" which is missing. (Error 126: The module was not found.)', "DLL", "driver"),
    ],
)
def test_causes_are_named_with_a_fix(text: str, reason: str, fix: str) -> None:
    said = explain(text)
    assert said is not None
    assert reason in said[0]
    assert fix in said[1]


def test_words_that_name_no_known_cause_explain_nothing() -> None:
    assert explain("Load model failed: Protobuf parsing failed.") is None
    assert explain("") is None


def test_the_first_line_leaves_out_status_and_source_position() -> None:
    assert first_line(RuntimeError(MIGRAPHX)).startswith("Failed to load library /site-packages")
    assert (
        first_line(RuntimeError("[ONNXRuntimeError] : 7 : INVALID_PROTOBUF : Bad file.\nmore")) == "Bad file"
    )
    assert first_line(RuntimeError("plain")) == "plain"
    assert first_line(RuntimeError()) == "RuntimeError"


def test_many_captures_leak_no_descriptor() -> None:
    if not Path("/proc/self/fd").exists():
        pytest.skip("needs /proc")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(50):
        with NativeOutput():
            pass
    assert len(list(Path("/proc/self/fd").iterdir())) == before
