"""Batch normalisations folded into the convolutions before them, as every inference engine does: one kernel less each.

A normalisation at inference is y = (x - mean) / sqrt(variance + eps) * scale + shift, per channel, so a convolution
with weights w * scale / sqrt(variance + eps) gives the same to the rounding of its weights.
"""

from __future__ import annotations

from typing import Any

import torch

from wavefit.routes._torch_keep import KEPT

_CONVOLUTIONS = tuple(
    getattr(torch.ops.aten, name).default for name in ("conv1d", "conv2d", "conv3d")
)  # transposed ones keep their channels on another axis of the weight


def fold(module: torch.fx.GraphModule) -> int:
    """Folds what can be folded, in place; call it before weights lose precision.

    Returns:
        How many normalisations are gone.
    """
    graph = module.graph
    found = [node for node in graph.nodes if _foldable(node)]
    for index, node in enumerate(found):
        convolution = node.args[0]
        weight, bias = _fused(module, node)
        with graph.inserting_before(convolution):
            names = [f"_folded_weight_{index}", f"_folded_bias_{index}"]
            for name, tensor in zip(names, (weight, bias), strict=True):
                module.register_parameter(name, torch.nn.Parameter(tensor, requires_grad=False))
            convolution.args = (
                convolution.args[0],
                graph.get_attr(names[0]),
                graph.get_attr(names[1]),
                *convolution.args[3:],
            )
        if node.meta.get(KEPT):
            convolution.meta[KEPT] = True
        node.replace_all_uses_with(convolution)
        graph.erase_node(node)
    for node in [node for node in graph.nodes if node.op == "get_attr" and not node.users]:
        graph.erase_node(node)
    return len(found)


def _foldable(node: Any) -> bool:
    if node.target is not torch.ops.aten.batch_norm.default or node.args[5]:  # 5: training
        return False
    convolution = node.args[0]
    return (
        convolution.target in _CONVOLUTIONS
        and len(convolution.users) == 1
        and not convolution.kwargs
        and all(
            argument is None or argument.op == "get_attr"
            for argument in (*convolution.args[1:3], *node.args[1:5])
        )
        and None not in node.args[3:5]
    )


def _fused(module: torch.fx.GraphModule, node: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Weight and bias of the convolution that does both, computed in float64 on the host."""
    convolution = node.args[0]
    weight = _tensor(module, convolution.args[1])
    assert weight is not None
    kind, device = weight.dtype, weight.device
    bias = _tensor(module, convolution.args[2] if len(convolution.args) > 2 else None)
    scale, shift, mean, variance = (_tensor(module, argument) for argument in node.args[1:5])
    factor = _double(1.0, scale) / torch.sqrt(_double(0.0, variance) + node.args[7])
    fused = _double(0.0, weight) * factor.reshape(-1, *[1] * (weight.dim() - 1))
    moved = (_double(0.0, bias) - _double(0.0, mean)) * factor + _double(0.0, shift)
    return fused.to(device, kind), moved.to(device, kind)


def _tensor(module: torch.nn.Module, node: Any) -> torch.Tensor | None:
    if node is None:
        return None
    owner, _, name = str(node.target).rpartition(".")
    found: torch.Tensor = getattr(module.get_submodule(owner), name)
    return found.detach()


def _double(otherwise: float, tensor: torch.Tensor | None) -> torch.Tensor:
    return torch.tensor(otherwise, dtype=torch.float64) if tensor is None else tensor.cpu().double()
