"""A template whose kernels are right, wrong, broken or endless, as their configuration says; for the tuner.

Its operator is one that no other template has. ``tune_all`` is what a child process runs in place of the tuner's own:
the same, with this template among the others.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from wavefit.child.main import Reporter
from wavefit.native.opencl import kernels, tuning
from wavefit.native.opencl.tuning import Finished, Task
from wavefit.native.operation import (
    Buffer,
    Config,
    Implementation,
    Kernel,
    Launch,
    Limits,
    Operation,
)
from wavefit.native.specimens import rows

NAME = "probe"
OPS = ("Probe",)
OPERATION = Operation(op="Probe", inputs=(rows(256),), outputs=(rows(256),), own=1)
HANGING = Operation(op="Probe", inputs=(rows(512),), outputs=(rows(512),), own=1)
_VALUES = {
    "right": "2.0f * in0[i]",
    "wrong": "2.001f * in0[i]",
    "endless": "2.0f * in0[i]",
    "gap": "2.0f * in0[i]",
}


def claims(operation: Operation) -> bool:
    return True


def configurations(operation: Operation, limits: Limits) -> Iterator[Config]:
    """The prediction is wrong throughout: what it likes best takes longest."""
    yield {"kind": "right", "loops": 20000}
    if operation == HANGING:
        yield {"kind": "endless", "loops": 0}
    for loops in (10000, 5000, 10):
        yield {"kind": "right", "loops": loops}
    yield {"kind": "wrong", "loops": 1}
    yield {"kind": "gap", "loops": 1}
    yield {"kind": "broken", "loops": 1}


def cost(operation: Operation, config: Config, limits: Limits) -> float:
    loops = int(config["loops"])
    return 1.0 if loops == 20000 else 1.5 if loops == 0 else 3.0 - loops / 20000


def build(operation: Operation, config: Config) -> Implementation:
    size, kind = operation.output.shape[0], str(config["kind"])
    count = size - 1 if kind == "gap" else size
    wait = "while (in0[0] == in0[0]) x = x * 1.5f + out0[0];" if kind == "endless" else ""
    lines = [
        "__kernel void probe(__global const float *in0, volatile __global float *out0) {",
        f"const int i = get_global_id(0); if (i >= {count}) return;",
        "float x = 0.0f;" if kind != "broken" else "float x = there_is_no_such_thing;",
        wait,
        f"for (int n = 0; n < {config['loops']}; n++) {{ x = x * 0.5f + in0[(i + n) % {size}]; out0[i] = x; }}",
        f"out0[i] = {_VALUES.get(kind, '0.0f')};",
        "}",
    ]
    kernel = Kernel(name="probe", source="\n".join(lines), global_size=(size,), local_size=(64,))
    arguments = (Buffer(kind="input", index=0), Buffer(kind="output", index=0))
    return Implementation(
        template=NAME, config=config, launches=(Launch(kernel=kernel, arguments=arguments),)
    )


def install() -> None:
    """Puts the template among the others of this process."""
    sys.modules[f"{kernels.__name__}.{NAME}"] = sys.modules[__name__]
    others = kernels.names()
    kernels.TEMPLATES.names = kernels.names = lambda: sorted({*others, NAME})  # type: ignore[method-assign]


def tune_all(payload: Task, say: Reporter) -> Finished:
    install()
    return tuning.tune_all(payload, say)
