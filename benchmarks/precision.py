"""fp16 and int8 files of wavefit and of other quantisers, from the same data, measured the same way in one run.

    python benchmarks/precision.py [--only digits,ocr,cases] [--peers ort,quark,common] [--again] [--no-wavefit]

Every quantiser is given the same labelled items (wavefit splits them itself into calibration and held-out data) and its
file is tested on others. The first run installs the peers into environments below .cache/precision (Quark brings
PyTorch: 2 to 6 GB). Numbers come from ONNX Runtime on the CPU with its optimisations off, half values rounded where a
file types them half. "strict" is the metric as the CPU runs a file, fused; of an fp16 file, with sums inside operators
(a LayerNormalization's) in half too. "int8" is the share of nodes that read 8-bit activations after ONNX Runtime's
fusions, "heavy" that of convolutions and matrix products alone, "fp16" the share that makes halves. Latency comes
from its default optimisations, one item, two threads, the files taking turns: the least of the rounds. An fp16 file
runs in fp32 on that CPU: its latency here says nothing of a GPU.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

import _precision_measure as measure
import _precision_peers as peers
import _precision_tasks
from _precision_ours import bundle_of, ours, told
from _precision_peers import Made
from _precision_tasks import Task

from wavefit.model.prove import runtime_errors

_CACHE = Path(__file__).parents[1] / ".cache" / "precision"
_DEADLINE_S = 900.0
_SEARCH_S = 3000.0


def main() -> None:
    options = _options()
    families = tuple(name for name in options.peers.split(",") if name)
    results = json.loads(_kept(options.folder).read_text()) if _kept(options.folder).exists() else {}
    for task in _precision_tasks.tasks(options.folder, tuple(options.only.split(","))):
        folder = options.folder / task.name
        made = [
            peers.make(name, task.model, task.given, folder, options.folder, _DEADLINE_S)
            for name, family in peers.PEERS.items()
            if family in families
        ]
        own: list[Made] = []
        variants: dict[str, dict[str, Any]] = {}
        if not options.no_wavefit:
            if options.again:
                shutil.rmtree(bundle_of(task, folder), ignore_errors=True)
            own, variants = ours(task, folder, options.precision, _SEARCH_S)
        found = rows(task, own + made)
        show(task, found)
        print(*compared(found), sep="\n", flush=True)
        results[task.name] = {"rows": [_told(row) for row in found], "variants": variants}
        for variant in variants.values():
            print(f"  {told(variant, task.minimal)}")
        _kept(options.folder).write_text(json.dumps(results, indent=1))


def _kept(folder: Path) -> Path:
    return folder / "precision.json"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--only", default="digits,ocr,cases", help="digits, ocr, cases, a case by its name")
    parser.add_argument("--peers", default=",".join(peers.FAMILIES), help="families of peers, by commas")
    parser.add_argument("--precision", default="fp16,int8", help="what wavefit is asked for")
    parser.add_argument("--again", action="store_true", help="wavefit's searches anew: its code has changed")
    parser.add_argument("--no-wavefit", action="store_true", help="the peers alone")
    parser.add_argument("--folder", type=Path, default=_CACHE, help="where environments and files are kept")
    return parser.parse_args()


def rows(task: Task, made: list[Made]) -> list[dict[str, Any]]:
    """One row a file: figures by name, or why there are none."""
    reference = measure.answers(task.model, task)
    points, _ = task.items(reference, task.test["labels"])
    found = [_row(task, Made("fp32", task.model, 0.0), reference, points)]
    found += [_row(task, each, reference, points) for each in made]
    files = {row["name"]: Path(row["path"]) for row in found if "path" in row}
    times = measure.latencies(files, task)
    for row in found:
        if row["name"] in times:
            row["latency_s"] = min(times[row["name"]])  # what else the machine does only adds
            row["latency_ratio"] = min(times[row["name"]]) / min(times["fp32"])
    return found


def _row(task: Task, made: Made, reference: dict[str, np.ndarray], points: np.ndarray) -> dict[str, Any]:
    row: dict[str, Any] = {"name": made.name, "seconds": made.seconds}
    if made.path is None:
        return {**row, "failure": made.failure}
    labels = task.test["labels"]
    try:
        outputs = measure.answers(made.path, task)
        strict = measure.strict_answers(made.path, task)
        part = measure.shares(made.path)
    except runtime_errors() as error:
        return {**row, "failure": f"does not run: {str(error).splitlines()[0][:160]}"}
    ours, most = task.items(outputs, labels)
    stricter, _ = task.items(strict, labels)
    return {
        **row,
        "path": str(made.path),
        "metric": float(ours.sum() / most.sum()),
        "change": measure.change(ours, points, most),
        "metric_strict": float(stricter.sum() / most.sum()),
        "points": ours if ours.sum() <= stricter.sum() else stricter,
        "most": most,
        "rel_l2": measure.distance(outputs, reference),
        "int8": part.int8,
        "int8_heavy": part.heavy,
        "fp16": part.fp16,
        "bytes": measure.size(made.path),
    }


def show(task: Task, found: list[dict[str, Any]]) -> None:
    """A plain table."""
    print(f"\n{task.name}: {task.metric} on {len(task.test['labels'])} items not given to any quantiser")
    print(
        f"{'':18}{'metric':>8}{'change, 95 %':>18}{'strict':>8}{'rel. L2':>10}"
        f"{'int8':>6}{'heavy':>6}{'fp16':>6}{'MB':>7}{'ms':>8}{'to fp32':>8}{'made in s':>10}"
    )
    for row in found:
        if "failure" in row:
            print(f"{row['name']:18}{row['failure']}")
            continue
        low, high = row["change"]
        print(
            f"{row['name']:18}{row['metric']:8.4f}{low:+9.4f}{high:+9.4f}{row['metric_strict']:8.4f}"
            f"{row['rel_l2']:10.2g}{row['int8']:6.0%}{row['int8_heavy']:6.0%}{row['fp16']:6.0%}"
            f"{row['bytes'] / 1e6:7.2f}{row['latency_s'] * 1e3:8.2f}{row['latency_ratio']:8.2f}{row['seconds']:10.1f}"
        )


def compared(found: list[dict[str, Any]]) -> list[str]:
    """wavefit's variants beside the best peer of the same precision: by the lower of both metrics, then the share.

    A lead is one where the 95 % interval of the difference, over the same items, leaves out 0.
    """
    lines = []
    for precision, share in (("fp16", "fp16"), ("int8", "int8_heavy")):
        ran = [row for row in found if precision in row["name"] and "failure" not in row]
        own = [row for row in ran if row["name"].startswith("wavefit")]
        others = [row for row in ran if not row["name"].startswith("wavefit")]
        if not own or not others:
            continue
        ours_, best = (
            max(rows_, key=lambda row: (_lower(row), row[share], -row["rel_l2"])) for rows_ in (own, others)
        )
        low, high = measure.change(ours_["points"], best["points"], best["most"])
        word = "behind" if high < 0 else "ahead" if low > 0 else "equal"
        lines.append(
            f"  {precision}: {ours_['name']} {_lower(ours_):.4f}, L2 {ours_['rel_l2']:.2g}, {ours_[share]:.0%}; "
            f"best peer {best['name']} {_lower(best):.4f}, L2 {best['rel_l2']:.2g}, {best[share]:.0%}: "
            f"{word} ({_lower(ours_) - _lower(best):+.4f}, 95 % {low:+.4f} to {high:+.4f})"
        )
    return lines


def _told(row: dict[str, Any]) -> dict[str, Any]:
    """Without the points of single items."""
    return {key: value for key, value in row.items() if key not in ("points", "most")}


def _lower(row: dict[str, Any]) -> float:
    return min(row["metric"], row["metric_strict"])


if __name__ == "__main__":
    main()
