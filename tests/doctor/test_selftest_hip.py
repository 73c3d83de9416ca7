"""HIP's self-test. No AMD GPU is here, so a small library built from C stands for libamdhip64 on its way to a right
product: it keeps "device" memory in the host's and multiplies itself. It shows that the calls are made in the right
order and judged rightly, not that HIP works. HIP's real error paths are tried on Debian's library, where it is there.
"""

from __future__ import annotations

import ctypes.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from wavefit.doctor import selftest
from wavefit.doctor.checks import selftests
from wavefit.doctor.selftest import LARGEST_ERROR, Order, Tested
from wavefit.schema import Failure

HIP = r"""
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static int copies_back;
const char *hipGetErrorString(int code) { return "out of memory"; }
int hipGetDeviceCount(int *count) { *count = 2; return 0; }
int hipSetDevice(int i) { return i > 1; }
int hipGetDeviceProperties(char *p, int i) { memset(p, 0, 1472); strcpy(p + 396, "gfx1100"); return 0; }
int hipMalloc(void **p, size_t n) { if (MALLOC) return 2; *p = malloc(n); return 0; }
int hipFree(void *p) { free(p); return 0; }
int hipMemcpy(void *to, void *from, size_t n, int kind) {
    memcpy(to, from, n);
    if (kind == 2 && ++copies_back == 2) { SECOND_COPY }
    return 0;
}
int hipModuleLoadData(void **module, const char *code) {
    *module = (void *)code;
    return strcmp(code, "code of gfx1100") ? 98 : 0;
}
int hipModuleGetFunction(void **function, void *module, const char *name) {
    *function = (void *)7;
    return strcmp(name, "multiply") ? 500 : 0;
}
int hipModuleLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                          unsigned shared, void *stream, void **given, void **extra) {
    if (f != (void *)7 || gz * bz != 1 || shared || stream || extra) return 1;
    const float *a = *(float **)given[0], *b = *(float **)given[1];
    float *c = *(float **)given[2];
    int n = *(int *)given[3];
    for (unsigned row = 0; row < gy * by; row++)
        for (unsigned column = 0; column < gx * bx; column++) {
            float sum = 0;
            for (int k = 0; k < n; k++) sum += a[row * n + k] * b[k * n + column];
            c[row * n + column] = sum;
        }
    return 0;
}
int hipDeviceSynchronize(void) { return 0; }
"""

HIPRTC = r"""
static const char code[] = "code of gfx1100", message[] = "error: unknown target";
const char *hiprtcGetErrorString(int code) { return "HIPRTC_ERROR"; }
int hiprtcCreateProgram(void **p, const char *source, const char *name, int n, const char **h, const char **i) {
    *p = (void *)5; return !strstr(source, "multiply") || n;
}
int hiprtcCompileProgram(void *p, int n, const char **options) {
    COMPILE
    return n != 1 || strcmp(options[0], "--offload-arch=gfx1100");
}
int hiprtcGetProgramLogSize(void *p, size_t *size) { *size = sizeof message; return 0; }
int hiprtcGetProgramLog(void *p, char *text) { memcpy(text, message, sizeof message); return 0; }
int hiprtcGetCodeSize(void *p, size_t *size) { *size = sizeof code; return 0; }
int hiprtcGetCode(void *p, char *text) { memcpy(text, code, sizeof code); return 0; }
int hiprtcDestroyProgram(void **p) { return 0; }
"""


def built(
    folder: Path, rtc: bool = True, malloc: str = "0", second_copy: str = "", compile_: str = ""
) -> Order:
    """The order for the library with these bodies."""
    compiler = shutil.which("cc")
    if compiler is None or sys.platform == "win32":
        pytest.skip("no C compiler")
    source, library = folder / "hip.c", folder / "libamdhip64.so"
    text = HIP.replace("SECOND_COPY", second_copy).replace("MALLOC", malloc)
    source.write_text(text + (HIPRTC.replace("COMPILE", compile_) if rtc else ""))
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-w", str(source), "-o", str(library)], check=True)
    return Order(runtime="hip", library=str(library))


def test_a_product_on_every_gpu(tmp_path: Path) -> None:
    order = built(tmp_path)
    tested = selftest.run(order)
    assert isinstance(tested, Tested), tested
    assert [outcome.device for outcome in tested.outcomes] == ["HIP 0, gfx1100", "HIP 1, gfx1100"]
    for outcome in tested.outcomes:
        assert (outcome.same, outcome.computed) == (True, True)
        assert 0 < outcome.error < LARGEST_ERROR, "fp32 is never equal to float64"
    assert selftests.judged(order, tested).title == "HIP: a matmul came back right"


def test_without_a_compiler_copies_alone_are_tried_and_that_is_said(tmp_path: Path) -> None:
    order = built(tmp_path, rtc=False)
    tested = selftest.run(order)
    assert isinstance(tested, Tested), tested
    if tested.outcomes[0].computed:
        pytest.skip("a hiprtc of this machine was found")
    finding = selftests.judged(order, tested)
    assert finding.status == "ok"
    assert "nothing was computed, as hiprtc is missing" in finding.title


def test_a_second_copy_that_differs_or_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HSA_ENABLE_SDMA", raising=False)
    differs = built(tmp_path, second_copy="*(float *)to += 1;")
    finding = selftests.judged(differs, selftest.run(differs))
    assert (finding.status, finding.cause) == ("problem", "Copies from the GPU are not reliable.")
    hangs = built(tmp_path, second_copy="sleep(600);")
    failure = selftest.run(hangs, deadline_s=4)
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.stage) == ("timeout", selftest.SECOND_COPY)
    finding = selftests.judged(hangs, failure)
    assert "SDMA" in finding.cause
    assert [fix.command for fix in finding.fixes] == ["export HSA_ENABLE_SDMA=0"]


def test_a_call_that_fails_is_named_with_its_number(tmp_path: Path) -> None:
    failure = selftest.run(built(tmp_path, malloc="1"))
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.stage) == ("out of memory", "allocate and copy")
    assert "hipMalloc: out of memory (2)" in failure.reason


@pytest.mark.parametrize(
    ("body", "kind", "said"),
    [("abort();", "crash", "ended the whole process"), ("return 6;", "refused", "refused")],
)
def test_a_compiler_that_fails_is_told_from_copies_that_work(
    tmp_path: Path, body: str, kind: str, said: str
) -> None:
    """HIP 5.2's compiler ends the process at a target that it does not know."""
    order = built(tmp_path, compile_=body)
    failure = selftest.run(order)
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.stage) == (kind, "compile with hiprtc for gfx1100")
    copies = selftests._copies(order, failure)
    assert isinstance(copies, Tested)
    finding = selftests.judged(order, failure, copies)
    assert f"(hiprtc) {said}" in finding.cause
    assert "HIP 0, gfx1100: a matrix came back as it was sent" in finding.evidence
    if kind == "refused":
        assert "unknown target" in finding.evidence[0]


def test_no_hip_is_no_finding(tmp_path: Path) -> None:
    """A name that no loader knows stands for a machine without HIP."""
    tested = selftest.run(Order(runtime="hip", library="libamdhip64-none.so.99"))
    assert tested == Tested(absent=True)


def debian() -> str:
    name = ctypes.util.find_library("amdhip64")
    if name is None:
        pytest.skip("no HIP is installed")
    return name


def test_the_real_hip_without_a_gpu_sees_none() -> None:
    library = debian()
    tested = selftest.run(Order(runtime="hip", library=library))
    if isinstance(tested, Tested) and tested.outcomes:
        pytest.skip("a GPU is here")
    assert tested == Tested()
    finding = selftests.judged(Order(runtime="hip"), tested)
    assert (finding.status, finding.title) == ("problem", "HIP sees no GPU")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("runtime.allocate(4096)", "hipMalloc: "),
        ("runtime.select(0)", "hipSetDevice: "),
        ("runtime.launch(b'no code object', [])", "hipModuleLoadData: "),
    ],
)
def test_the_real_hips_errors_without_a_gpu(call: str, said: str) -> None:
    library = debian()
    code = (
        "import ctypes; from wavefit.doctor.selftest_hip import Runtime; from wavefit.errors import RouteError\n"
        f"runtime = Runtime(ctypes.CDLL({library!r}))\n"
        "if runtime.count(): raise SystemExit('a GPU is here')\n"
        f"try: {call}\nexcept RouteError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if "a GPU is here" in done.stderr:
        pytest.skip("a GPU is here")
    assert done.stdout.startswith(said), done
    assert done.stdout.rstrip().endswith(")")


@pytest.mark.parametrize(("target", "machine"), [("gfx1030", 0x36), ("gfx90a", 0x3F)])
def test_the_real_compiler_makes_the_kernel_without_a_gpu(target: str, machine: int) -> None:
    """An ELF file for AMD GPUs whose e_flags name the target. Source: LLVM, AMDGPUUsage, "EF_AMDGPU_MACH"."""
    code = (
        "import ctypes, sys; from wavefit.doctor.selftest_hip import Runtime, compile_kernel\n"
        f"compiler = Runtime(ctypes.CDLL({debian()!r})).compiler()\n"
        f"if compiler is not None: sys.stdout.buffer.write(compile_kernel(compiler, {target!r}))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    if not done.stdout and not done.returncode:
        pytest.skip("no hiprtc is installed")
    assert done.stdout[:4] == b"\x7fELF", done
    assert int.from_bytes(done.stdout[18:20], "little") == 224  # EM_AMDGPU
    assert done.stdout[48] == machine
    assert b"multiply.kd" in done.stdout, "the kernel's descriptor"
