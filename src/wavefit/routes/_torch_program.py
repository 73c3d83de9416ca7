"""An exported program made ready for a device: moved, flat, in the asked precision and layout."""

from __future__ import annotations

import importlib.util
import json
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from wavefit.errors import RouteError
from wavefit.routes._torch_errors import translated
from wavefit.schema import Model

HALF = {"fp16": torch.float16, "bf16": torch.bfloat16}

# The ops that autocast runs in half precision on a GPU: ATen's autocast_mode.h, "lower_precision_fp".
_CONVOLUTIONS = frozenset(
    f"{kind}{dims}" for kind in ("conv", "conv_transpose") for dims in ("1d", "2d", "3d")
) | {"convolution", "_convolution"}
_LOWERED = _CONVOLUTIONS | frozenset(
    (
        "linear",
        "matmul",
        "mm",
        "mv",
        "bmm",
        "addmm",
        "addmv",
        "addbmm",
        "baddbmm",
        "scaled_dot_product_attention",
    )
)
_VIEWS = frozenset(("t", "transpose", "permute", "view", "reshape", "unsqueeze", "squeeze", "numpy_T"))


class Form(NamedTuple):
    """In which precision and layout a program runs."""

    precision: str = "fp32"
    channels_last: bool = False


class Program(NamedTuple):
    """A flat function over tensors on ``device``, and the symbolic shapes that it was exported for."""

    call: Callable[..., tuple[torch.Tensor, ...]]
    module: torch.fx.GraphModule
    device: torch.device
    form: Form
    exported: Any


def load(path: Path, model: Model, device: torch.device, form: Form) -> Program:
    """Loads a .pt2 and readies it.

    Inputs and outputs are taken and given in the model's order, outputs in the model's types.

    Raises:
        RouteError: another version of PyTorch wrote the file, it has other inputs or outputs than the model, or
            tensors of it did not go to the device.
    """
    exported = _moved(_read(path), device)
    with translated(f"PyTorch could not move the model to {device}"):
        module = _flat(exported).to(device)
    _check_interface(module, model)
    module.requires_grad_(False)
    if form.channels_last:
        _change_weights(module, _CONVOLUTIONS, _to_channels_last)
    if form.precision in HALF:
        half = HALF[form.precision]
        _change_weights(
            module, _LOWERED, lambda weight: weight.to(half) if weight.dtype == torch.float32 else weight
        )
    check_device(module, device)
    types = [_torch_type(spec.dtype) for spec in model.outputs]
    return Program(_function(module, device, form, types), module, device, form, exported)


def _read(path: Path) -> Any:
    written = written_by(path)
    with translated(
        f"PyTorch {torch.__version__} cannot load {path.name}, written by PyTorch {written or '?'}"
    ) as how:
        how.fix = f"export the model again with PyTorch {torch.__version__}"
        return torch.export.load(path)


def written_by(path: Path) -> str | None:
    """The version of PyTorch that wrote a .pt2, None where the file does not tell."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = [
                name for name in archive.namelist() if name.endswith(("models/model.json", "program.json"))
            ]
            return json.loads(archive.read(names[0])).get("torch_version") if names else None
    except (OSError, zipfile.BadZipFile, ValueError):
        return None


def _moved(exported: Any, device: torch.device) -> Any:
    """Weights, constants, and the devices that are written into the graph; PyTorch 2.4 can only move the weights."""
    if importlib.util.find_spec("torch.export.passes") is None:
        return exported
    from torch.export.passes import move_to_device_pass

    with translated(f"PyTorch could not move the model to {device}"):
        return move_to_device_pass(exported, str(device))


def _flat(exported: Any) -> torch.fx.GraphModule:
    """The program as a function from flat inputs to flat outputs, without torch.export's own checks of inputs.

    Those run in Python on each call and break torch.compile; :func:`check_shapes` does their work once a shape.
    """
    module = exported.module()
    graph = module.graph
    graph.set_codegen(torch.fx.graph.CodeGen())
    for node in [node for node in graph.nodes if node.op == "call_module" and "guard" in str(node.target)]:
        graph.erase_node(node)
    return torch.fx.GraphModule(module, graph)


def _check_interface(module: torch.fx.GraphModule, model: Model) -> None:
    takes = sum(node.op == "placeholder" for node in module.graph.nodes)
    gives = len(next(iter(module.graph.find_nodes(op="output"))).args[0])
    if (takes, gives) != (len(model.inputs), len(model.outputs)):
        raise RouteError(
            f"the exported program has {takes} inputs and {gives} outputs, "
            f"the ONNX model {len(model.inputs)} and {len(model.outputs)}",
            "export both from the same module",
        )


def check_device(module: torch.fx.GraphModule, device: torch.device) -> None:
    """Holds everything that the program reads against the device.

    Raises:
        RouteError: a parameter, buffer or constant lies elsewhere.
    """
    tensors = {
        str(node.target): _attribute(module, str(node.target))
        for node in module.graph.find_nodes(op="get_attr")
    }
    astray = [
        name
        for name, tensor in tensors.items()
        if isinstance(tensor, torch.Tensor) and tensor.device != device
    ]
    if astray:
        raise RouteError(f"{len(astray)} tensors of the model are not on {device}: {astray[0]}")


def _attribute(module: torch.nn.Module, target: str) -> Any:
    owner, _, name = target.rpartition(".")
    return getattr(module.get_submodule(owner), name)


def _change_weights(
    module: torch.fx.GraphModule, ops: frozenset[str], change: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    """Replaces the weights that only those ops read. Autocast would else cast them again in every run."""
    for node in module.graph.nodes:
        if node.op == "get_attr" and node.users and all(_feeds(user, ops) for user in node.users):
            owner, _, name = str(node.target).rpartition(".")
            holder = module.get_submodule(owner)
            weight = getattr(holder, name)
            if not isinstance(weight, torch.Tensor):
                continue
            changed = change(weight.detach())
            is_parameter = isinstance(weight, torch.nn.Parameter)
            setattr(
                holder, name, torch.nn.Parameter(changed, requires_grad=False) if is_parameter else changed
            )


def _feeds(node: Any, ops: frozenset[str]) -> bool:
    name = op_name(node.target)
    if name in _VIEWS:
        return bool(node.users) and all(_feeds(user, ops) for user in node.users)
    return name in ops


def op_name(target: Any) -> str:
    """ "conv2d" for torch.ops.aten.conv2d.default."""
    schema = getattr(target, "_schema", None)
    return str(schema.name).rpartition("::")[2] if schema is not None else ""


def _to_channels_last(weight: torch.Tensor) -> torch.Tensor:
    return weight.contiguous(memory_format=torch.channels_last) if weight.dim() == 4 else weight


def _function(
    module: torch.nn.Module, device: torch.device, form: Form, types: Sequence[torch.dtype]
) -> Callable[..., tuple[torch.Tensor, ...]]:
    half = HALF.get(form.precision)

    def call(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if form.channels_last:
            inputs = tuple(_to_channels_last(tensor) for tensor in inputs)
        if half is None:
            outputs = module(*inputs)
        else:
            with torch.autocast(device.type, dtype=half, cache_enabled=False):
                outputs = module(*inputs)
        return tuple(output.to(kind).contiguous() for output, kind in zip(outputs, types, strict=True))

    return call


def _torch_type(name: str) -> torch.dtype:
    kind = getattr(torch, "bool" if name == "bool" else name, None)
    if not isinstance(kind, torch.dtype):
        raise RouteError(f"PyTorch has no tensors of type {name}")
    return kind


def check_shapes(program: Program, shapes: Sequence[tuple[int, ...]]) -> None:
    """Holds input shapes against those that the program was exported for.

    Raises:
        RouteError: a size is fixed to another number, out of its range, or differs from another of the same name.
            As in torch.export, sizes 0 and 1 are admitted below a least size of 2.
    """
    placeholders = [node for node in program.module.graph.nodes if node.op == "placeholder"]
    known: dict[Any, int] = {}
    for node, shape in zip(placeholders, shapes, strict=True):
        expected = getattr(node.meta.get("val"), "shape", ())
        for axis, (want, have) in enumerate(zip(expected, shape, strict=True)):
            problem = _misfit(want, have, known, program.exported.range_constraints)
            if problem:
                raise RouteError(
                    f"the exported program takes {problem} at axis {axis} of {node.name}, not {have}",
                    "export the model again with that dimension dynamic",
                )


def _misfit(want: Any, have: int, known: dict[Any, int], ranges: dict[Any, Any]) -> str:
    if isinstance(want, int):
        return "" if want == have else str(want)
    symbol = want.node.expr
    if not symbol.is_symbol:  # 2*batch, say: known once its symbols are
        value = symbol.subs(known)
        return "" if not value.is_number or value == have else str(value)
    if known.setdefault(symbol, have) != have:
        return str(known[symbol])
    allowed = ranges.get(symbol)
    if allowed is None or (have <= allowed.upper and (have >= allowed.lower or allowed.lower <= 2)):
        return ""
    return f"{allowed.lower} to {allowed.upper}"
