"""What runs a program: code objects kept, moved and found again; errors; answers in the interpreter."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace
from native.triton.harness import submit  # type: ignore[import-not-found]

from wavefit.device import catalogue
from wavefit.errors import RouteError
from wavefit.native import specimens
from wavefit.native.limits import for_matrix, of_gfx
from wavefit.native.operation import Kernel, Operation
from wavefit.native.triton import kept, recipe
from wavefit.native.triton.chooser import Chooser
from wavefit.native.triton.compile import of_gfx as target_of
from wavefit.native.triton.compilers import compile_all
from wavefit.native.triton.errors import translated
from wavefit.native.triton.kernels import TEMPLATES

TARGET = target_of("gfx942")


def limits():
    return for_matrix(of_gfx("gfx942"), catalogue.device_of("gfx942"))


def product() -> Operation:
    return specimens.matmul(
        specimens.rows(256, 256, dtype="float16"), specimens.rows(256, 128, dtype="float16")
    )


def kernels() -> list[Kernel]:
    return [launch.kernel for launch in Chooser(limits()).build(product()).launches]


def wrong(line: str) -> Kernel:
    """A kernel of one line."""
    return Kernel(
        source=f"import triton\n@triton.jit\ndef wrong(out):\n    {line}\n",
        name="wrong",
        global_size=(1,),
        local_size=(1,),
        types=("float32",),
        options={"num_warps": 4},
        language="triton",
    )


def silent(_: str) -> None:
    return None


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the kernels of a product, compiled for a GPU that is not here."""
    folder = tmp_path_factory.mktemp("cache")
    done = compile_all(kernels(), TARGET, folder, silent, 120)
    assert (done.made, done.found, done.failed) == (len(set(map(kept.identity, kernels()))), 0, {})
    return folder


def test_what_was_compiled_is_found_again(cache: Path) -> None:
    done = compile_all(kernels(), TARGET, cache, silent, 120)
    assert (done.made, done.failed) == (0, {})
    assert done.found


def test_code_objects_are_the_same_where_their_folder_was_moved_to(cache: Path, tmp_path: Path) -> None:
    """Nothing but the kept folders is taken along, and none of it names where it was."""
    shutil.copytree(cache / "kept", tmp_path / "kept")
    (kernel, *_) = kernels()
    assert kept.is_kept(kernel, TARGET, tmp_path)
    for path in (tmp_path / "kept").rglob("*"):
        assert path.is_dir() or str(cache).encode() not in path.read_bytes()
    loaded = kept.load(kernel, TARGET, tmp_path)
    assert loaded.asm["hsaco"][:4] == b"\x7fELF"
    assert loaded.metadata.target.arch == "gfx942"
    assert loaded.metadata.num_warps == kernel.options["num_warps"]


def test_another_target_or_another_text_is_not_found(cache: Path) -> None:
    (kernel, *_) = kernels()
    assert not kept.is_kept(kernel, target_of("gfx1100"), cache)
    other = replace(kernel, source=kernel.source + "\n")
    assert not kept.is_kept(other, TARGET, cache)


def test_a_kernel_that_does_not_compile_is_named_and_the_others_are_kept(tmp_path: Path) -> None:
    (kernel, *_) = kernels()
    broken = wrong("nothing_of_that_name(out)")
    done = compile_all([kernel, broken], TARGET, tmp_path, silent, 120)
    assert done.made == 1
    assert "nothing_of_that_name" in done.failed[kept.identity(broken)]
    assert not kept.is_kept(broken, TARGET, tmp_path)


def test_a_compiler_that_crashes_takes_no_other_kernel_with_it(tmp_path: Path) -> None:
    (kernel, *_) = kernels()
    crashing = replace(wrong("pass"), source="import os\nos._exit(1)\n")
    done = compile_all([crashing, kernel], TARGET, tmp_path, silent, 120)
    assert done.failed == {kept.identity(crashing): "its compiler crashed"}
    assert kept.is_kept(kernel, TARGET, tmp_path)


def test_what_is_not_done_by_the_deadline_has_failed(tmp_path: Path) -> None:
    done = compile_all(kernels(), TARGET, tmp_path, silent, 0.0)
    assert (done.made, set(done.failed.values())) == (0, {"not compiled within 0 s"})


def test_a_recipe_makes_the_same_choices_again(tmp_path: Path) -> None:
    operation = product()
    template = Chooser(limits()).build(operation).template
    *_, config = TEMPLATES.get(template).configurations(operation, limits())
    first = Chooser(limits(), {operation.key: (template, config), "another": (template, config)})
    made = first.build(operation)
    recipe.save(first, tmp_path)
    again = recipe.chooser(tmp_path)
    assert again is not None
    assert again.build(operation) == made
    assert made != Chooser(limits()).build(operation)
    assert "another" not in (tmp_path / "recipe.json").read_text()  # it was not asked for


def test_a_recipe_cannot_bring_text_into_a_kernel(tmp_path: Path) -> None:
    operation = product()
    plain = Chooser(limits()).build(operation)
    for template, config in (
        (plain.template, {**plain.config, "m": "import os #"}),
        ("../evil", plain.config),
    ):
        chooser = Chooser(limits(), {operation.key: (template, config)})
        chooser.asked.add(operation.key)
        recipe.save(chooser, tmp_path)
        again = recipe.chooser(tmp_path)
        assert again is not None
        assert again.build(operation) == plain


def test_too_little_memory_is_a_refusal_with_a_way_out() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(RouteError) as caught, translated("a GPU"):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
    assert "too little memory" in caught.value.reason
    assert "--batch" in caught.value.fix


def test_what_is_no_runtimes_error_passes_through() -> None:
    with pytest.raises(KeyError), translated("a GPU"):
        raise KeyError("a mistake of ours")


def _answers(path: str) -> tuple[np.ndarray, np.ndarray, list[float], int, int]:
    import torch

    from wavefit.native import engine
    from wavefit.native.limits import of_torch
    from wavefit.native.program import Program
    from wavefit.native.triton.executor import Executor

    device = torch.device("cpu")
    program = engine.prepare(Path(path), {"image": (2, 3, 8, 8)}, Chooser(of_torch(device)))
    assert isinstance(program, Program), program
    image = np.random.default_rng(0).standard_normal((2, 3, 8, 8)).astype(np.float32)
    executor = Executor(program, device, Path(path).parent)
    first = executor.run({"image": image})
    again = executor.run({"image": image})
    (name,) = first
    seconds = [each for _, each in executor.times()]
    held = executor.device_bytes
    executor.close()
    return first[name], again[name], seconds, held, program.device_bytes


def test_the_interpreter_answers_as_onnxruntime_does(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    from fakes import models  # type: ignore[import-not-found]

    path = models.save(models.conv_net(), tmp_path / "net.onnx")
    first, again, seconds, held, planned = submit(_answers, str(path))
    image = np.random.default_rng(0).standard_normal((2, 3, 8, 8)).astype(np.float32)
    (want,) = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(
        None, {"image": image}
    )
    np.testing.assert_allclose(first, want, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(first, again)
    assert all(each > 0 for each in seconds)
    assert held == planned
