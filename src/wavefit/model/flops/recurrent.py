"""LSTM, GRU and RNN: the matrix products of every step, and the gates' element-wise work."""

from __future__ import annotations

import math

from wavefit.model.flops.operation import Operation, Rule


def _recurrent(gates: int, per_unit: int) -> Rule:
    """W is [directions, gates * hidden, input], R [directions, gates * hidden, hidden], X [steps, batch, input].

    Args:
        gates: matrix products of a step.
        per_unit: element-wise FLOPs for one hidden unit and step, biases left out: adding the two products of each
            gate, activations (sigmoid 4, tanh 1), and mixing into the state.
    """

    def rule(operation: Operation) -> int:
        steps_and_batch = math.prod(operation.shape(0)[:2])  # in either layout
        directions, _, hidden = operation.shape(2)
        products = 2 * (operation.size(1) + operation.size(2))
        biases = 2 * gates if operation.has(3) else 0
        return steps_and_batch * (products + directions * hidden * (per_unit + biases))

    return rule


RULES: dict[str, Rule] = {
    "LSTM": _recurrent(4, per_unit=4 + 3 * 4 + 2 * 1 + 4),
    "GRU": _recurrent(3, per_unit=3 + 2 * 4 + 1 + 5),
    "RNN": _recurrent(1, per_unit=1 + 1),
}
