"""``wavefit recover``, in the child process that runs the user's module."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from wavefit.child.main import Reporter
from wavefit.errors import InputError
from wavefit.model import export, torch_source
from wavefit.model.export_plan import check_options, make_plan, named
from wavefit.model.exported import check_out, folder_of
from wavefit.model.foreign import require_torch
from wavefit.precision.recover import data
from wavefit.precision.recover.records import Recovered, Recovering

if TYPE_CHECKING:
    from wavefit.precision.recover.student import Student


def recover_job(payload: Recovering, say: Reporter) -> Recovered:
    """See :func:`recover`."""
    say.stage("recover")
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what makes cuBLAS repeat itself
    torch = require_torch()
    # The same seed gives the same weights; the warning of the few operators that cannot is of no use here.
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.mha.set_fastpath_enabled(False)
    return recover(payload, say)


def recover(payload: Recovering, say: Callable[[str], None]) -> Recovered:
    """Trains a module in its lower precision, keeps what is better on held-out items, and exports it.

    Raises:
        InputError: the model is no PyTorch module or cannot be run or exported; there is no data, or it does not fit.
    """
    out = Path(payload.output)
    check_out(out)
    folder_of(out)
    student = prepare(payload, say)
    trained = student.train(checkpoint_of(out), say)
    weights = out.with_suffix(".weights.pt")
    student.save(weights)
    source = torch_source.with_module(student.source, student.module)
    made = export.export_torch(source, payload.options, out, say, out.with_suffix(".pt2"))
    if not trained.stopped:
        checkpoint_of(out).unlink(missing_ok=True)
    return Recovered(
        precision=payload.precision,
        metric=student.data.metric_name,
        teacher=trained.teacher,
        before=trained.before,
        after=trained.after,
        improved=trained.improved,
        items=len(student.data.training),
        heldout=len(student.data.heldout),
        epochs=trained.epochs,
        stopped=trained.stopped,
        nothing_lost=trained.nothing_lost,
        weights=str(weights.absolute()),
        exported=made,
    )


def checkpoint_of(out: Path) -> Path:
    return out.with_suffix(".recover.pt")


def prepare(payload: Recovering, say: Callable[[str], None]) -> Student:
    """Everything up to the training: the module, its examples, and its answers in fp32.

    Raises:
        InputError: as :func:`recover`.
    """
    if payload.data.path is None:
        raise InputError(
            "recover trains on examples, and no --data is given",
            "give a folder of images, an .npz or an .npy",
        )
    if not torch_source.is_factory(payload.model):
        raise InputError(
            f"recover trains a PyTorch module, and {payload.model} names none",
            "write package.module:factory, as in resnet50:resnet50",
        )
    require_torch()
    from wavefit.precision.recover.student import Student

    source = named(torch_source.from_factory(payload.model, payload.options.inputs), payload.options)
    check_options(source, payload.options)
    say(f"running {source.name} in PyTorch")
    plan = make_plan(source, payload.options)
    return Student(plan, data.load(payload, plan), payload, say)
