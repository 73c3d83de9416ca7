"""Reopening: an ONNX file with a frozen batch becomes one with a dynamic batch, where its graph allows."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wavefit.errors import InputError
from wavefit.model import load, prove, reopen_constants
from wavefit.model.export_plan import BATCH, Options
from wavefit.model.exported import Exported, Say, check_out, first_reason, folder_of, publish
from wavefit.model.inputs import random_array
from wavefit.model.prove import BATCHES, Case
from wavefit.model.reopen_graph import PRIME, Graph, carries, infer, label
from wavefit.model.reopen_rules import RULES
from wavefit.schema import Model

if TYPE_CHECKING:
    import numpy as np

_MAX_ROUNDS = 1000
_FORGETS = ("Shape", "Size", "Constant")  # nodes whose output has no batch by their nature


def reopen(path: Path, options: Options, out: Path, say: Say) -> Exported:
    """Writes ``out``, a copy of ``path`` whose first dimension is symbolic.

    Proven at batches 1, 2, 3 and 5: the copy must answer as the original does on chunks of its frozen batch, stacked.

    Raises:
        InputError: the batch is dynamic already, or the graph does not allow it; the message names the node.
    """
    import onnx

    check_out(out)
    if options.inputs or options.outputs or options.dynamic or options.opset:
        raise InputError(
            "--input, --output-name, --dynamic and --opset are for PyTorch models",
            "an ONNX file is only reopened",
        )
    model = load.load(path)
    frozen = _frozen_batch(model)
    batched = tuple(
        bool(spec.shape) and spec.shape is not None and spec.shape[0] == frozen for spec in model.inputs
    )
    say(f"reopening {model.name}, frozen at batch {frozen}")
    proto = onnx.load(str(path))
    batched = _align(proto, model, batched)
    cases = _cases(model, frozen, batched, options.seed)
    changes = unfreeze(proto, frozen, batched)
    lost = _lost_outputs(proto, batched)
    if lost:
        where = culprit(proto, frozen) or f"output {lost[0]!r} has no batch"
        raise InputError(
            f"{path} cannot be reopened: {where}", "export it again from its source with a dynamic batch"
        )
    with tempfile.TemporaryDirectory(prefix=".wavefit-", dir=folder_of(out)) as folder:
        draft = Path(folder) / out.name
        _save(proto, draft, model.weight_bytes)
        say("proving the reopened file at batches " + ", ".join(map(str, BATCHES)))
        proofs = prove.prove(draft, cases)
        if first_reason(proofs):
            where = culprit(proto, frozen)
            raise InputError(
                f"{path} cannot be reopened: "
                + "; ".join(part for part in (where, first_reason(proofs)) if part),
                "export it again from its source with a dynamic batch",
            )
        made = load.load(draft)
        publish(draft, out)
    return Exported(
        path=str(out.absolute()),
        source=str(path),
        exporter="reopened",
        opset=made.opset,
        inputs=made.inputs,
        outputs=made.outputs,
        notes=(f"the batch was frozen at {frozen}", *changes, *prove.doubts(proofs)),
        proofs=proofs,
        seed=options.seed,
    )


def _frozen_batch(model: Model) -> int:
    if model.batch is not None:
        raise InputError(f"{model.path} has a dynamic batch already ({model.batch})", "use it as it is")
    firsts = [spec.shape[0] for spec in model.inputs if spec.shape]
    if not firsts or not isinstance(firsts[0], int):
        raise InputError(f"{model.path} has no input with a batch on axis 0", "nothing can be reopened")
    return firsts[0]


def _align(proto: Any, model: Model, batched: Sequence[bool]) -> tuple[bool, ...]:
    """The same flags in the order of the file's inputs, which may list initializers as well."""
    flags = {spec.name: flag for spec, flag in zip(model.inputs, batched, strict=True)}
    stored = {tensor.name for tensor in proto.graph.initializer}
    kept = [entry for entry in proto.graph.input if entry.name not in stored]
    del proto.graph.input[:]
    proto.graph.input.extend(kept)
    return tuple(flags[entry.name] for entry in kept)


def unfreeze(proto: Any, batch: int, batched: Sequence[bool]) -> tuple[str, ...]:
    """Reopens a model in place: its nodes, then the first dimensions of its inputs and outputs.

    Args:
        proto: the onnx.ModelProto.
        batch: the frozen batch.
        batched: for each input, whether its first dimension is the batch.

    Returns:
        What was changed, one sentence a node.
    """
    reopen_constants.fold(proto)
    graph = Graph(proto, batch, batched, {})
    changes: list[str] = []
    done: set[str] = set()
    for _ in range(_MAX_ROUNDS):
        graph.shapes = infer(proto, PRIME, batched)
        found = _round(graph, done)
        if not found:
            break
        changes += found
    _open_ends(graph, batched)
    return tuple(changes)


def _round(graph: Graph, done: set[str]) -> list[str]:
    """Reopens every frozen node whose inputs are known to be right; those behind it wait for the next round."""
    stale: set[str] = set()
    changes = []
    for node in list(graph.model.graph.node):
        if stale.intersection(node.input):
            stale.update(node.output)
            continue
        rule = RULES.get(node.op_type)
        change = rule(graph, node) if rule and node.output[0] not in done else None
        if change:
            changes.append(change)
            done.add(node.output[0])
            stale.update(node.output)
    return changes


def _open_ends(graph: Graph, batched: Sequence[bool]) -> None:
    """Names the batch in inputs and outputs; what was inferred before is no longer true."""
    del graph.model.graph.value_info[:]
    for entry, flag in zip(graph.model.graph.input, batched, strict=True):
        if flag:
            entry.type.tensor_type.shape.dim[0].dim_param = BATCH
    for entry in graph.model.graph.output:
        shape = graph.shapes.get(entry.name)
        for axis, dim in enumerate(entry.type.tensor_type.shape.dim):
            size = shape[axis] if shape and len(shape) == len(entry.type.tensor_type.shape.dim) else None
            if size is None:
                dim.Clear()
            elif size == PRIME:
                dim.dim_param = BATCH
            elif size % PRIME == 0:
                dim.dim_param = f"{BATCH}*{size // PRIME}"


def _lost_outputs(proto: Any, batched: Sequence[bool]) -> list[str]:
    """Outputs that are known not to have the batch on their first axis."""
    known = infer(proto, PRIME, batched)
    return [
        entry.name for entry in proto.graph.output if entry.name in known and carries(known[entry.name]) != 0
    ]


def culprit(proto: Any, batch: int) -> str:
    """The first node that loses the batch, "" where none is found. For a model with symbolic or frozen first
    dimensions."""
    batched = [
        bool(dims) and (dims[0].dim_param != "" or dims[0].dim_value == batch)
        for dims in (entry.type.tensor_type.shape.dim for entry in proto.graph.input)
    ]
    known = infer(proto, PRIME, batched)
    for node in proto.graph.node:
        axis = next((axis for name in node.input if (axis := carries(known.get(name))) is not None), None)
        if axis is None or node.op_type in _FORGETS:
            continue
        after = known.get(node.output[0])
        if after is None:
            return f"node {label(node)} does not fit another batch than {batch}"
        if carries(after) is None:
            return f"node {label(node)} froze the batch at {batch}: its output is {list(after)} for any batch"
        if node.op_type == "Reshape" and carries(after) != axis == 0:
            return f"node {label(node)} froze the batch at {batch}"
    return ""


def _cases(model: Model, frozen: int, batched: Sequence[bool], seed: int) -> tuple[Case, ...]:
    """What the original answers to chunks of its own batch, stacked; the last chunk is filled up with its own items."""
    import numpy as np

    session = _original(model)
    cases = []
    for batch in BATCHES:
        rng = np.random.default_rng(seed + batch)
        inputs = {}
        for spec in model.inputs:
            sizes = tuple(dim if isinstance(dim, int) else 64 for dim in spec.shape or ())
            flag = bool(sizes) and sizes[0] == frozen
            inputs[spec.name] = random_array(spec, (batch, *sizes[1:]) if flag else sizes, rng)
        cases.append(
            Case(batch=batch, inputs=inputs, expected=_stacked(session, model, inputs, frozen, batch))
        )
    return tuple(cases)


def _original(model: Model) -> Any:
    try:
        return prove.open_session(Path(model.path))
    except prove.runtime_errors() as error:
        raise InputError(f"{model.path}: ONNX Runtime cannot open it: {prove.first_line(error)}") from error


def _stacked(
    session: Any, model: Model, inputs: dict[str, np.ndarray], frozen: int, batch: int
) -> list[np.ndarray]:
    import numpy as np

    batched = {spec.name for spec in model.inputs if spec.shape and spec.shape[0] == frozen}
    parts: list[list[np.ndarray]] = []
    for start in range(0, batch, frozen):
        chunk = [(start + index) % batch for index in range(frozen)]
        feed = {name: array[chunk] if name in batched else array for name, array in inputs.items()}
        try:
            parts.append(session.run([spec.name for spec in model.outputs], feed))
        except prove.runtime_errors() as error:
            raise InputError(
                f"{model.path}: ONNX Runtime cannot run it: {prove.first_line(error)}"
            ) from error
    stacked = []
    for spec, pieces in zip(model.outputs, zip(*parts, strict=True), strict=True):
        if not pieces[0].ndim or pieces[0].shape[0] % frozen:
            raise InputError(
                f"{model.path} cannot be reopened: output {spec.name!r} of shape {list(pieces[0].shape)} has no batch "
                f"of {frozen} on axis 0",
            )
        times = pieces[0].shape[0] // frozen
        stacked.append(np.concatenate(pieces)[: batch * times])
    return stacked


def _save(proto: Any, draft: Path, weight_bytes: int) -> None:
    import onnx

    from wavefit.model.torch_export import EXTERNAL_BYTES

    if weight_bytes > EXTERNAL_BYTES:
        onnx.save(proto, str(draft), save_as_external_data=True, location=draft.name + ".data")
    else:
        onnx.save(proto, str(draft))
