"""Kernel Tuner's strategies on a recorded space, in its simulation mode; for :mod:`tuner`.

Kernel Tuner: https://github.com/KernelTuner/kernel_tuner, its cache files "cachefile format, version 1".
"""

from __future__ import annotations

import contextlib
import io
import json
import signal
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wavefit.kernels.tuner.simulate import Measured, Space

_ABSENT = -1  # the value of a parameter that another template has
_RUN_S = 20.0  # of one simulated search


@contextlib.contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TimeoutError("it does not end")

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


class Peers:
    """A recorded space as Kernel Tuner reads it.

    Args:
        space: what was measured.
        pruned: whether what the device's limits leave out is left out.
    """

    def __init__(self, space: Space, pruned: bool) -> None:
        rows = [each for each in space.candidates if not (pruned and each.pruned)]
        self._groups = sorted({each.group for each in rows})
        names = sorted({name for each in rows for name in each.parameters})
        self._rows = {self._key(each, names): each for each in rows}
        self._names = ["template", *names]
        self._folder = tempfile.TemporaryDirectory()
        self._file = Path(self._folder.name) / "space.json"
        columns = list(zip(*self._rows, strict=True))
        self._params = dict(
            zip(self._names, (sorted(set(column), key=repr) for column in columns), strict=True)
        )
        self._params = {
            name: sorted(values) if all(isinstance(v, int) for v in values) else values
            for name, values in self._params.items()
        }
        self._write(space)

    def _key(self, row: Measured, names: list[str]) -> tuple[Any, ...]:
        return (
            self._groups.index(row.group),
            *(row.parameters.get(name, _ABSENT) for name in names),
        )

    def _write(self, space: Space) -> None:
        times = {"compile_time": 1.0, "verification_time": 0.0, "benchmark_time": 1.0}
        kept = {}
        for key, row in self._rows.items():
            time: float | str = "RuntimeFailedConfig" if row.seconds is None else row.seconds * 1e3
            entry = {**dict(zip(self._names, key, strict=True)), "time": time, **times}
            kept[",".join(map(str, key))] = {**entry, "strategy_time": 0.0, "framework_time": 0.0}
        head = {"device_name": space.device, "kernel_name": "kernel", "problem_size": [1]}
        keys = {"tune_params_keys": self._names, "tune_params": self._params, "objective": "time"}
        self._file.write_text(json.dumps({**head, **keys, "cache": kept}))

    def run(self, strategy: str, seed: int, evaluations: int) -> list[float | None]:
        """Seconds of what a strategy measured, in order, each candidate once.

        Raises:
            TimeoutError: it does not come to an end.
        """
        import random

        import numpy as np
        from kernel_tuner import tune_kernel

        random.seed(seed)
        np.random.seed(seed)
        known = set(self._rows)
        order: list[tuple[Any, ...]] = []

        def allowed(parameters: dict[str, Any]) -> bool:
            return tuple(parameters[name] for name in self._names) in known

        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), _at_most(_RUN_S):
            warnings.simplefilter("ignore")
            results, _ = tune_kernel(
                "kernel",
                "__kernel void kernel() {}",
                (1,),
                [],
                self._params,
                restrictions=allowed,
                lang="OpenCL",
                strategy=strategy,
                strategy_options={"max_fevals": evaluations},
                simulation_mode=True,
                cache=str(self._file),
                quiet=True,
                seed=seed,
            )
        for result in results:
            key = tuple(result[name] for name in self._names)
            if key in known and key not in order:
                order.append(key)
        return [self._rows[key].seconds for key in order[:evaluations]]
