"""Every kernel of known networks' programs compiled by Triton for AMD targets, held to rules. Nothing is run.

    PYTHONPATH=src:examples/resnet50 python benchmarks/triton_audit.py [--nets resnet50,vit_b,bert] [--batches 1,32]
        [--targets gfx942,gfx1100] [--storage float16] [--record]

Prints kernels, how many keep the rules, and those that do not; --record adds their tiles to those that are not offered.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from importlib import resources
from pathlib import Path

import _networks

from wavefit.native.engine import prepare
from wavefit.native.triton import audit
from wavefit.native.triton.chooser import Chooser


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nets", default="resnet50,vit_b,bert")
    parser.add_argument("--batches", default="1,32")
    parser.add_argument("--targets", default=",".join(audit.TARGETS))
    parser.add_argument("--storage", default="float16")
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    folder = Path(tempfile.gettempdir()) / "wavefit-nets"
    for net in options.nets.split(","):
        path = _networks.file(net, folder)
        for batch in map(int, options.batches.split(",")):
            shapes = {name: array.shape for name, array in _networks.feeds(path, batch, 1).items()}
            jobs = audit.of_model(path, shapes, options.targets.split(","), options.storage)
            rows = audit.audit(jobs, lambda text: None)
            bad = [row for row in rows if not row.good]
            print(
                f"{net} batch {batch}: {len(rows) - len(bad)} of {len(rows)} kernels keep the rules",
                flush=True,
            )
            for row in bad:
                print(f"  {row.target} {row.kernel} {row.name}: {'; '.join(row.problems)}")
            if options.record:
                _record({(row.target, row.name) for row in bad}, path, shapes, options.storage)


def _record(bad: set[tuple[str, str]], path: Path, shapes: dict[str, tuple[int, ...]], storage: str) -> None:
    """Adds the tiles of kernels that break a rule to spills.json."""
    file = Path(str(resources.files("wavefit.native.triton").joinpath("spills.json")))
    held = json.loads(file.read_text())
    for target in {target for target, _ in bad}:
        program = prepare(path, shapes, Chooser(audit.limits_of(target)), storage)
        assert not isinstance(program, tuple)
        made = {id(launch.kernel): each for _, each in program.operations for launch in each.launches}
        for step in program.steps:
            each = made[id(step.kernel)]
            names = ("m", "k", "n") if each.template == "chain" else ("m", "n", "k")
            if (target, f"{step.op} {step.node}") in bad and "m" in each.config:
                kind = "chain" if each.template == "chain" else "product"
                tile = [int(each.config[name]) for name in (*names, "warps", "stages")]
                if tile not in held.setdefault(f"{target} {kind}", []):
                    held[f"{target} {kind}"].append(tile)
    file.write_text(json.dumps(held, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
