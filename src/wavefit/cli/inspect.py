"""``wavefit inspect``: what a model is and what it costs."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wavefit.cli._options import Json, ModelArgument, ShapeOptions, grouped
from wavefit.schema import Cost, Model, NodeCost, TensorSpec

if TYPE_CHECKING:
    from rich.console import RenderableType

_COSTLIEST = 8  # nodes shown without --nodes
_TYPES = 12  # operator types shown


@grouped
def command(
    model: ModelArgument,
    shapes: ShapeOptions,
    batch: Annotated[
        int | None, typer.Option(help="Cost at this batch [default: 1, or the fixed one].")
    ] = None,
    nodes: Annotated[bool, typer.Option("--nodes", help="Show the cost of every node.")] = False,
    json: Json = False,
) -> None:
    """Show a model's inputs, outputs, operators, parameters, FLOPs and bytes.

    A multiply-add counts as 2 FLOPs. The cost needs a size for every symbolic dimension (--size); without
    one the rest is shown all the same.
    """
    from wavefit.cli._resolve import resolve_model
    from wavefit.cli._stop import stoppable
    from wavefit.schema import pretty

    with stoppable("stopped"), tempfile.TemporaryDirectory(prefix="wavefit-") as workdir:
        found = resolve_model(model, shapes.specs(), Path(workdir))
        costs = _cost(found, batch, shapes.sizes())
    if json:
        typer.echo(pretty({"model": found, "cost": costs}))
    else:
        _show(found, costs, nodes)


def _cost(model: Model, batch: int | None, sizes: dict[str, int]) -> Cost | None:
    """None where a symbolic dimension has no size yet."""
    from wavefit.model.cost import cost
    from wavefit.model.shapes import bind, fixed_batch, missing_sizes

    if missing_sizes(model, sizes):
        return None
    return cost(model, bind(model, (fixed_batch(model) or 1) if batch is None else batch, sizes))


def _show(model: Model, costs: Cost | None, every_node: bool) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    console.print(_facts(model, costs))
    console.print()
    console.print(_tensors(model, costs))
    console.print()
    console.print(_types(model))
    if costs is not None:
        console.print()
        console.print(_nodes(costs, every_node))
        if costs.unknown:
            console.print(f"\nnot counted: {', '.join(costs.unknown)}", markup=False)


def _facts(model: Model, costs: Cost | None) -> RenderableType:
    rows = {
        "model": model.name,
        **({"precision": model.precision} if model.precision != "fp32" else {}),
        "made by": model.producer or "unknown",
        "opset": f"{model.opset} (IR version {model.ir_version})",
        "dynamic": ", ".join(model.dynamic) or "none: every dimension is fixed",
        "batch": model.batch or "fixed",
        "parameters": f"{_count(model.parameters)}, {_bytes(model.weight_bytes)} stored",
        **_sums(model, costs),
    }
    if model.external:
        rows["weights in"] = ", ".join(model.external)
    return _grid(list(rows.items()))


def _sums(model: Model, costs: Cost | None) -> dict[str, str]:
    if costs is None:
        from wavefit.model.shapes import missing_sizes

        sizes = " ".join(f"--size {name}=N" for name in missing_sizes(model))
        return {"FLOPs": f"unknown without sizes, give them: {sizes}"}
    known = " (of the nodes that are known)" if costs.unknown else ""
    return {
        "FLOPs": f"{_count(costs.flops)} ({_count(costs.flops // 2)} MAC){known}",
        "bytes moved": f"{_bytes(costs.bytes)}{known}",
    }


def _tensors(model: Model, costs: Cost | None) -> RenderableType:
    bound = costs.shapes if costs is not None else {}
    rows = [_tensor("input", spec, bound.get(spec.name)) for spec in model.inputs]
    rows += [_tensor("output", spec, None) for spec in model.outputs]
    return _grid(rows)


def _tensor(what: str, spec: TensorSpec, bound: tuple[int, ...] | None) -> tuple[str, ...]:
    from wavefit.routes.session import show

    declared = show(spec.shape) if spec.shape is not None else "any rank"
    concrete = show(bound) if bound is not None else declared
    return what, spec.name, spec.dtype, declared, "" if concrete == declared else f"costed at {concrete}"


def _types(model: Model) -> RenderableType:
    types = list(model.nodes_by_type.items())
    shown = [f"{kind} {count}" for kind, count in types[:_TYPES]]
    if len(types) > _TYPES:
        shown.append(f"{len(types) - _TYPES} more types")
    return _grid([(f"{model.nodes} nodes", ", ".join(shown))])


def _nodes(costs: Cost, every_node: bool) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("node" if every_node else "costliest nodes", overflow="fold")
    table.add_column("operator", no_wrap=True)
    for heading in ("FLOPs", "share", "bytes"):
        table.add_column(heading, justify="right", no_wrap=True)
    ranked = sorted(costs.nodes, key=lambda node: -(node.flops or 0))[:_COSTLIEST]
    for node in costs.nodes if every_node else ranked:
        table.add_row(Text(node.name), Text(node.op), *_figures(node, costs.flops))
    return table


def _figures(node: NodeCost, total: int) -> tuple[str, str, str]:
    if node.flops is None:
        return "unknown", "", "unknown" if node.bytes is None else _bytes(node.bytes)
    share = f"{100 * node.flops / total:.1f} %" if total else ""
    return _count(node.flops), share, "unknown" if node.bytes is None else _bytes(node.bytes)


def _grid(rows: list[tuple[str, ...]]) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2, 0, 0))
    for cells in rows:
        table.add_row(*(Text(cell) for cell in cells))
    return table


def _count(number: int) -> str:
    for power, suffix in ((12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if number >= 10**power:
            return f"{number / 10**power:.2f} {suffix}"
    return str(number)


def _bytes(number: int) -> str:
    for power, suffix in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if number >= 1 << power:
            return f"{number / (1 << power):.2f} {suffix}"
    return f"{number} B"
