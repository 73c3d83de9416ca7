"""Every kernel of known networks' programs compiled by Triton for AMD targets, held to rules. Nothing is run.

    PYTHONPATH=src:examples/resnet50 python benchmarks/triton_audit.py [--nets resnet50,vit_b,bert] [--batches 1,32]
        [--targets gfx942,gfx1100] [--storage float16]

Prints kernels, how many keep the rules, and those that do not.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import _networks

from wavefit.native.triton import audit


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nets", default="resnet50,vit_b,bert")
    parser.add_argument("--batches", default="1,32")
    parser.add_argument("--targets", default=",".join(audit.TARGETS))
    parser.add_argument("--storage", default="float16")
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


if __name__ == "__main__":
    main()
