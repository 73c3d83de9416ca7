"""A compiled graph: buffers, the arena, what is written over what, constants that are held once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from native.passes.build import Builder

from wavefit.native.graph import Graph
from wavefit.native.limits import of_gfx
from wavefit.native.opencl.chooser import Chooser
from wavefit.native.operation import UnsupportedNode
from wavefit.native.program import Program, compile_graph


def compiled(graph: Graph) -> Program:
    made = compile_graph(graph, Chooser(of_gfx("gfx1103")))
    assert isinstance(made, Program), made
    return made


def _net(layers: int = 4) -> Graph:
    build = Builder(dtype="float32")
    value = build.input(2, 8, 6, 6)
    for _ in range(layers):
        value = build.conv(value, 8, 3)
    return build.graph(value)


def test_what_is_alive_together_does_not_overlap() -> None:
    program = compiled(_net(6))
    alive: dict[int, list[int]] = {}
    for number, step in enumerate(program.steps):
        for buffer in step.buffers:
            if program.buffers[buffer].kind == "arena":
                alive.setdefault(buffer, []).append(number)
    assert len(alive) >= 5
    for one, times in alive.items():
        for other, others in alive.items():
            if one < other and times[0] <= others[-1] and others[0] <= times[-1]:
                a, b = program.buffers[one], program.buffers[other]
                assert a.offset + a.bytes <= b.offset or b.offset + b.bytes <= a.offset
    assert all(
        program.buffers[each].offset + program.buffers[each].bytes <= program.arena_bytes for each in alive
    )


def test_the_arena_is_what_is_alive_at_once_and_not_the_sum() -> None:
    short, long = compiled(_net(4)), compiled(_net(12))
    assert long.arena_bytes == short.arena_bytes
    assert long.bound_bytes <= long.arena_bytes <= 1.1 * long.bound_bytes


def test_device_bytes_are_every_buffer_once() -> None:
    program = compiled(_net())
    image = 2 * 8 * 6 * 6 * 4
    weights = sum(array.nbytes for array in program.constants.values())
    assert program.device_bytes == program.arena_bytes + weights + 2 * image
    assert program.port_bytes == 2 * image


def test_equal_layers_with_the_same_weights_hold_them_once() -> None:
    build = Builder(dtype="float32")
    x, weights = build.input(4, 16), build.weights(16, 16)
    twice = build.matmul(build.apply("exp", build.matmul(x, weights)), weights)
    program = compiled(build.graph(twice))
    assert sum(array.nbytes for array in program.constants.values()) == 16 * 16 * 4
    assert len({step.kernel.source for step in program.steps if step.op == "MatMul"}) == 1


def test_an_elementwise_result_takes_the_place_of_what_nobody_reads_after() -> None:
    build = Builder(dtype="float32")
    hidden = build.matmul(build.input(4, 16), build.weights(16, 16))
    shared = build.apply("exp", hidden)
    graph = build.graph(build.apply("mul", build.apply("sqrt", shared), shared))
    program = compiled(graph)
    product, first, second, last = program.steps
    assert first.buffers[-1] == product.buffers[-1]  # exp over its own input
    assert second.buffers[-1] != first.buffers[-1]  # sqrt not: exp's result is read again
    assert program.buffers[last.buffers[-1]].kind == "output"


def test_ports_are_the_models_and_row_major_in_buffers_of_their_own() -> None:
    program = compiled(_net())
    (given,), (made,) = program.inputs, program.outputs
    assert (given.name, given.shape, given.dtype) == ("in0", (2, 8, 6, 6), "float32")
    assert made.shape == (2, 8, 6, 6)
    assert program.buffers[given.buffer].kind == "input"
    assert program.buffers[made.buffer].kind == "output"


def test_work_is_counted_once_a_node() -> None:
    program = compiled(_net(3))
    assert sum(step.flops for step in program.steps if step.op == "Conv") >= 3 * 2 * 2 * 36 * 8 * 8 * 9 * 0.4
    firsts = [step for step in program.steps if step.flops]
    assert len(firsts) == len({step.node for step in firsts})


def test_an_operation_without_a_kernel_is_named() -> None:
    class Few(Chooser):
        def cost(self, operation: Any) -> float | None:
            return None if operation.op == "Conv" else super().cost(operation)

    made = compile_graph(_net(2), Few(of_gfx("gfx1103")))
    assert isinstance(made, tuple)
    assert {each.op for each in made} == {"Conv"}
    assert all(isinstance(each, UnsupportedNode) and "float32[2, 8, 6, 6]" in each.reason for each in made)


@pytest.mark.parametrize("storage", ["float32", "float16"])
def test_constants_are_in_the_kernels_order(storage: str) -> None:
    build = Builder(dtype=storage)
    weights = build.weights(16, 8)
    x = build.input(4, 16, dtype=storage)
    graph = build.graph(build.node("MatMul", [x, weights], (4, 8), dtype=storage))
    program = compile_graph(graph, Chooser(replace(of_gfx("gfx90c"), fp16=False)))
    assert isinstance(program, Program)
    (held,) = program.constants.values()
    assert weights.constant is not None
    np.testing.assert_array_equal(np.sort(held.reshape(-1)), np.sort(weights.constant.reshape(-1)))
