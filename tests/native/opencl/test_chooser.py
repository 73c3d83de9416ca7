"""What computes an operation: what was tuned, else the cheapest by the model."""

from __future__ import annotations

from msgspec.structs import replace

from wavefit.native.limits import of_gfx
from wavefit.native.opencl import kernels
from wavefit.native.opencl.chooser import Chooser
from wavefit.native.operation import Limits
from wavefit.native.specimens import conv, image, layers, rows, small_matmul


def test_the_cheapest_template_is_taken_without_tuning() -> None:
    limits = of_gfx("gfx1103")
    for operation in layers().values():
        chooser = Chooser(limits)
        made = chooser.build(operation)
        costs = {}
        for name in kernels.claiming(operation):
            template = kernels.get(name)
            config = next(iter(template.configurations(operation, limits)))
            costs[name] = template.cost(operation, config, limits)
        assert chooser.cost(operation) == min(costs.values())
        assert costs[made.template] == min(costs.values())


def test_what_was_tuned_is_taken_and_does_not_change_the_cost() -> None:
    """Layouts are chosen by cost: were it changed, what was tuned would not be what is compiled."""
    limits, operation = of_gfx("gfx1103"), layers()["bert wide"]
    plain = Chooser(limits)
    other = list(kernels.get("matmul").configurations(operation, limits))[-1]
    tuned = Chooser(limits, {operation.key: ("matmul", other)})
    assert tuned.build(operation).config == other != plain.build(operation).config
    assert tuned.cost(operation) == plain.cost(operation)


def test_what_no_template_computes_has_no_cost() -> None:
    odd = replace(layers()["bert softmax"], op="NoSuchOperator")
    assert Chooser(of_gfx("gfx1103")).cost(odd) is None


def test_int8_goes_to_dot_products_where_a_device_has_them() -> None:
    operation = small_matmul(rows(128, 768, dtype="uint8"), 3072)
    assert Chooser(of_gfx("gfx1103")).build(operation).template == "matmul_dot"
    assert Chooser(of_gfx("gfx90c")).build(operation).template != "matmul_dot"
    narrow, wide = (Chooser(of_gfx("gfx1103")).cost(each) for each in (operation, layers()["bert wide"]))
    assert narrow is not None
    assert wide is not None
    assert narrow < wide / 1.5


def test_a_slower_device_costs_more() -> None:
    operation = conv(image(8, 64, 56, 56), 64, (3, 3), pad=1)
    fast = Limits(name="fast", compute_units=64, flops=2e13, bandwidth=1e12)
    slow = replace(fast, flops=1e12, bandwidth=5e10)
    costs = [Chooser(each).cost(operation) for each in (fast, slow)]
    assert None not in costs
    assert costs[0] < costs[1]  # type: ignore[operator]
