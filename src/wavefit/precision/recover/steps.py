"""Weights that are trained in steps of their own size.

Adam's steps are as large as the learning rate, whatever the size of a weight; the channels of one trained net differ
by a factor of 1,000 at times. Here a weight is ``start + size * step``, and the steps are trained: a learning rate of
0.001 changes every weight by about a thousandth of its channel's size (as the relative steps of Shazeer and Stern,
"Adafactor", 2018, section 8, there by tensor).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch

_SMALLEST = 0.01  # share of the tensor's size that a value of a vector has at least; the size where all are 0
_SMALLEST_CHANNEL = 1e-4  # the same of a channel

State = dict[str, torch.Tensor]


class Steps:
    """The float parameters of a module, and how far each has gone from where it started."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._weights = {
            name: weight for name, weight in module.named_parameters() if weight.is_floating_point()
        }
        self._start = {name: weight.detach().clone() for name, weight in self._weights.items()}
        self._size = {name: _size(weight) for name, weight in self._start.items()}
        self._steps = {
            name: torch.zeros_like(weight, requires_grad=True) for name, weight in self._start.items()
        }

    def parameters(self) -> Iterable[torch.Tensor]:
        """What an optimizer trains."""
        return self._steps.values()

    def weights(self) -> Mapping[str, torch.Tensor]:
        """The weights as they are now, through which gradients reach the steps."""
        return {name: start + self._size[name] * self._steps[name] for name, start in self._start.items()}

    def write(self) -> None:
        """Puts the weights as they are now into the module."""
        self.load(self.weights())

    def load(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Puts other weights into the module; the steps stay."""
        with torch.no_grad():
            for name, weight in self._weights.items():
                weight.copy_(weights[name])

    def copy(self) -> State:
        """The module's weights, on the host."""
        return {name: weight.detach().cpu().clone() for name, weight in self._weights.items()}

    def state(self) -> State:
        return {name: step.detach().cpu().clone() for name, step in self._steps.items()}

    def restore(self, state: Mapping[str, torch.Tensor]) -> None:
        with torch.no_grad():
            for name, step in self._steps.items():
                step.copy_(state[name])
        self.write()


def _size(weight: torch.Tensor) -> torch.Tensor:
    """The root mean square by output channel; by value where the tensor is a vector."""
    whole = weight.square().mean().sqrt()
    if not whole > 0:
        return torch.full_like(weight, _SMALLEST)
    if weight.dim() < 2:
        return torch.maximum(weight.abs(), _SMALLEST * whole)
    own = weight.square().mean(list(range(1, weight.dim())), keepdim=True).sqrt()
    return torch.maximum(own, _SMALLEST_CHANNEL * whole)
