"""The graph as ONNX Runtime's CPU provider runs it, as far as that changes which tensors exist.

From onnxruntime/core/optimizer (conv_bn_fusion, conv_activation_fusion, conv_add_act_fusion, nchwc_transformer): a
batch normalisation or activation behind a Conv is folded into it; an Add of a Conv's output and an earlier tensor is
done by the Conv, in that tensor's place; Convs and what lies between them keep their tensors in blocks of channels,
and where another operator's tensor meets them it is copied into the other layout.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from wavefit.plan.liveness import SUMMED
from wavefit.plan.trace import Step, Trace

_FOLDED = ("BatchNormalization", "Clip", "HardSigmoid", "LeakyRelu", "Relu", "Sigmoid", "Tanh")
_POOLS = ("AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool")
_KEEP = ("Add", "Concat", "Sum", *_FOLDED)  # run on blocks where all of their inputs are
_LEAST_CHANNELS = 8  # a Conv of fewer input channels (an image's) reads the plain layout


@dataclass
class _Rewrite:
    trace: Trace
    readers: Counter[str]
    steps: list[Step] = field(default_factory=list)
    maker: dict[str, int] = field(default_factory=dict)
    blocked: set[str] = field(default_factory=set)
    bytes: dict[str, int | None] = field(default_factory=dict)

    def add(self, step: Step) -> None:
        for name in step.outputs:
            self.maker[name] = len(self.steps)
        self.steps.append(step)

    def convolution(self, name: str) -> int | None:
        """The step that makes it, where that is a Conv and nothing else reads it."""
        index = self.maker.get(name)
        alone = self.readers[name] == 1 and name not in self.trace.outputs
        return index if index is not None and alone and self.steps[index].op in ("Conv", SUMMED) else None

    def merge(self, index: int, step: Step, other: str | None = None) -> None:
        into = self.steps[index]
        if other is not None:
            into = into._replace(op=SUMMED, inputs=(*into.inputs, other))
        self.steps[index] = into._replace(outputs=step.outputs)
        self.maker[step.outputs[0]] = index
        self.blocked.add(step.outputs[0])


def as_run(trace: Trace) -> Trace:
    """The steps of the CPU provider, in order, with its copies between layouts; a graph without Conv is unchanged."""
    if not any(step.op == "Conv" for step in trace.steps):
        return trace
    readers = Counter(name for step in trace.steps for name in step.inputs)
    work = _Rewrite(trace, readers, bytes=dict(trace.bytes))
    for step in trace.steps:
        if not _merged(work, step):
            _place(work, step)
    return replace(trace, steps=tuple(work.steps), bytes=work.bytes)


def _merged(work: _Rewrite, step: Step) -> bool:
    """Whether the step went into the Conv before it."""
    if step.op in _FOLDED and len(step.outputs) == 1 and len(step.inputs) == 1:
        index = work.convolution(step.inputs[0])
        if index is not None:
            work.merge(index, step)
        return index is not None
    if step.op not in ("Add", "Sum") or len(step.inputs) != 2:
        return False
    if len({work.bytes.get(name) for name in step.inputs}) != 1:
        return False
    last = max(step.inputs, key=lambda name: work.maker.get(name, -1))
    other = next(name for name in step.inputs if name != last)
    index = work.convolution(last)
    if index is None or work.steps[index].op == SUMMED or work.maker.get(other, -1) >= index:
        return False
    if other not in work.blocked:
        return False
    work.merge(index, step, other)
    return True


def _place(work: _Rewrite, step: Step) -> None:
    shapes = [work.trace.shapes.get(name, ()) for name in step.inputs]
    if step.op == "Conv":
        small = len(shapes[0]) > 1 and shapes[0][1] < _LEAST_CHANNELS
        work.add(step if small else _copied(work, step, blocks=True))
        work.blocked.update(step.outputs)
        return
    here = [name in work.blocked for name in step.inputs]
    if step.op in (*_POOLS, *_KEEP) and here and all(here):
        work.add(step)
        work.blocked.update(step.outputs)
        return
    work.add(_copied(work, step, blocks=False))


def _copied(work: _Rewrite, step: Step, blocks: bool) -> Step:
    """The step reading its inputs in the layout that it needs; a copy is made once and kept for later readers."""
    names = []
    for name in step.inputs:
        if (name in work.blocked) == blocks or (blocks and len(work.trace.shapes.get(name, ())) != 4):
            names.append(name)
            continue
        copy = f"{name} in {'blocks' if blocks else 'rows'}"
        if copy not in work.maker:
            work.bytes[copy] = work.bytes.get(name)
            work.add(step._replace(op="Reorder", inputs=(name,), weights=(), outputs=(copy,)))
        names.append(copy)
    return step._replace(inputs=tuple(names))
