"""A variant's file under a name that the user chose."""

from __future__ import annotations

from pathlib import Path

from msgspec import structs

from wavefit.model.exported import publish as move
from wavefit.model.load import load
from wavefit.precision import graph
from wavefit.schema import Variant


def publish(variant: Variant, out: Path) -> Variant:
    """Moves a variant's file to ``out``, and its weights to ``out.data`` where they are a file of their own.

    Args:
        variant: its file lies on the disk of ``out``.

    Returns:
        The variant with the file where it is now.

    Raises:
        OSError: it cannot be written.
    """
    draft = Path(variant.model.path)
    if variant.model.external:  # a file names its weights: they are to be called as it is
        import onnx_ir as ir

        model = ir.load(draft)
        draft = draft.parent / "published" / out.name
        graph.save(model, draft)
    described = structs.replace(
        load(draft), name=out.stem, path=str(out.absolute()), precision=variant.precision
    )
    move(draft, out)  # last: whoever is stopped before it has written nothing
    return structs.replace(variant, model=described)
