"""What the PyTorch routes share: a session over an exported program.

For each set of input shapes there is one runner, made at the first run with them: it owns the buffers on the host and
the device and, by mode, a compiled function and a captured graph. Another shape compiles and captures again; a graph
is never replayed for a shape that it was not captured for.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch

from wavefit.routes import _torch_audit as audit
from wavefit.routes._torch_errors import translated
from wavefit.routes._torch_program import Program
from wavefit.routes._torch_shapes import check_shapes
from wavefit.routes.session import Arrays, Session
from wavefit.schema import Model, NodeTime, Placement, ProviderShare

Mode = Literal["eager", "graph", "compile"]
Call = Callable[..., Sequence[torch.Tensor]]

_WARM_UPS = (
    3  # before a capture, as PyTorch's notes on CUDA graphs ask; the first also searches for convolutions
)
_TIMED_RUNS = 10
_CPU_OPS_SHOWN = 10
_MOST_SHAPES = 32  # whose buffers and graphs are kept: a text model may meet hundreds
_PIECE_BYTES = 4 << 20


class TorchSession(Session):
    """Runs an exported program on its device.

    Args:
        model: its inputs and outputs.
        program: on the device, in its precision and layout.
        mode: "eager" op by op; "graph" captured once a shape and replayed; "compile" compiled by torch.compile with
            frozen weights, then captured. Without a GPU nothing is captured.
        autotune: let torch.compile try many kernels for each op: minutes a shape.
    """

    def __init__(self, model: Model, program: Program, mode: Mode, autotune: bool = False) -> None:
        super().__init__(model.inputs, model.outputs)
        self._program = program
        self._mode = mode
        self._autotune = autotune
        self._on_gpu = program.device.type == "cuda"
        self._runners: dict[tuple[tuple[int, ...], ...], Runner] = {}
        self._last: Runner | None = None
        self._pool: Any = None
        if self._on_gpu:
            torch.cuda.reset_peak_memory_stats(program.device)

    def _run_impl(self, inputs: Mapping[str, np.ndarray]) -> Arrays:
        arrays = [inputs[spec.name] for spec in self.inputs]
        shapes = tuple(array.shape for array in arrays)
        runner = self._runners.get(shapes)
        if runner is None:
            if len(self._runners) == _MOST_SHAPES:
                del self._runners[next(iter(self._runners))]
            runner = self._runners[shapes] = self._make_runner(arrays)
        self._last = runner
        with translated(f"PyTorch failed while running ({self._mode})"):
            outputs = runner.run(arrays)
        return dict(zip((spec.name for spec in self.outputs), outputs, strict=True))

    def _make_runner(self, arrays: Sequence[np.ndarray]) -> Runner:
        check_shapes(self._program, [array.shape for array in arrays])
        runner = Runner(self._program.call, self._program.device, arrays)
        if self._mode == "compile":
            with translated("torch.compile failed", "use another mode of this route"):
                runner.call = compiled(self._program.call, runner.device_inputs, self._autotune)
        if self._mode != "eager" and self._on_gpu:
            self._pool = self._pool or torch.cuda.graph_pool_handle()
            with translated("the model could not be captured as a graph", "use another mode of this route"):
                runner.capture(self._pool)
        return runner

    def _placement_impl(self) -> Placement | None:
        """Ops by device from a run op by op, time from runs as they are measured."""
        if self._last is None:
            return None
        with translated("PyTorch failed while the placement was read"), torch.no_grad():
            ops = audit.record(self._program.call, self._last.device_inputs)
            seconds = self._last.time_on_device()
        here = self._program.device.type
        count = Counter(op.device for op in ops)
        shares = [
            ProviderShare(
                provider=provider_name(device), nodes=nodes, time_s=seconds if device == here else None
            )
            for device, nodes in count.most_common()
        ]
        return Placement(providers=tuple(shares), cpu_nodes=_cpu_nodes(ops), source="torch")

    def device_time_s(self) -> float | None:
        """Mean time of the last shape's run on the device alone, without copies from and to the host."""
        return self._last.time_on_device() if self._last else None

    def _device_peak_bytes_impl(self) -> int | None:
        """What PyTorch's allocator took from the driver at most: weights, buffers, workspaces and its own slack."""
        return torch.cuda.max_memory_reserved(self._program.device) if self._on_gpu else None

    def _close_impl(self) -> None:
        self._runners.clear()
        self._last = None
        if self._on_gpu:
            torch.cuda.empty_cache()


class Runner:
    """One set of shapes: host to device, run, device to host.

    Args:
        call: tensors on the device to tensors on the device.
        device: where it runs.
        arrays: the first inputs; later ones have their shapes and types.
    """

    def __init__(self, call: Call, device: torch.device, arrays: Sequence[np.ndarray]) -> None:
        self.call = call
        self.device = device
        self._on_gpu = device.type == "cuda"
        host = [self._host_like(torch.from_numpy(np.ascontiguousarray(array))) for array in arrays]
        self.device_inputs = [torch.empty_like(tensor, device=device) for tensor in host]
        self._pieces = [_pieces(*pair) for pair in zip(host, self.device_inputs, strict=True)]
        self._results: list[torch.Tensor] = []
        self._graph: Any = None
        self._captured: Sequence[torch.Tensor] = ()
        self._upload(arrays)

    def run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Runs one batch and waits; the arrays given back are the caller's own."""
        self._upload(arrays)
        outputs = self.launch()
        if [tensor.shape for tensor in self._results] != [output.shape for output in outputs]:
            self._results = [self._host_like(output) for output in outputs]
        for result, output in zip(self._results, outputs, strict=True):
            result.copy_(output, non_blocking=True)
        self._wait()
        return [result.numpy().copy() for result in self._results]

    def launch(self) -> Sequence[torch.Tensor]:
        """Starts the work on the device's inputs; a graph's outputs are overwritten by the next launch."""
        if self._graph is not None:
            self._graph.replay()
            return self._captured
        with torch.no_grad():
            return self.call(*self.device_inputs)

    def capture(self, pool: Any) -> None:
        """Records the work as a graph. Graphs of one pool share memory: they never run at the same time here."""
        stream = torch.cuda.Stream(self.device)
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UPS):
                self.launch()
        torch.cuda.current_stream(self.device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            captured = self.launch()
        self._graph, self._captured = graph, captured

    def time_on_device(self) -> float:
        """Mean seconds of one launch, from device events; from the clock where the device is the CPU."""
        self.launch()
        self._wait()
        if not self._on_gpu:
            start = time.perf_counter()
            for _ in range(_TIMED_RUNS):
                self.launch()
            return (time.perf_counter() - start) / _TIMED_RUNS
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(_TIMED_RUNS):
            self.launch()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1e3 / _TIMED_RUNS

    def _upload(self, arrays: Sequence[np.ndarray]) -> None:
        """Piece by piece: while one travels to the device, the next is copied into page-locked memory."""
        for array, pieces in zip(arrays, self._pieces, strict=True):
            flat = np.ascontiguousarray(array).reshape(-1)
            for part, staging, target in pieces:
                if flat.flags.writeable:
                    staging.copy_(torch.from_numpy(flat[part]))  # with all threads, NumPy takes one
                else:  # PyTorch warns of read-only arrays
                    np.copyto(staging.numpy(), flat[part])
                target.copy_(staging, non_blocking=True)

    def _host_like(self, tensor: torch.Tensor) -> torch.Tensor:
        return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=self._on_gpu)

    def _wait(self) -> None:
        if self._on_gpu:
            torch.cuda.current_stream(self.device).synchronize()


def _pieces(host: torch.Tensor, target: torch.Tensor) -> list[tuple[slice, torch.Tensor, torch.Tensor]]:
    """Flat views of a buffer on the host and on the device, cut where the other side may start early."""
    flat_host, flat_target = host.view(-1), target.view(-1)
    step = max(1, _PIECE_BYTES // host.element_size())
    parts = [slice(start, start + step) for start in range(0, max(1, host.numel()), step)]
    return [(part, flat_host[part], flat_target[part]) for part in parts]


def compiled(call: Call, inputs: Sequence[torch.Tensor], autotune: bool) -> Call:
    """Compiles for exactly these shapes, weights frozen into the code, the whole program in one piece.

    Raises:
        RuntimeError: a part of the program could not be compiled (nothing falls back to running op by op).
    """
    options: dict[str, Any] = (
        torch._inductor.list_mode_options("max-autotune-no-cudagraphs") if autotune else {}
    )
    function = torch.compile(call, fullgraph=True, dynamic=False, options=options or None)
    # Freezing is read while dynamo traces, so it has to be set around the first call.
    with torch._inductor.config.patch(freezing=True), torch.no_grad():
        function(*inputs)
    return function


def provider_name(device_type: str) -> str:
    """ "hip", "cuda", "cpu": who ran a node."""
    return "hip" if device_type == "cuda" and torch.version.hip else device_type


def _cpu_nodes(ops: Sequence[audit.Op]) -> tuple[NodeTime, ...]:
    on_cpu = [(index, op.name) for index, op in enumerate(ops) if op.device == "cpu"]
    return tuple(
        NodeTime(name=f"{name}_{index}", op=name, provider="cpu") for index, name in on_cpu[:_CPU_OPS_SHOWN]
    )
