import json
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyopencl")
import pyopencl as cl
from fakes import opencl_templates as probe

from wavefit.native import specimens
from wavefit.native import tuned as shared
from wavefit.native.limits import of_opencl
from wavefit.native.opencl import compilers, kernels, tune, tuned
from wavefit.native.opencl.build import has_binaries
from wavefit.native.opencl.chooser import Chooser
from wavefit.native.opencl.comparison import Comparison
from wavefit.native.opencl.compilers import Compilers
from wavefit.native.opencl.trial import Trial
from wavefit.native.opencl.tuned import Begun, Choice, Evaluated, Store, open_store

TESTS = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def device() -> Any:
    return next(each for platform in cl.get_platforms() for each in platform.get_devices())


@pytest.fixture
def with_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    """The probe's template among the engine's, here and in the tuner's child."""
    module = f"{kernels.__name__}.{probe.NAME}"
    others = kernels.names()
    monkeypatch.setitem(sys.modules, module, probe)
    monkeypatch.setattr(kernels, "names", lambda: sorted([*others, probe.NAME]))
    monkeypatch.setattr(kernels.TEMPLATES, "names", lambda: sorted([*others, probe.NAME]))
    monkeypatch.setattr(tune, "_FUNCTION", "fakes.opencl_templates:tune_all")
    monkeypatch.setattr(tune, "_RUN_S", 2.0)
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    monkeypatch.setenv("PYTHONPATH", path)


def lines(folder: Path, device: Any) -> list[dict[str, Any]]:
    return tuned_lines(tuned.store(device, folder))


def tuned_lines(kept: Store) -> list[dict[str, Any]]:
    """The file's lines that are whole."""
    return [json.loads(line) for line in kept.path.read_text().splitlines() if line.endswith("}")]


def evaluated(folder: Path, device: Any) -> dict[tuple[str, int], dict[str, Any]]:
    found = (line for line in lines(folder, device) if line["type"] == "evaluated")
    return {(line["config"]["kind"], line["config"]["loops"]): line for line in found}


@pytest.mark.usefixtures("with_probe")
def test_takes_the_fastest_that_is_right(device: Any, tmp_path: Path) -> None:
    said: list[str] = []
    operation = probe.OPERATION
    choices = tune.tune([operation, operation], device, 60.0, said.append, tmp_path)
    choice = choices[operation.key]
    assert (choice.template, choice.config) == ("probe", {"kind": "right", "loops": 10})
    assert choice.source == "tuned"
    assert choice.gain > 2  # 10 loops against 20000
    results = evaluated(tmp_path, device)
    assert len(results) == choice.evaluations == 7
    assert results["wrong", 1]["seconds"] is None
    assert "off by 0.0005" in results["wrong", 1]["why"]  # 2.001 / 2 - 1
    assert "off by nan" in results["gap", 1]["why"]
    assert results["broken", 1]["seconds"] is None
    assert results["broken", 1]["why"]
    assert tune.known(device, tmp_path) == {operation.key: ("probe", choice.config)}
    assert said == [
        "tuning 1 of 1 operations, 60 s at most",
        f"tuning 1 of 1 Probe 256: {choice.gain:.2f}x of default",
    ]

    size = tuned.store(device, tmp_path).path.stat().st_size
    assert tune.tune([operation], device, 60.0, said.append, tmp_path) == choices
    assert tuned.store(device, tmp_path).path.stat().st_size == size  # nothing was measured again


@pytest.mark.usefixtures("with_probe")
def test_goes_on_after_a_kernel_that_hangs(device: Any, tmp_path: Path) -> None:
    started = time.monotonic()
    said: list[str] = []
    operation = probe.HANGING
    choice = tune.tune([operation], device, 60.0, said.append, tmp_path)[operation.key]
    assert choice.config == {"kind": "right", "loops": 10}
    assert "ended the process" in evaluated(tmp_path, device)["endless", 0]["why"]
    assert any("'endless'" in text and "left out" in text for text in said)
    assert time.monotonic() - started < 60  # the hang did not take the budget
    begun = Counter(line["config"]["kind"] for line in lines(tmp_path, device) if line["type"] == "begun")
    assert begun["endless"] == 1

    tune.tune([operation], device, 61.0, said.append, tmp_path)  # a larger budget: it looks again
    begun = Counter(line["config"]["kind"] for line in lines(tmp_path, device) if line["type"] == "begun")
    assert begun["endless"] == 1


@pytest.mark.usefixtures("with_probe")
def test_goes_on_where_it_was_interrupted(device: Any, tmp_path: Path) -> None:
    operation = probe.OPERATION
    kept = tuned.store(device, tmp_path)
    for config in ({"kind": "right", "loops": 10000}, {"kind": "right", "loops": 10}):
        code = tuned.code_hash("probe")
        kept.append(Evaluated(key=operation.key, template="probe", config=config, code=code, seconds=1e-9))
    with kept.path.open("a") as stream:
        stream.write('{"type":"evaluated","key":"' + operation.key)  # torn by a kill
    choice = tune.tune([operation], device, 60.0, print, tmp_path)[operation.key]
    assert choice.config["loops"] in (10, 10000)  # what the file says is the best
    compiled = [line for line in tuned_lines(kept) if line.get("compile_s") is not None]
    assert {line["config"]["loops"] for line in compiled}.isdisjoint({10, 10000})


def test_spends_no_more_than_its_budget(device: Any, tmp_path: Path) -> None:
    """Twelve layers that would take minutes; the grace is for a process to start and to end on a slow machine."""
    layers = [specimens.conv(specimens.image(1, 16, n, 14), 32, (3, 3), pad=1) for n in range(8, 20)]
    started = time.monotonic()
    choices = tune.tune(layers, device, 4.0, print, tmp_path)
    assert time.monotonic() - started < 4.0 + 20.0
    assert len(choices) < len(layers)
    assert set(choices) <= {layer.key for layer in layers}


def test_a_tuned_convolution_is_what_is_built_and_right(device: Any, tmp_path: Path) -> None:
    operation = specimens.conv(specimens.image(1, 8, 9, 7), 12, (3, 3), pad=1)
    choices = tune.tune([operation], device, 6.0, print, tmp_path)
    choice = choices[operation.key]
    limits = of_opencl(device, None)
    chooser = Chooser(limits, {operation.key: (choice.template, choice.config)})
    made = chooser.build(operation)
    assert (made.template, made.config) == (choice.template, choice.config)
    assert chooser.cost(operation) == Chooser(limits).cost(operation)  # or layouts would change with tuning
    trial = Trial(operation, cl.Context([device]))
    default = Chooser(limits).build(operation)
    trial.difference(trial.compile(default.template, default.config))
    assert trial.difference(trial.compile(choice.template, choice.config)) < 1e-5
    trial.close()


# ---- What is kept ---------------------------------------------------------------------------------------------------


def choice(**changed: Any) -> Choice:
    given = {
        "key": "a",
        "template": "softmax",
        "config": {"items": 64},
        "seconds": 1e-3,
        "default_s": 2e-3,
        "source": "tuned",
        "code": {"softmax": tuned.code_hash("softmax")},
    }
    return Choice(**{**given, **changed})


def test_only_choices_of_todays_templates_are_known(device: Any, tmp_path: Path) -> None:
    kept = tuned.store(device, tmp_path)
    kept.append(choice(), choice(key="b", code={"softmax": "0123456789abcdef"}))
    kept.append(choice(key="c", source="predicted"), choice(key="d", code={"no_such_template": "0"}))
    assert tuned.known(device, tmp_path) == {"a": ("softmax", {"items": 64})}
    before = tuned.state(tmp_path)
    kept.append(choice(config={"items": 128}))
    assert tuned.known(device, tmp_path) == {"a": ("softmax", {"items": 128})}  # the last one counts
    assert before != tuned.state(tmp_path)
    assert str(tuned.state(tmp_path)).startswith("1 (")


def test_nothing_is_known_where_nothing_was_tuned(device: Any, tmp_path: Path) -> None:
    assert tuned.known(device, tmp_path) == {}
    assert tuned.state(tmp_path / "none") is None


def test_a_templates_hash_covers_what_it_imports() -> None:
    imported = shared._imported(f"{kernels.__name__}.conv_gemm", set())
    short = {name.rpartition(".")[2] for name in imported}
    assert {"conv_gemm", "_product", "_tiles", "_conv", "c", "functions", "pointwise"} <= short
    assert "chooser" not in short
    assert tuned.code_hash("conv_gemm") != tuned.code_hash("matmul")


def test_the_open_end_of_another_tuning_is_not_blamed(tmp_path: Path) -> None:
    kept = open_store(tmp_path / "device.jsonl")
    mine = Begun(key="a", template="softmax", config={"items": 64}, run="mine")
    kept.append(mine, Begun(key="b", template="softmax", config={"items": 64}, run="another's"))
    assert kept.open_ends("mine") == [mine]
    kept.append(Evaluated(key="a", template="softmax", config={"items": 64}, code=""))
    assert kept.open_ends("mine") == []


# ---- Its tools ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def queue(device: Any) -> Any:
    return cl.CommandQueue(cl.Context([device]))


def buffer(queue: Any, array: np.ndarray) -> Any:
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    return cl.Buffer(queue.context, flags, hostbuf=array)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "int32", "uint8"])
def test_the_device_compares_as_numpy_does(queue: Any, dtype: str) -> None:
    rng = np.random.default_rng(0)
    want = (10 * rng.standard_normal(40_001)).astype(dtype)
    got = want.copy()
    got[::7] += np.ones(1, dtype)[0]
    comparison = Comparison(queue, buffer(queue, want), dtype)
    a, b = got.astype(np.float64), want.astype(np.float64)
    assert comparison.difference(buffer(queue, want)) == 0
    assert comparison.difference(buffer(queue, got)) == pytest.approx(
        np.linalg.norm(a - b) / np.linalg.norm(b), rel=1e-4
    )


def test_a_gap_is_nan_and_a_nan_in_both_is_none(queue: Any) -> None:
    want = np.array([1.0, np.nan, np.inf, 4.0], np.float32)
    gap = want.copy()
    gap.view(np.uint32)[3] = 0xFFFFFFFF
    negative = want.copy()
    negative.view(np.uint32)[1] = 0xFFC00000  # another NaN
    comparison = Comparison(queue, buffer(queue, want), "float32")
    assert comparison.difference(buffer(queue, want)) == 0
    assert comparison.difference(buffer(queue, negative)) == 0
    assert np.isnan(comparison.difference(buffer(queue, gap)))
    assert not comparison.difference(buffer(queue, np.array([1, 2, np.inf, 4], np.float32))) < 1
    assert not comparison.difference(buffer(queue, np.array([1, np.nan, 3, 4], np.float32))) < 1


def test_compilers_in_other_processes(device: Any) -> None:
    right = "__kernel void one(__global float *out) { out[get_global_id(0)] = 1.0f; }"
    pool = Compilers(compilers.where(device), 2)
    futures = [(source, pool.submit([source])) for source in (right, "__kernel void two() { nothing; }")]
    first, second = (pool.result(future, [source], 60.0) for source, future in futures)
    pool.close()
    assert isinstance(second, str)
    assert isinstance(first, dict)
    if not has_binaries(device):
        assert first == {}
        return
    context = cl.Context([device])
    queue, out = cl.CommandQueue(context), np.zeros(4, np.float32)
    held = cl.Buffer(context, cl.mem_flags.WRITE_ONLY, out.nbytes)
    cl.Program(context, [device], [first[right]]).build().one(queue, (4,), None, held)
    cl.enqueue_copy(queue, out, held)
    assert out.tolist() == [1, 1, 1, 1]
