"""Export: a PyTorch module, an exported program or a frozen ONNX file becomes an ONNX file with a dynamic batch.

The result is proven before it gets its name: nothing half-written or unproven is left behind.
"""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from wavefit.errors import InputError
from wavefit.model import prove, torch_export
from wavefit.model.export_plan import EXAMPLE_BATCH, Options, Plan, check_options, make_plan, named
from wavefit.model.exported import Exported, Say, check_out, first_reason, folder_of, publish
from wavefit.model.prove import Proof
from wavefit.model.torch_export import Attempt, Wanted
from wavefit.model.torch_source import TorchSource


def export_torch(
    source: TorchSource, options: Options, out: Path, say: Say, program: Path | None = None
) -> Exported:
    """Exports a module or program and proves the result at batches 1, 2, 3 and 5.

    Args:
        source: what to export.
        options: names, opset, dynamic axes.
        out: the .onnx file to write; weights over 1.8 GB go to ``out`` + ".data".
        say: progress for people.
        program: where to save the torch.export program as well, with the same dynamic sizes; None: nowhere.

    Raises:
        InputError: the module cannot run these inputs, or no exporter gave a file that answers as it does; the message
            names the guard or node in the way.
    """
    check_out(out)
    source = named(source, options)
    check_options(source, options)
    say(f"running {source.name} in PyTorch")
    plan = make_plan(source, options)
    with tempfile.TemporaryDirectory(prefix=".wavefit-", dir=folder_of(out)) as folder:
        draft = Path(folder) / out.name
        exporter, proofs, notes, made = _first_proven(plan, draft, say)
        if program is not None and made is not None:
            _save_program(made, Path(folder) / "program.pt2", program)
        result = _describe(plan, draft, exporter, proofs, notes)
        publish(draft, out)
    saved = str(program.absolute()) if program is not None and made is not None else None
    return _replaced(result, path=str(out.absolute()), exported_program=saved, seed=options.seed)


def _first_proven(plan: Plan, draft: Path, say: Say) -> tuple[str, tuple[Proof, ...], tuple[str, ...], Any]:
    """The dynamo exporter, then TorchScript, then TorchScript with its frozen shapes reopened."""
    notes = list(plan.notes)
    say("exporting with the dynamo exporter")
    first, proofs, why_first = _try(torch_export.dynamo, plan, draft, say)
    if not why_first:
        return "dynamo", proofs, tuple(notes), first.program
    if first.data_dependent:
        raise InputError(
            f"{plan.source.spec} decides by its input's values: {first.reason}; an ONNX file would hold one branch",
            "write the choice with torch.where or torch.cond",
        )
    notes.append(f"the dynamo exporter did not do it: {why_first}{_missing('; ')}")
    say(f"falling back to the TorchScript exporter: {why_first}")
    _clear(draft)
    second, proofs, why_second = _try(torch_export.torchscript, plan, draft, say)
    if not why_second:
        return "torchscript", proofs, tuple(notes), first.program
    if not second.reason:
        reopened = _reopened(plan, draft, say)
        if reopened is not None:
            proofs, changes = reopened
            notes += [f"the TorchScript exporter froze the batch: {why_second}", *changes]
            return "torchscript, reopened", proofs, tuple(notes), None
        why_second = _frozen_node(draft) or why_second
    raise InputError(
        f"{plan.source.spec}: neither exporter gave a right ONNX file; dynamo: {why_first}; TorchScript: {why_second}",
        _missing(),
    )


def _missing(before: str = "") -> str:
    """How to get the package that the dynamo exporter is made of; "" where it is there."""
    return f"{before}pip install onnxscript" if importlib.util.find_spec("onnxscript") is None else ""


def _try(
    exporter: Callable[[TorchSource, Wanted, Path], Attempt], plan: Plan, draft: Path, say: Say
) -> tuple[Attempt, tuple[Proof, ...], str]:
    """Runs an exporter and proves its file; the last value is "" or why that failed."""
    made = exporter(plan.source, plan.wanted, draft)
    if made.reason:
        return made, (), made.reason
    torch_export.name_sizes(draft, plan.wanted)
    say("proving the ONNX file at batches " + ", ".join(str(case.batch) for case in plan.cases))
    proofs = prove.prove(draft, plan.cases)
    return made, proofs, first_reason(proofs)


def _reopened(plan: Plan, draft: Path, say: Say) -> tuple[tuple[Proof, ...], tuple[str, ...]] | None:
    """Mends what TorchScript froze at the example's batch; None where that does not help."""
    import onnx

    from wavefit.model import reopen

    model = onnx.load(str(draft))
    changes = reopen.unfreeze(model, EXAMPLE_BATCH, tuple(0 in found for found in plan.wanted.axes))
    if not changes:
        return None
    mended = draft.with_name("reopened.onnx")
    onnx.save(model, str(mended))
    say("proving the reopened file")
    proofs = prove.prove(mended, plan.cases)
    if first_reason(proofs):
        return None
    mended.replace(draft)
    return proofs, changes


def _frozen_node(draft: Path) -> str:
    import onnx

    from wavefit.model import reopen

    return reopen.culprit(onnx.load(str(draft)), EXAMPLE_BATCH)


def _describe(
    plan: Plan, draft: Path, exporter: str, proofs: tuple[Proof, ...], notes: tuple[str, ...]
) -> Exported:
    from wavefit.model import load

    model = load.load(draft)
    return Exported(
        path=str(draft),
        source=plan.source.spec,
        exporter=exporter,
        opset=model.opset,
        inputs=model.inputs,
        outputs=model.outputs,
        notes=(*notes, *prove.doubts(proofs)),
        proofs=proofs,
    )


def _save_program(program: Any, draft: Path, out: Path) -> None:
    import torch

    with torch_export.quiet():
        torch.export.save(program, str(draft))
    draft.replace(out)


def _clear(draft: Path) -> None:
    for file in draft.parent.iterdir():
        file.unlink()


def _replaced(result: Exported, **changes: Any) -> Exported:
    import msgspec

    return msgspec.structs.replace(result, **changes)
