"""Nodes and time by provider, from the profile that ONNX Runtime writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from wavefit.schema import NodeTime, Placement, ProviderShare

_CPU = "CPUExecutionProvider"
_CPU_NODES_SHOWN = 10
_SUFFIX = "_kernel_time"

Event = Mapping[str, Any]


class _Node(NamedTuple):
    name: str
    op: str
    provider: str
    number: str  # in its own graph: unnamed nodes of a subgraph may have the same name as ones outside


def read_profile(events: Sequence[Event], runs: int) -> Placement:
    """Reads the last ``runs`` runs of a profile; earlier ones hold warm-up.

    Times are of one run, in seconds. A node that holds a subgraph (Loop, If, Scan) has the time of its own without
    what runs inside it. Copies between devices count as time of their provider and not as nodes. A GPU works while
    the host goes on, so its nodes' times are those of starting them: what a run takes beyond all nodes is the wait
    for the GPU and is added to its provider, and the providers sum to the whole run.
    """
    whole = sorted(
        (event for event in events if event.get("name") == "model_run"), key=lambda run: run["ts"]
    )[-runs:]
    since = whole[0]["ts"] if len(whole) == runs else 0
    times = _own_times(event for event in events if event.get("cat") == "Node" and event["ts"] >= since)
    counted = [node for node in times if not node.op.startswith("Memcpy")]
    nodes = Counter(node.provider for node in counted)
    time_us: Counter[str] = Counter()
    for node, spent in times.items():
        time_us[node.provider] += spent
    gpus = [provider for provider, _ in time_us.most_common() if provider != _CPU]
    if gpus:
        time_us[gpus[0]] += max(0, sum(run["dur"] for run in whole) - sum(times.values()))
    shares = [
        ProviderShare(provider=provider, nodes=nodes[provider], time_s=spent / runs / 1e6)
        for provider, spent in time_us.items()
    ]
    on_cpu = sorted((node for node in counted if node.provider == _CPU), key=lambda node: -times[node])
    return Placement(
        providers=tuple(sorted(shares, key=lambda share: -(share.time_s or 0))),
        cpu_nodes=tuple(
            NodeTime(name=node.name, op=node.op, provider=_CPU, time_s=times[node] / runs / 1e6)
            for node in on_cpu[:_CPU_NODES_SHOWN]
        ),
        source="onnxruntime profile",
    )


def _own_times(events: Iterable[Event]) -> dict[_Node, int]:
    """Microseconds by node, over all events. Events nest as calls do, on each thread."""
    times: dict[_Node, int] = {}
    around: dict[int, list[tuple[int, _Node]]] = {}  # thread -> (end, node) of the events still open
    for event in sorted(events, key=lambda event: (event["ts"], -event["dur"])):
        provider = event.get("args", {}).get("provider")
        if not provider or not event["name"].endswith(_SUFFIX):
            continue
        details = event["args"]
        name = event["name"].removesuffix(_SUFFIX)
        node = _Node(name, details.get("op_name", "?"), provider, str(details.get("node_index", "")))
        times[node] = times.get(node, 0) + event["dur"]
        stack = around.setdefault(event.get("tid", 0), [])
        while stack and stack[-1][0] < event["ts"] + event["dur"]:
            stack.pop()
        if stack:
            times[stack[-1][1]] -= event["dur"]
        stack.append((event["ts"] + event["dur"], node))
    return times
