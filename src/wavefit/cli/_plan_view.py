"""How ``wavefit plan`` shows an outlook: tables and notes that fit on 80 columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from wavefit.plan.outlook import At, Outlook
from wavefit.plan.transfer import UTILISATION
from wavefit.report.figures import significant
from wavefit.schema import Figure

_COSTLIEST = 6
_UNKNOWN = "unknown"


def heading(answer: Outlook) -> Text:
    device = answer.device
    name = device.name or device.id
    facts = [name if name.startswith(device.id) else f"{device.id}, {name}"]
    facts += [device.gfx] if device.gfx and device.gfx not in facts[0] else []
    return Text(f"{answer.model} on {', '.join([*facts, _kind(answer)])}")


def _kind(answer: Outlook) -> str:
    if answer.device.kind == "cpu":
        return "CPU"
    kinds = {True: "integrated GPU", False: "discrete GPU", None: "GPU"}
    return kinds[answer.device.integrated]


def memory(answer: Outlook) -> RenderableType:
    headings = ("batch", "weights", "live", "workspace", "runtime", "buffers", "peak", "fits")
    rows = []
    for at in answer.batches:
        need = at.memory
        sizes = (need.weights_bytes, need.activations_bytes, need.workspace_bytes, need.base_bytes)
        peak = at.prediction.peak_bytes or need.peak_bytes
        fits = {True: "yes", False: "no", None: _UNKNOWN}[at.fits]
        rows.append((str(at.batch), *map(size, sizes), size(need.buffers_bytes), size(peak), fits))
    return _table(headings, rows)


def time(answer: Outlook) -> RenderableType:
    headings = ("batch", "compute", "memory", "launch", "transfer", "total", "items/s", "dominated by")
    rows = []
    for at in answer.batches:
        said = at.prediction
        parts = (said.compute_s, said.memory_s, said.launch_s, said.transfer_s, said.total_s)
        rate = at.batch / said.total_s if said.total_s else None
        shown = [about(part) if answer.absent else seconds(part) for part in parts]
        rows.append((str(at.batch), *shown, _rate(rate, answer.absent), at.dominated_by or _UNKNOWN))
    return _table(headings, rows)


def notes(answer: Outlook) -> RenderableType:
    """Where the figures come from, one line a fact."""
    first = answer.batches[0]
    rows = [
        *([("route", _route(answer))] if answer.absent else []),
        ("memory offered", _offered(answer)),
        ("largest batch", _largest(answer)),
        ("live", f"most at {first.memory.worst_node}" if first.memory.worst_node else "no nodes"),
        ("left out", "; ".join((*first.memory.unknown, *_uncosted(first))) or "nothing"),
        ("arithmetic", _figure(first.roof.peak)),
        ("bandwidth", _figure(first.roof.bandwidth)),
        ("launch", _launch(answer)),
        ("bound by", _bound(answer.batches)),
        ("transfer", _transfer(first)),
        *([("classic bound", _classic(first))] if first.transfer.classic_max_batch is not None else []),
        *[(f"{tile.memory} tile", _tile(tile.side, tile.bytes)) for tile in answer.tiles],
    ]
    grid = Table.grid(padding=(0, 2, 0, 0))
    for name, text in rows:
        grid.add_row(Text(name, no_wrap=True), Text(text))
    return grid


def nodes(answer: Outlook) -> RenderableType | None:
    """The slowest nodes at the first batch; None where no node's time is known."""
    at = answer.batches[0]
    ranked = sorted(at.roof.nodes, key=lambda node: -(node.total_s or 0))[:_COSTLIEST]
    if not at.roof.total_s:
        return None
    say = about if answer.absent else seconds
    rows = [
        (_short(node.name), node.op, say(node.total_s), _percent(node.total_s, at.roof.total_s), node.bound or "")
        for node in ranked
    ]  # fmt: skip
    return _table((f"slowest at batch {at.batch}, predicted", "operator", "time", "share", "bound by"), rows)


def _route(answer: Outlook) -> str:
    said = "given with --route" if answer.route_given else "assumed, since this GPU is not in this machine"
    return f"{answer.route}, {said}: which routes can run it is known where the GPU is"


def _offered(answer: Outlook) -> str:
    ask = "; say it with --memory GIB" if answer.budget.bytes is None else ""
    return f"{size(answer.budget.bytes)}: {answer.budget.source}{ask}"


def _largest(answer: Outlook) -> str:
    if answer.budget.bytes is None:
        return _UNKNOWN
    if answer.largest_batch is None:
        return "the model's batch is fixed"
    if answer.largest_batch == 0:
        return "not even one item fits (predicted)"
    return f"{answer.largest_batch} (predicted)"


def _uncosted(at: At) -> Iterable[str]:
    left = [f"the time of {', '.join(at.roof.unknown)}"] if at.roof.unknown else []
    if at.prediction.total_s is not None and at.roof.launch is None and not at.own_time:
        left.append("launches")
    return left


def _launch(answer: Outlook) -> str:
    """What is known of launches, and for PyTorch of what its host side takes."""
    figure = answer.batches[0].roof.launch
    if answer.batches[0].own_time:
        return f"in the total, which is the sum of what {answer.route} expects of each of its kernels"
    if figure is None and answer.device.kind == "gpu" and answer.absent:
        return (
            f"{_UNKNOWN}: `wavefit devices --measure` measures it on the machine that has the GPU; the total leaves "
            "it out, so small models and batches take longer than it says"
        )
    return _figure(figure)


def _bound(batches: Sequence[At]) -> str:
    said = []
    for at in batches:
        shares = sorted(at.roof.bound_by.items(), key=lambda pair: -pair[1])
        if shares:
            parts = ", ".join(f"{name} {100 * share:.0f} %" for name, share in shares if share >= 0.005)
            said.append(f"batch {at.batch}: {parts}")
    return "; ".join(said) or f"{_UNKNOWN}: a peak is missing"


def _transfer(at: At) -> str:
    found = at.transfer
    moved = f"{size(found.bytes_in)} in, {size(found.bytes_out)} out at batch {at.batch}"
    if found.unified:
        return f"{moved}: nothing is copied, host and device share one memory"
    if found.bandwidth is None:
        return f"{moved}; the link is unknown"
    share = f" x {found.utilisation:g} in use" if found.utilisation != 1 else ""
    return f"{moved}; {_figure(found.bandwidth)}{share}"


def _classic(at: At) -> str:
    return (
        f"{at.transfer.classic_max_batch:,} = (link B/s x {at.transfer.utilisation or UTILISATION:g}) / (parameters x "
        "bytes per element). Its unit is 1/s: how often a second the weights could cross the link. Weights stay on "
        "the card, so it bounds no batch; it leaves out inputs, activations and compute."
    )


def _tile(side: int, bytes_: int) -> str:
    return f"{side} x {side} elements of a matrix product fit {size(bytes_)}"


def _figure(figure: Figure | None) -> str:
    if figure is None:
        return f"{_UNKNOWN}: measure it with `wavefit devices --measure`"
    return f"{_engineering(figure)} ({figure.source})"


def _engineering(figure: Figure) -> str:
    if figure.unit == "s":
        return seconds(figure.value)
    for power, prefix in ((12, "T"), (9, "G"), (6, "M")):
        if figure.value >= 10**power:
            return f"{figure.value / 10**power:,.1f} {prefix}{figure.unit}"
    return f"{figure.value:,.0f} {figure.unit}"


def size(value: int | None) -> str:
    if value is None:
        return _UNKNOWN
    if value >= 10 * 2**30:
        return f"{value / 2**30:.1f}GiB"
    return f"{value / 2**20:,.1f}MiB" if value >= 2**20 else f"{value / 2**10:.0f}KiB"


def seconds(value: float | None) -> str:
    if value is None:
        return _UNKNOWN
    if value == 0:
        return "0"
    return (
        f"{value:.2f}s" if value >= 1 else f"{value * 1e3:.2f}ms" if value >= 1e-3 else f"{value * 1e6:.1f}us"
    )


def about(value: float | None) -> str:
    """Two digits: of a GPU that is not here more than that is not known."""
    if not value:
        return seconds(value)
    unit, scale = next(((u, s) for u, s in (("s", 1.0), ("ms", 1e-3)) if value >= s), ("us", 1e-6))
    return f"{significant(value / scale, 2)}{unit}"


def _rate(value: float | None, absent: bool) -> str:
    if value is None:
        return _UNKNOWN
    return f"{float(f'{value:.1e}') if absent else value:,.0f}"


def _percent(part: float | None, whole: float) -> str:
    return f"{100 * (part or 0) / whole:.1f}%"


def _short(name: str) -> str:
    return name if len(name) <= 30 else f"...{name[-27:]}"


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for index, heading_ in enumerate(headings):
        table.add_column(heading_, justify="left" if index == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table
