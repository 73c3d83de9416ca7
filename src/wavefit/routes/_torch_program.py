"""An exported program made ready for a device: moved, flat, in the asked precision and layout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from wavefit.errors import RouteError
from wavefit.routes import _torch_file, _torch_keep
from wavefit.routes._torch_errors import translated
from wavefit.routes._torch_fold import fold
from wavefit.routes._torch_move import move
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
    """In which precision and layout a program runs, and which of its nodes stay in fp32 below half precision."""

    precision: str = "fp32"
    channels_last: bool = False
    keep: tuple[str, ...] = ()


class Program(NamedTuple):
    """A flat function over tensors on ``device``, and the symbolic shapes that it was exported for."""

    module: torch.fx.GraphModule
    device: torch.device
    form: Form
    types: tuple[torch.dtype, ...]  # of the outputs
    lowered: tuple[bool, ...]  # inputs that are cast to half first thing
    ranges: dict[Any, Any]  # of the symbols in the placeholders' shapes

    def call(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return self.call_with(self.module, *inputs)

    def call_with(self, run: Callable[..., Any], *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """As :meth:`call`, by another way to run the module."""
        half = HALF.get(self.form.precision)
        given = [
            self._prepared(tensor, half if low else None)
            for tensor, low in zip(inputs, self.lowered, strict=True)
        ]
        if half is None:
            outputs = run(*given)
        else:
            with torch.autocast(self.device.type, dtype=half, cache_enabled=False):
                outputs = run(*given)
        return tuple(output.to(kind).contiguous() for output, kind in zip(outputs, self.types, strict=True))

    def _prepared(self, tensor: torch.Tensor, kind: torch.dtype | None) -> torch.Tensor:
        last = self.form.channels_last and tensor.dim() == 4
        layout = torch.channels_last if last else torch.preserve_format
        return tensor.to(kind or tensor.dtype, memory_format=layout)


def load(path: Path, model: Model, device: torch.device, form: Form) -> Program:
    """Loads a .pt2 and readies it.

    Inputs and outputs are taken and given in the model's order, outputs in the model's types.

    Raises:
        RouteError: another version of PyTorch wrote the file, it has other inputs or outputs than the model, or
            tensors of it did not go to the device.
    """
    exported = _torch_file.read(path)
    half = HALF.get(form.precision)
    module = _flat(exported, form.keep if half is not None else ())
    _check_interface(module, model)
    module.requires_grad_(False)
    if form.channels_last:
        _change_weights(module, _CONVOLUTIONS, _to_channels_last)
    if half is not None:
        _torch_keep.split(module, half, device.type)
        _change_weights(
            module, _LOWERED, lambda weight: weight.to(half) if weight.dtype == torch.float32 else weight
        )
    # Last: on its way the program holds weights twice, which the device would keep until Python collects its cycles.
    with translated(f"PyTorch could not move the model to {device}"):
        move(module, device)
    check_device(module, device)
    types = tuple(_torch_type(spec.dtype) for spec in model.outputs)
    lowered = tuple(
        half is not None and _only_lowered(node) for node in module.graph.find_nodes(op="placeholder")
    )
    return Program(module, device, form, types, lowered, exported.range_constraints)


def _flat(exported: Any, keep: Sequence[str]) -> torch.fx.GraphModule:
    """The program as a function from flat inputs to flat outputs, without torch.export's own checks of inputs.

    Those run in Python on each call and break torch.compile; :func:`check_shapes` does their work once a shape.
    """
    module = exported.module()
    graph = module.graph
    graph.set_codegen(torch.fx.graph.CodeGen())
    for node in [node for node in graph.nodes if _is_check(node)]:
        graph.erase_node(node)
    _torch_keep.mark(module, keep)
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
