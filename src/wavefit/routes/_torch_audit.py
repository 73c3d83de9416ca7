"""What a program really computes, where and in which type: every op below autocast is seen as it is dispatched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from wavefit.errors import RouteError
from wavefit.routes._torch_errors import translated
from wavefit.routes._torch_keep import in_fp32
from wavefit.routes._torch_program import HALF, Program, op_name

# What convolutions and matrix products are below autocast.
_HEAVY = frozenset(
    ["convolution", "mm", "bmm", "addmm", "baddbmm", "mv", "addmv", "_cudnn_rnn", "miopen_rnn"]
)


class Op(NamedTuple):
    name: str
    device: str  # "cuda", "cpu"
    dtype: torch.dtype | None  # of its first floating-point input
    kept: bool = False  # in a node that is to stay in fp32


class Recorder(TorchDispatchMode):
    """Keeps every op that computes: not views, not allocations."""

    def __init__(self) -> None:
        super().__init__()
        self.ops: list[Op] = []
        self.kept = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        made = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        if made and not func.is_view and not op_name(func).startswith(("empty", "_unsafe_view")):
            floats = [
                leaf
                for leaf in tree_leaves(args)
                if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
            ]
            kind = floats[0].dtype if floats else None
            self.ops.append(Op(op_name(func), made[0].device.type, kind, self.kept))
        return result


class _ByNode(torch.fx.Interpreter):
    """Runs a program node by node and tells the recorder which ones are kept."""

    def __init__(self, module: torch.fx.GraphModule, recorder: Recorder) -> None:
        super().__init__(module)
        self._recorder = recorder

    def run_node(self, node: torch.fx.Node) -> Any:
        self._recorder.kept = node.target is in_fp32
        try:
            return super().run_node(node)
        finally:
            self._recorder.kept = False


def record(call: Callable[..., Any], inputs: Sequence[torch.Tensor]) -> list[Op]:
    """Runs once and lists what was computed."""
    with Recorder() as recorder:
        call(*inputs)
    return recorder.ops


def trace(program: Program, shapes: Sequence[tuple[int, ...]]) -> list[Op]:
    """Lists what a run would compute, without computing it or taking memory."""
    with (
        translated("PyTorch could not trace the exported program"),
        FakeTensorMode(allow_non_fake_inputs=True),
    ):
        inputs = fake_inputs(program, shapes)
        with Recorder() as recorder:
            program.call_with(_ByNode(program.module, recorder).run, *inputs)
        return recorder.ops


def fake_inputs(program: Program, shapes: Sequence[tuple[int, ...]]) -> list[torch.Tensor]:
    nodes = [node for node in program.module.graph.nodes if node.op == "placeholder"]
    return [
        torch.empty(shape, dtype=node.meta["val"].dtype, device=program.device)
        for node, shape in zip(nodes, shapes, strict=True)
    ]


def check_precision(program: Program, ops: Sequence[Op]) -> None:
    """Raises:
    RouteError: a convolution or matrix product would run in fp32 where half precision was asked for and no node of
        the keep-list holds it, or all of them would.
    """
    if program.form.precision not in HALF:
        return
    heavy = [op for op in ops if op.name in _HEAVY and not op.kept]
    wrong = [op for op in heavy if op.dtype == torch.float32]
    if wrong or not heavy:
        what = f"{len(wrong)} of {len(heavy)} convolutions and matrix products run in fp32"
        kept = sum(op.kept for op in ops if op.name in _HEAVY)
        if kept:
            what += f", beside {kept} that are to stay in it"
        raise RouteError(
            f"autocast would not run this model in {program.form.precision}: {what}", "use --precision fp32"
        )
