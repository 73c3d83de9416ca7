"""A flat program's way to a device: its weights and constants, and the devices that are written into its graph."""

from __future__ import annotations

from typing import Any

import torch


def move(module: torch.fx.GraphModule, device: torch.device) -> None:
    """Moves a program in place; the tensors that were read on the way stay where they are."""
    module.to(device)
    for part in module.modules():
        if isinstance(part, torch.fx.GraphModule):
            _move_graph(part, device)


def _move_graph(module: torch.fx.GraphModule, device: torch.device) -> None:
    for node in module.graph.nodes:
        if node.op == "get_attr":
            _move_constant(module, str(node.target), device)
        if "device" in node.kwargs:  # factories: arange, zeros
            node.kwargs = {**node.kwargs, "device": device}
        for index, argument in enumerate(node.args):  # aten.to.device, also below autocast
            if isinstance(argument, torch.device):
                node.update_arg(index, device)
    module.recompile()


def _move_constant(module: torch.nn.Module, target: str, device: torch.device) -> None:
    """A tensor that is neither a parameter nor a buffer, which ``Module.to`` leaves where it is."""
    owner, _, name = target.rpartition(".")
    holder = module.get_submodule(owner)
    found: Any = getattr(holder, name)
    if isinstance(found, torch.Tensor) and not isinstance(found, torch.nn.Parameter):
        setattr(holder, name, found.to(device))
