"""A program run as it will run in a lower precision, with gradients."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from wavefit.errors import InputError
from wavefit.routes._torch_program import op_name

_MAX_HALF = 65504.0

# Operators that multiply and accumulate: which arguments are the factors, and where a weight's output channels lie.
_FACTORS = {
    **{f"conv{dims}": ((0, 1), 0) for dims in ("1d", "2d", "3d")},
    "linear": ((0, 1), 0),
    **{f"conv_transpose{dims}": ((0, 1), 1) for dims in ("1d", "2d", "3d")},
    **dict.fromkeys(("matmul", "mm", "bmm"), ((0, 1), -1)),
    **dict.fromkeys(("addmm", "baddbmm"), ((1, 2), -1)),
}


@dataclass(frozen=True)
class Way:
    """How a program is run.

    Args:
        precision: "fp32", "fp16" or "int8".
        keep: names of nodes that stay in fp32.
        autocast: fp16 by torch.autocast, as a GPU runs it; else emulated.
    """

    precision: str
    keep: frozenset[str] = frozenset()
    autocast: bool = False


class Lowered(torch.fx.Interpreter):
    """Runs a flat program in a lower precision.

    fp16: what a node reads and gives is rounded to half, its sums stay in fp32. int8: both factors of convolutions
    and matrix products are rounded to 8 bits, weights by channel and symmetric to -127 .. 127, activations by tensor
    to 0 .. 255 within the range that was observed. A batch normalisation behind a convolution scales whole channels,
    so the rounding is that of the folded weights.
    """

    def __init__(self, module: torch.fx.GraphModule, way: Way) -> None:
        super().__init__(module)
        self._way = way
        self._constant = _constants(module)
        self.ranges: dict[tuple[str, int], tuple[float, float]] = {}
        self._observing = False
        self._weights: Mapping[str, torch.Tensor] | None = None
        self.excess: torch.Tensor | float = 0.0  # of values past what half holds, in a training's run

    @property
    def uses_autocast(self) -> bool:
        return self._way.autocast

    def __call__(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        context: Any = contextlib.nullcontext()
        if self._way.autocast:
            context = torch.autocast(inputs[0].device.type, dtype=torch.float16, cache_enabled=False)
        with context:
            found: tuple[torch.Tensor, ...] = self.run(*inputs, enable_io_processing=False)
        return tuple(output.float() if output.is_floating_point() else output for output in found)

    @contextlib.contextmanager
    def observing(self) -> Iterator[None]:
        """Runs inside it are fp32, and the ranges of activations are taken anew."""
        self.ranges, self._observing = {}, True
        try:
            yield
        finally:
            self._observing = False

    @contextlib.contextmanager
    def training(self, weights: Mapping[str, torch.Tensor]) -> Iterator[None]:
        """Runs inside it use those weights, and what half cannot hold becomes its largest number and adds to excess."""
        self._weights, self.excess = weights, 0.0
        try:
            yield
        finally:
            self._weights = None

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        found = None if self._weights is None else self._weights.get(target)
        return super().get_attr(target, args, kwargs) if found is None else found

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        node = self._node
        if node.name in self._way.keep:
            return self._whole(target, args, kwargs)
        if self._way.precision == "int8":
            args = self._eight_bits(node, args)
        if self._way.precision != "fp16" or self._way.autocast or target is operator.getitem:
            return super().call_function(target, args, kwargs)
        args, kwargs = tree_map_only(torch.Tensor, self._half, (args, kwargs))
        return tree_map_only(torch.Tensor, self._half, super().call_function(target, args, kwargs))

    def run_node(self, node: torch.fx.Node) -> Any:
        self._node = node
        return super().run_node(node)

    def _whole(self, target: Any, args: Any, kwargs: Any) -> Any:
        if not self._way.autocast:
            return super().call_function(target, args, kwargs)
        args, kwargs = tree_map_only(
            torch.Tensor,
            lambda value: value.float() if value.dtype == torch.float16 else value,
            (args, kwargs),
        )
        with torch.autocast(_device(args), enabled=False):
            return super().call_function(target, args, kwargs)

    def _half(self, value: torch.Tensor) -> torch.Tensor:
        if value.dtype != torch.float32:
            return value
        rounded = value.half().float()
        if self._weights is not None:
            rounded = rounded.clamp(-_MAX_HALF, _MAX_HALF)
            self.excess = self.excess + (value.abs() * (2 / _MAX_HALF) - 1).relu().mean()
        return _Through.apply(value, rounded)

    def _eight_bits(self, node: torch.fx.Node, args: Any) -> Any:
        places, channel = _FACTORS.get(op_name(node.target), ((), 0))
        args = list(args)
        for place in places:
            value = args[place]
            if not isinstance(value, torch.Tensor) or value.dtype != torch.float32:
                continue
            if node.args[place] in self._constant:
                args[place] = value if self._observing else _by_channel(value, channel)
            elif self._observing:
                self._observe((node.name, place), value)
            else:
                args[place] = _by_tensor(value, *self.ranges[node.name, place])
        return tuple(args)

    def _observe(self, key: tuple[str, int], value: torch.Tensor) -> None:
        low, high = self.ranges.get(key, (0.0, 0.0))
        lowest, highest = torch.aminmax(value.detach())
        self.ranges[key] = (min(low, float(lowest)), max(high, float(highest)))


class _Through(torch.autograd.Function):
    """Gives the rounded value and passes the gradient to the value as it was."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, rounded: torch.Tensor) -> torch.Tensor:
        return rounded

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        return grads[0], None


def _by_channel(weight: torch.Tensor, axis: int) -> torch.Tensor:
    axis %= weight.dim()
    others = [each for each in range(weight.dim()) if each != axis]
    largest = weight.detach().abs().amax(others)
    scale = torch.where(largest > 0, largest, torch.ones_like(largest)) / 127
    zero = torch.zeros_like(scale, dtype=torch.int32)
    return torch.fake_quantize_per_channel_affine(weight, scale, zero, axis, -127, 127)


def _by_tensor(value: torch.Tensor, low: float, high: float) -> torch.Tensor:
    scale = (high - low) / 255 or 1.0
    return torch.fake_quantize_per_tensor_affine(value, scale, round(-low / scale), 0, 255)


def _constants(module: torch.fx.GraphModule) -> frozenset[torch.fx.Node]:
    """Nodes that depend on weights alone: a weight, and its views."""
    found: set[torch.fx.Node] = set()
    for node in module.graph.nodes:
        if node.op == "get_attr" or (
            node.op == "call_function" and node.all_input_nodes and found.issuperset(node.all_input_nodes)
        ):
            found.add(node)
    return frozenset(found)


def _device(args: Iterable[Any]) -> str:
    return next((value.device.type for value in args if isinstance(value, torch.Tensor)), "cpu")


def flat(program: Any) -> torch.fx.GraphModule:
    """The program as a function from flat inputs to a flat list, without torch.export's checks of inputs and types."""
    module = program.module()
    module.graph.set_codegen(torch.fx.graph.CodeGen())
    for node in list(module.graph.nodes):
        is_guard = node.op == "call_module" and "guard" in str(node.target)
        if (is_guard or op_name(node.target) == "_assert_tensor_metadata") and not node.users:
            module.graph.erase_node(node)
    return torch.fx.GraphModule(module, module.graph)


def kept_nodes(module: torch.fx.GraphModule, names: Iterable[str]) -> frozenset[str]:
    """The nodes of those names, and those of the submodules of those names ("layers.0.norm").

    Raises:
        InputError: there is neither.
    """
    nodes = [node for node in module.graph.nodes if node.op == "call_function"]
    found: set[str] = set()
    for name in names:
        matching = [node.name for node in nodes if node.name == name or name in _paths(node)]
        if not matching:
            parts = dict.fromkeys(path for node in nodes for path in _paths(node) if path)
            raise InputError(f"--keep {name}: the model has no such part", f"it has {', '.join(parts)}")
        found.update(matching)
    return frozenset(found)


def _paths(node: torch.fx.Node) -> tuple[str, ...]:
    return tuple(path for path, _ in (node.meta.get("nn_module_stack") or {}).values())
