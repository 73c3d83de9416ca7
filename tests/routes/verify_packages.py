"""What each real package of ONNX Runtime does on a machine without its GPU: a clear refusal, or this script fails.

    python tests/routes/verify_packages.py [NAME ...] [--borrow] [--keep FOLDER]

Makes a virtual environment for each package below a temporary folder, installs the package and wavefit into it, and
asks the route to open a small model on an invented AMD GPU. One line a check; exit code 1 if any of them fails. On
a machine that does have the GPU, the check of what opening says is reported and not judged.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import platform
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from wavefit.schema import Model

REPOSITORY = Path(__file__).resolve().parents[2]
PIP_INSTALL = ("-m", "pip", "install", "--quiet", "--quiet", "--disable-pip-version-check")


class Case(NamedTuple):
    route: str
    packages: tuple[str, ...]
    says: tuple[str, ...]  # one of these must be in the reason that opening gives
    build: str  # the package that is named where it is missing


CASES = {
    "migraphx": Case(
        "ort_migraphx",
        ("onnxruntime-migraphx==1.27.1",),
        ("libmigraphx_c.so.3", "libamdhip64.so", "sees no GPU"),
        "onnxruntime-migraphx",
    ),
    "rocm": Case(
        "ort_rocm",
        ("onnxruntime-rocm==1.22.2.post3",),
        ("libhipblas.so.3", "libMIOpen.so", "sees no GPU", "ended ONNX Runtime's ROCm provider"),
        "onnxruntime-rocm",
    ),
    "webgpu": Case(
        "ort_webgpu",
        ("onnxruntime-webgpu==1.27.0",),
        ("libvulkan.so.1", "no driver that works", "sees no GPU", "software on the CPU"),
        "onnxruntime-webgpu",
    ),
    "ep-webgpu": Case(
        "ort_webgpu",
        ("onnxruntime==1.32.0", "onnxruntime-ep-webgpu==0.4.0"),
        ("libvulkan.so.1", "no driver that works", "sees no GPU", "software on the CPU"),
        "onnxruntime-ep-webgpu",
    ),
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", choices=[*CASES, []], metavar="NAME", help=", ".join(CASES))
    parser.add_argument("--keep", type=Path, help="make the environments here and keep them")
    parser.add_argument(
        "--borrow", action="store_true", help="link what is installed here, install only the packages"
    )
    parser.add_argument("--inside", choices=CASES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        print(json.dumps(observe(CASES[args.inside])))
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.keep or Path(scratch)
        make = borrow if args.borrow else install
        failures = [
            line
            for name in args.names or CASES
            for line in verify(name, make(folder / name, CASES[name].packages))
        ]
    return 1 if failures else 0


def verify(name: str, python: Path) -> list[str]:
    """Runs one case in its environment and prints it; the checks that failed."""
    case = CASES[name]
    done = subprocess.run(
        [str(python), __file__, "--inside", name], capture_output=True, text=True, timeout=300, check=False
    )
    if done.returncode != 0:
        print(f"FAIL {name}: the process ended with {done.returncode}: {done.stderr.strip()[-300:]}")
        return [name]
    seen = json.loads(done.stdout.strip().splitlines()[-1])
    checks = {
        "without a GPU it refuses with reason and fix": bool(
            seen["no_gpu"] and all(map(all, seen["no_gpu"]))
        ),
        "an AMD GPU gets a plan": seen["plans"] > 0 or "ROCm provider with ROCm 7.0" in str(seen["refusals"]),
        f"opening says the cause: {seen['opened']}": seen["gpu"]
        or any(word in seen["opened"] for word in case.says),
        f"and a fix: {seen['fix']}": seen["gpu"] or bool(seen["fix"]),
        "the versions name the package": case.build in seen["versions"],
    }
    if seen["on_any_adapter"]:
        checks[f"on any adapter, software too, {seen['on_any_adapter']}"] = seen["on_any_adapter"].endswith(
            "right and there"
        )
    for check, passed in checks.items():
        print(f"{'ok  ' if passed else 'FAIL'} {name}: {check}", flush=True)
    return [check for check, passed in checks.items() if not passed]


def install(folder: Path, packages: tuple[str, ...]) -> Path:
    """A virtual environment with wavefit and the packages; its Python. Kept as it is where it exists."""
    python = folder / ("Scripts/python.exe" if platform.system() == "Windows" else "bin/python")
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(python), *PIP_INSTALL, str(REPOSITORY), *packages], check=True)
    return python


def borrow(folder: Path, packages: tuple[str, ...]) -> Path:
    """The same in seconds: links to all that this environment has but ONNX Runtime, and the packages for real."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    ours = Path(sysconfig.get_path("purelib"))
    theirs = folder / ours.relative_to(sys.prefix)
    for entry in ours.iterdir():
        if not entry.name.startswith("onnxruntime"):
            (theirs / entry.name).symlink_to(entry)
    options = ["--no-deps", "--target", str(theirs)]
    subprocess.run([sys.executable, *PIP_INSTALL, *options, *packages], check=True)
    return folder / "bin/python"


def observe(case: Case) -> dict[str, object]:
    """What the route says, inside the environment."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    from wavefit import routes
    from wavefit.device.probe import probe
    from wavefit.errors import RouteError
    from wavefit.model.load import load
    from wavefit.schema import Device, Plan, Request, Unsupported

    with tempfile.TemporaryDirectory() as scratch:
        weight = numpy_helper.from_array(np.ones((4, 3), np.float32), "w")
        graph = helper.make_graph(
            [helper.make_node("MatMul", ["x", "w"], ["y"], name="matmul")],
            "tiny",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 3])],
            [weight],
        )
        path = Path(scratch) / "tiny.onnx"
        onnx.save(
            helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path)
        )
        model = load(path)
        route = routes.get(case.route)
        cpu = Device(id="cpu", kind="cpu")
        gpu = Device(id="gpu0", kind="gpu", vendor="amd", gfx="gfx1100", pci_id="1002:744c")
        answers = route.plans([cpu, gpu], model, Request())
        refusals = [answer for answer in answers if isinstance(answer, Unsupported)]
        opened, fix = "it opened", ""
        try:
            route.open(
                Plan(route=case.route, device="gpu0", shapes={"x": (1, 4)}), model, gpu, Path(scratch)
            ).close()
        except RouteError as error:
            opened, fix = error.reason, error.fix
        return {
            "no_gpu": [
                (u.reason, u.fix) for u in route.plans([cpu], model, Request()) if isinstance(u, Unsupported)
            ],
            "plans": len(answers) - len(refusals),
            "refusals": [refusal.reason for refusal in refusals],
            "opened": opened,
            "fix": fix,
            "versions": route.versions(),
            "on_any_adapter": run_on_any_adapter(model, Path(scratch)) if case.route == "ort_webgpu" else "",
            "gpu": any(device.kind == "gpu" for device in probe()),
            "wavefit": importlib.metadata.version("wavefit"),
        }


def run_on_any_adapter(model: Model, workdir: Path) -> str:
    """WebGPU's answer and placement on what Vulkan offers (Mesa's lavapipe will do); "" where that is nothing."""
    import numpy as np

    from wavefit.errors import RouteError
    from wavefit.routes import _vulkan, ort_webgpu

    try:
        (name, *_) = [adapter.name for adapter in _vulkan.adapters()]
        session = ort_webgpu._open(model, "high-performance", workdir)
    except (RouteError, ValueError):
        return ""
    if takes_any_preference(model, workdir):
        return f"{name}: the preference of a GPU is not read"
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    right = np.allclose(session.run({"x": x})["y"], x.sum(1, keepdims=True).repeat(3, 1))
    placement = session.placement()
    there = placement is not None and placement.on("WebGpuExecutionProvider") == 1
    return f"{name}: {'right' if right else 'wrong'} and {'there' if there else 'elsewhere'}"


def takes_any_preference(model: Model, workdir: Path) -> bool:
    """Whether a word that WebGPU does not know passes as a preference, so that the right one would be lost too."""
    from wavefit.errors import RouteError
    from wavefit.routes import ort_webgpu

    try:
        ort_webgpu._open(model, "no such preference", workdir)
    except RouteError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
