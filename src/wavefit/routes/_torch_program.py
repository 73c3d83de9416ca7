"""An exported program made ready for a device: moved, flat, in the asked precision and layout."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from wavefit.errors import RouteError
from wavefit.routes import _torch_file
from wavefit.routes._torch_errors import translated
from wavefit.routes._torch_fold import fold
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
    ranges: dict[Any, Any]  # of the symbols in the placeholders' shapes


def load(path: Path, model: Model, device: torch.device, form: Form) -> Program:
    """Loads a .pt2 and readies it.

    Inputs and outputs are taken and given in the model's order, outputs in the model's types.

    Raises:
        RouteError: another version of PyTorch wrote the file, it has other inputs or outputs than the model, or
            tensors of it did not go to the device.
    """
    exported = _moved(_torch_file.read(path), device)
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
    return Program(_function(module, device, form, types), module, device, form, exported.range_constraints)


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
    for node in [node for node in graph.nodes if _is_check(node)]:
        graph.erase_node(node)
    fold(module)
    return torch.fx.GraphModule(module, graph)


def _is_check(node: Any) -> bool:
    """Guards on inputs, and assertions of types, which half precision would break (a cast leaves one)."""
    is_guard = node.op == "call_module" and "guard" in str(node.target)
    return (is_guard or op_name(node.target) == "_assert_tensor_metadata") and not node.users


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
    module: torch.fx.GraphModule, device: torch.device, form: Form, types: Sequence[torch.dtype]
) -> Callable[..., tuple[torch.Tensor, ...]]:
    half = HALF.get(form.precision)
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    lowered = [half is not None and _only_lowered(node) for node in placeholders]

    def prepared(tensor: torch.Tensor, to_half: bool) -> torch.Tensor:
        last = form.channels_last and tensor.dim() == 4
        layout = torch.channels_last if last else torch.preserve_format
        return tensor.to(half if to_half else tensor.dtype, memory_format=layout)

    def call(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        inputs = tuple(map(prepared, inputs, lowered))
        if half is None:
            outputs = module(*inputs)
        else:
            with torch.autocast(device.type, dtype=half, cache_enabled=False):
                outputs = module(*inputs)
        return tuple(output.to(kind).contiguous() for output, kind in zip(outputs, types, strict=True))

    return call


def _only_lowered(node: Any) -> bool:
    """Whether autocast would cast an fp32 input first thing, so that it can be cast and laid out in one go."""
    value = node.meta["val"]
    users = node.users
    return value.dtype == torch.float32 and bool(users) and all(_feeds(user, _LOWERED) for user in users)


def _torch_type(name: str) -> torch.dtype:
    kind = getattr(torch, "bool" if name == "bool" else name, None)
    if not isinstance(kind, torch.dtype):
        raise RouteError(f"PyTorch has no tensors of type {name}")
    return kind
