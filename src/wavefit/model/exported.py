"""What an export gives: the file that was written, moved to its name whole, and the proof that it is right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from wavefit.errors import InputError
from wavefit.model.prove import Proof
from wavefit.schema import Struct, TensorSpec

Say = Callable[[str], None]


class Exported(Struct, frozen=True, kw_only=True):
    """An ONNX file that was written, and the proof that it answers as its source does."""

    path: str
    source: str
    exporter: str  # "dynamo", "torchscript", "torchscript, reopened", "reopened"
    opset: int
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    notes: tuple[str, ...] = ()  # what was changed, what failed first and why
    proofs: tuple[Proof, ...] = ()
    seed: int = 0
    exported_program: str | None = None

    @property
    def summary(self) -> str:
        """What was made and how far it is from its source, for people."""
        lines = [f"{self.path}: opset {self.opset}, by {self.exporter}", *self.notes]
        for proof in self.proofs:
            shapes = ", ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in proof.shapes.items())
            for output in proof.outputs:
                shape = "x".join(map(str, output.shape)) or "scalar"
                lines.append(
                    f"  batch {proof.batch}: {shapes} -> {output.output} {shape}: relative L2 {output.rel_l2:.1e}, "
                    f"largest difference {output.max_abs:.1e} (allowed: relative L2 {output.bound:g})"
                )
        return "\n".join(lines)


def folder_of(out: Path) -> Path:
    folder = out.absolute().parent
    if not folder.is_dir():
        raise InputError(f"the folder {folder} does not exist", "make it first")
    return folder


def check_out(out: Path) -> None:
    """Refuses an output that could not be written.

    Raises:
        InputError: it is not named .onnx, or is a folder.
    """
    if out.suffix.lower() != ".onnx":
        raise InputError(f"--output {out} is not named .onnx", "give it that ending")
    if out.is_dir():
        raise InputError(f"--output {out} is a directory", "give the path of a file")


def first_reason(proofs: Sequence[Proof]) -> str:
    """Why the first failed proof failed, "" where all passed."""
    return next((proof.reason for proof in proofs if not proof.passed), "")


def publish(draft: Path, out: Path) -> None:
    """Moves a finished file, and its weights first where they are a file of their own, to its name at once."""
    data = draft.with_name(draft.name + ".data")
    if data.exists():
        data.replace(out.with_name(out.name + ".data"))
    draft.replace(out)
