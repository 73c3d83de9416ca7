"""A PyTorch module from what the user named: ``package.module:factory``, or a ``.pt2`` exported program."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wavefit.errors import InputError
from wavefit.model import pt2
from wavefit.model.foreign import attempt, require_torch
from wavefit.schema import Dim, TensorSpec

if TYPE_CHECKING:
    import numpy as np

_LONGEST = 300  # characters quoted from another program's message


@dataclass(frozen=True)
class TorchSource:
    """A module or an exported program, and how to call it.

    Attributes:
        spec: what the user gave.
        name: for files and messages.
        run: answers arrays, one for each of ``inputs``, with named arrays.
        inputs: in the order in which they are passed; the first dimension is symbolic where it is the batch.
        module: the module in eval mode; None for an exported program.
        program: the torch.export.ExportedProgram; None for a module.
        index_limit: integers below it are valid indices in every embedding.
        notes: what was changed on the way, for people.
    """

    spec: str
    name: str
    run: Callable[[Sequence[np.ndarray]], dict[str, np.ndarray]]
    inputs: tuple[TensorSpec, ...]
    module: Any = None
    program: Any = None
    index_limit: int = 2
    min_batch: int = 1
    notes: tuple[str, ...] = ()


def is_factory(spec: str) -> bool:
    """Whether this names ``package.module:factory`` and not a file ("C:\\model.onnx" has a colon as well)."""
    module, colon, name = spec.partition(":")
    parts = (*module.split("."), *name.split("."))
    return bool(colon) and all(part.isidentifier() for part in parts) and not Path(spec).exists()


def from_factory(spec: str, inputs: Sequence[TensorSpec]) -> TorchSource:
    """Imports the module, calls the factory, and puts what it returns into eval mode on the CPU.

    Runs the user's code. Modules are also found from the current folder, as with ``python -m``.

    Raises:
        InputError: no such module or attribute, the factory raised or returned no torch.nn.Module, or the inputs do
            not fit the module's ``forward``.
    """
    torch = require_torch()
    module = _call(spec, _find(spec), torch)
    notes = []
    if any(part.training for part in module.modules()):
        notes.append("the module was in training mode: exported in eval mode (batch normalisation, dropout)")
        module.eval()
    if any(tensor.device.type != "cpu" for tensor in (*module.parameters(), *module.buffers())):
        notes.append("the module was moved to the CPU")
        module.cpu()
    ordered = _order(spec, module, inputs)
    tables = [part.num_embeddings for part in module.modules() if isinstance(part, torch.nn.Embedding)]
    return TorchSource(
        spec=spec,
        name=spec.rpartition(":")[2].rpartition(".")[2],
        run=_runner(torch, module),
        inputs=ordered,
        module=module,
        index_limit=min(tables, default=2),
        notes=tuple(notes),
    )


def with_module(source: TorchSource, module: Any) -> TorchSource:
    """The source with another module of the same form, in eval mode."""
    return replace(source, module=module, run=_runner(require_torch(), module))


def _find(spec: str) -> Any:
    name, _, attribute = spec.partition(":")
    if name.endswith(".py"):
        raise InputError(
            f"{spec} names a file, not a module", f"write {name.removesuffix('.py')}:{attribute}"
        )
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    importlib.invalidate_caches()
    with attempt() as tried:
        found: Any = importlib.import_module(name)
    if isinstance(tried.error, ModuleNotFoundError) and tried.error.name in _prefixes(name):
        raise InputError(
            f"{spec}: there is no module {tried.error.name!r}, in {here} or installed",
            "check the name before the colon",
        )
    if tried.error is not None:
        raise InputError(f"{spec}: importing {name} raised {described(tried.error)}")
    for part in attribute.split("."):
        if not hasattr(found, part):
            has = ", ".join(key for key, value in vars(found).items() if _is_candidate(name, key, value))
            raise InputError(f"{spec}: {name} has no {part!r}", f"it has {has}" if has else "")
        found = getattr(found, part)
    return found


def _prefixes(name: str) -> tuple[str, ...]:
    parts = name.split(".")
    return tuple(".".join(parts[: end + 1]) for end in range(len(parts)))


def _is_candidate(module: str, key: str, value: Any) -> bool:
    return not key.startswith("_") and callable(value) and getattr(value, "__module__", None) == module


def _call(spec: str, factory: Any, torch: Any) -> Any:
    if isinstance(factory, torch.nn.Module):
        return factory
    if not callable(factory):
        raise InputError(
            f"{spec} is a {type(factory).__name__}, not a function",
            "name a function that returns a torch.nn.Module",
        )
    with attempt() as tried:
        module = factory()
    if tried.error is not None:
        raise InputError(f"{spec}() raised {described(tried.error)}")
    if not isinstance(module, torch.nn.Module):
        raise InputError(
            f"{spec}() returned a {type(module).__name__}, not a torch.nn.Module",
            "return the module from the factory",
        )
    return module


def _order(spec: str, module: Any, inputs: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
    """The inputs in the order of ``forward``'s parameters where all have such names, else as given."""
    parameters = inspect.signature(module.forward).parameters.values()
    takes = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    needs = [p.name for p in parameters if p.name in takes and p.default is p.empty]
    if not inputs:
        example = " ".join(f"--input {name}:1x3x224x224" for name in needs or ["x"])
        raise InputError(
            f"{spec}: the shapes of its inputs cannot be told from a module", f"give them: {example}"
        )
    named = {item.name: item for item in inputs}
    if set(needs) <= set(named) <= set(takes):
        last = max(takes.index(name) for name in named)
        if [name for name in takes[: last + 1] if name not in named]:
            raise InputError(
                f"{spec}: forward({', '.join(takes)}) cannot be called with {', '.join(named)} alone",
                "give the inputs before them as well",
            )
        return tuple(named[name] for name in takes if name in named)
    variadic = any(p.kind == p.VAR_POSITIONAL for p in parameters)
    if not variadic and not len(needs) <= len(inputs) <= len(takes):
        raise InputError(
            f"{spec}: forward({', '.join(takes)}) does not take the inputs {', '.join(named)}",
            "give one --input for each of its parameters, by its name",
        )
    return tuple(inputs)


def _runner(torch: Any, call: Callable[..., Any]) -> Callable[[Sequence[np.ndarray]], dict[str, np.ndarray]]:
    def run(arrays: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        with torch.no_grad():
            answer = call(*(torch.from_numpy(array.copy()) for array in arrays))
        found, _ = torch.utils._pytree.tree_flatten_with_path(answer)
        tensors = {_answer_name(path): leaf for path, leaf in found if isinstance(leaf, torch.Tensor)}
        return {name: _array(torch, tensor) for name, tensor in tensors.items()}

    return run


def _answer_name(path: Sequence[Any]) -> str:
    """ "output" for a lone tensor, "output_1" in a tuple, "logits" in a dictionary."""
    parts = [str(getattr(entry, "key", getattr(entry, "idx", getattr(entry, "name", "")))) for entry in path]
    name = re.sub(r"\W", "_", "_".join(parts))
    return name if name and not name[0].isdigit() else f"output_{name}".rstrip("_")


def _array(torch: Any, tensor: Any) -> np.ndarray:
    found: np.ndarray = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).detach().numpy()
    return found


def from_program(path: Path) -> TorchSource:
    """Reads a .pt2 file whose archive was found to be free of code.

    Raises:
        InputError: no such file, no exported program, something in it that would run code, or PyTorch cannot read it.
    """
    pt2.check(path)
    torch = require_torch()
    with attempt() as tried:
        program = torch.export.load(str(path))
    if tried.error is not None:
        raise InputError(
            f"{path}: PyTorch {torch.__version__} cannot read it: {described(tried.error)}",
            "save it again with this version: torch.export.save",
        )
    inputs, lowest = _program_inputs(path, program, torch)
    return TorchSource(
        spec=str(path),
        name=path.stem,
        run=_runner(torch, program.module()),
        inputs=inputs,
        program=program,
        min_batch=lowest,
    )


def _program_inputs(path: Path, program: Any, torch: Any) -> tuple[tuple[TensorSpec, ...], int]:
    """The program's tensor inputs, symbols kept by name, and the smallest batch that it allows."""
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    specs, lowest = [], 1
    for name in program.graph_signature.user_inputs:
        value = nodes[name].meta.get("val") if name in nodes else None
        if not isinstance(value, torch.Tensor):
            raise InputError(
                f"{path}: its input {name!r} is no tensor", "export it with tensors as inputs only"
            )
        shape: tuple[Dim, ...] = tuple(dim if isinstance(dim, int) else str(dim) for dim in value.shape)
        specs.append(TensorSpec(name=name, dtype=str(value.dtype).removeprefix("torch."), shape=shape))
        if shape and isinstance(shape[0], str):
            ranges = {str(symbol): bounds for symbol, bounds in program.range_constraints.items()}
            lowest = max(lowest, int(ranges[shape[0]].lower) if shape[0] in ranges else 1)
    if not specs:
        raise InputError(f"{path}: the program has no inputs", "export it with its tensors as inputs")
    return tuple(specs), lowest


def described(error: BaseException) -> str:
    """A foreign exception in one clause: its kind, the first lines of its message, and the user's line of code."""
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    text = f"{type(error).__name__}: {' '.join(lines[:2])[:_LONGEST]}".rstrip(".: ")
    place = _users_line(error)
    return f"{text} (at {place})" if place else text


def _users_line(error: BaseException) -> str | None:
    """The innermost frame outside of installed packages and of wavefit: "net.py:12"."""
    own = str(Path(__file__).parents[1])
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        outside = not any(
            part in frame.filename for part in ("site-packages", "dist-packages", "<frozen", own)
        )
        if outside and frame.filename.endswith(".py") and not frame.filename.startswith(sys.base_prefix):
            return f"{Path(frame.filename).name}:{frame.lineno}"
    return None
