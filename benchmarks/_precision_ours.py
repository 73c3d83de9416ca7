"""wavefit's own variants of a task's model, as a user makes them: ``wavefit optimize --precision fp16,int8``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from _precision_peers import Made
from _precision_tasks import Task


def ours(
    task: Task, folder: Path, precision: str, deadline_s: float
) -> tuple[list[Made], dict[str, dict[str, Any]]]:
    """The variants' files, and the bundle's record of each by the same name; a failure where there is none.

    Args:
        precision: as ``--precision`` takes it.
    """
    bundle = bundle_of(task, folder)
    command = [sys.executable, "-m", "wavefit", "optimize", str(task.model), "--data", str(task.given)]
    command += ["--metric", task.metric, "--precision", precision, "--route", "ort_cpu", "-o", str(bundle)]
    command += ["--deadline", f"{deadline_s:.0f}"]
    for size in task.sizes:
        command += ["--size", size]
    with (folder / "wavefit.log").open("w") as log:
        code = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, cwd=task.folder).returncode
    if not (bundle / "bundle.json").exists():
        lines = (folder / "wavefit.log").read_text(errors="replace").strip().splitlines()
        return [Made("wavefit", None, 0.0, lines[-1][:160] if lines else f"exit {code}")], {}
    record = json.loads((bundle / "bundle.json").read_text())
    made, records = [], {}
    for variant in record["variants"]:
        name = f"wavefit-{variant['name']}"
        made.append(Made(name, bundle / "variants" / f"{variant['name']}.onnx", variant["search_s"]))
        records[name] = variant
    for refusal in record["refusals"]:
        if refusal["route"] == "precision":  # the search's own; other routes refuse what their runtimes lack
            made.append(
                Made(f"wavefit-{refusal['precision'] or 'search'}", None, 0.0, refusal["reason"][:160])
            )
    return made, records


def bundle_of(task: Task, folder: Path) -> Path:
    return folder / f"{task.name}.wavefit"


def told(variant: dict[str, Any], minimal: frozenset[str] | None) -> str:
    """One line on how a variant came to be."""
    kept = [each["node"] for each in variant.get("kept", ())]
    said = f"{variant['name']}: {variant.get('evaluations', 0)} evaluations in {variant.get('search_s', 0):.0f} s"
    recipe = ", ".join(f"{key} {value}" for key, value in variant.get("recipe", {}).items())
    said += f", {recipe}" if recipe else ""
    said += f"; kept {len(kept)} of {sum(variant.get('nodes', {}).values())}"
    said += f" ({', '.join(kept[:8])}{', ...' if len(kept) > 8 else ''})" if kept else ""
    scaled = [node for each in variant.get("scaled", ()) for node in each["nodes"]]
    said += f"; scaled {len(scaled)} ({', '.join(scaled[:6])})" if scaled else ""
    if minimal and variant.get("precision") == "fp16":
        said += f"; known minimal set {', '.join(sorted(minimal))}"
    return said
