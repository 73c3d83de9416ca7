"""The comparison: ratios by hand, what is not comparable, columns from bundles and from records."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fakes import records as fakes
from rich.console import Console

from wavefit.errors import InputError
from wavefit.report.columns import Entry, collect, parse_prices, read
from wavefit.report.compare import Row, comparison, differences, rows, table
from wavefit.schema import Bundle, Record, encode, pretty

# Two accelerators as in the usual comparison: the second answers in half the time at 1.5 times the power.
SLOW = fakes.measured(
    "torch_gpu",
    fakes.gpu(name="Card A"),
    0.010,
    measurement=fakes.measurement(
        0.010,
        scenarios=(fakes.scenario("SingleStream", 0.010, 100.0), fakes.scenario("Offline", 0.010, 200.0)),
        power=(fakes.power(100.0, 200.0),),
        device_peak_bytes=2 * 2**30,
    ),
)
FAST = fakes.measured(
    "torch_gpu",
    fakes.gpu(name="Card B"),
    0.005,
    measurement=fakes.measurement(
        0.005,
        scenarios=(fakes.scenario("SingleStream", 0.005, 200.0), fakes.scenario("Offline", 0.005, 500.0)),
        power=(fakes.power(150.0, 500.0),),
    ),
)


def by_name(entries: list[Entry], **options: Any) -> dict[str, Row]:
    return {row.name: row for row in rows(entries, **options)}


def entries(*records: Record | None, prices: tuple[float | None, ...] = (None, None)) -> list[Entry]:
    return [
        Entry(name=name, record=record, price=price)
        for name, record, price in zip("AB", records, prices, strict=True)
    ]


def write_bundle(folder: Path, records: list[Record], **changes: Any) -> Path:
    folder.mkdir()
    lines = b"".join(encode(record) + b"\n" for record in records)
    (folder / "records.jsonl").write_bytes(lines)
    bundle: Bundle = fakes.bundle(
        records, files={"records.jsonl": hashlib.sha256(lines).hexdigest()}, **changes
    )
    (folder / "bundle.json").write_text(pretty(bundle))
    return folder


def test_figures_and_ratios_to_the_first_column() -> None:
    found = by_name(entries(SLOW, FAST))
    assert found["inferences a second"].values == (200.0, 500.0)
    assert found["inferences a second"].ratios == (1.0, 2.5)
    assert found["watts"].ratios == (1.0, 1.5)
    # 100 W at 200/s is half a joule an inference; 150 W at 500/s is 0.3.
    assert found["inferences a joule"].values == pytest.approx((2.0, 1 / 0.3))
    assert found["latency p90"].better == "lower"
    assert found["latency p90"].ratios[1] == pytest.approx(0.5, rel=0.05)


def test_what_was_not_measured_is_none_and_has_no_ratio() -> None:
    assert by_name(entries(SLOW, FAST))["peak memory"].values == (2 * 2**30, None)
    found = by_name(entries(FAST, SLOW))["peak memory"]
    assert found.values == (None, 2 * 2**30)
    assert found.ratios == (None, None)
    assert "price of a million" not in by_name(entries(SLOW, FAST))


def test_per_price_of_an_hour_and_of_a_device() -> None:
    priced = entries(SLOW, FAST, prices=(2.0, 4.0))
    hour = by_name(priced)
    assert hour["inferences per price"].values == (200.0 * 3600 / 2, 500.0 * 3600 / 4)
    assert hour["price of a million"].values == pytest.approx((2 / 0.72, 4 / 1.8))
    device = by_name(priced, per="device")
    assert device["inferences a second per price"].values == (100.0, 125.0)
    assert device["inferences a second per price"].ratios == (1.0, 1.25)


def test_equal_terms_are_comparable() -> None:
    assert differences(entries(SLOW, FAST)) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"model": fakes.model(sha256="ee" * 32)},
            "different models (their hashes): A 0f0f0f0f, B eeeeeeee",
        ),
        (
            {"plan": msgspec.structs.replace(FAST.plan, precision="fp16")},
            "different precisions: A fp32, B fp16",
        ),
        ({"plan": msgspec.structs.replace(FAST.plan, batch=8)}, "different batches: A 1, B 8"),
        (
            {"plan": msgspec.structs.replace(FAST.plan, shapes={"input": (1, 3, 512, 512)})},
            "different input shapes: A input 3x224x224, B input 3x512x512",
        ),
        (
            {
                "measurement": fakes.measurement(
                    0.005, scenarios=(fakes.scenario("Server", 0.005, 1.0),), power=()
                )
            },
            "different latency scenarios: A SingleStream, B Server",
        ),
        (
            {
                "measurement": fakes.measurement(
                    0.005, power=(fakes.power(1.0, 1.0, meter="nvml", covers="card"),)
                )
            },
            "different power meters: A amdgpu hwmon power1_average (package), B nvml (card)",
        ),
    ],
)
def test_what_is_not_comparable_is_said(change: dict[str, Any], words: str) -> None:
    both = entries(SLOW, msgspec.structs.replace(FAST, **change))
    assert words in differences(both)
    console = Console(width=200, color_system=None)
    with console.capture() as capture:
        console.print(table(both))
    assert capture.get().startswith("Not comparable: different")


def test_a_column_where_nothing_passed_is_said_and_empty() -> None:
    both = entries(SLOW, None)
    assert "B: no plan passed" in differences(both)
    assert all(row.values[1] is None for row in rows(both))
    assert comparison(both).columns[1].plan is None


def test_a_run_that_is_not_valid_is_said() -> None:
    bad = fakes.measurement(0.005, scenarios=(fakes.scenario("SingleStream", 0.005, 1.0, valid=False),))
    both = entries(SLOW, msgspec.structs.replace(FAST, measurement=bad))
    assert "B: LoadGen calls its SingleStream run not valid" in differences(both)


def test_a_bundle_is_its_pick(tmp_path: Path) -> None:
    folder = write_bundle(tmp_path / "a.wavefit", fakes.journal())
    (entry,) = read(folder)
    assert entry.name == "resnet50"
    assert entry.record is not None
    assert entry.record.plan.label == "ort_migraphx fp16 batch 1"


def test_a_changed_bundle_is_refused(tmp_path: Path) -> None:
    folder = write_bundle(tmp_path / "a.wavefit", fakes.journal())
    with (folder / "records.jsonl").open("ab") as lines:
        lines.write(b"\n")
    with pytest.raises(InputError, match="was changed"):
        read(folder)


def test_records_are_the_best_plan_of_each_device(tmp_path: Path) -> None:
    path = tmp_path / "laptop.jsonl"
    path.write_bytes(b"".join(encode(record) + b"\n" for record in fakes.journal()))
    found = {entry.name: entry.record.plan.label for entry in read(path) if entry.record}
    assert found == {"laptop/cpu": "ort_cpu fp32 batch 1", "laptop/gpu0": "ort_migraphx fp16 batch 1"}
    found = {entry.name: entry.record.plan.label for entry in read(path, "throughput") if entry.record}
    assert found == {"laptop/cpu": "ort_cpu fp32 batch 8", "laptop/gpu0": "ort_migraphx fp16 batch 4"}


def test_columns_of_one_name_are_told_apart_and_priced(tmp_path: Path) -> None:
    paths = [write_bundle(tmp_path / name, fakes.journal()) for name in ("one", "two")]
    found = collect(paths, {"resnet50#2": 3.0})
    assert [(entry.name, entry.price) for entry in found] == [("resnet50", None), ("resnet50#2", 3.0)]


def test_bad_columns(tmp_path: Path) -> None:
    folder = write_bundle(tmp_path / "a", fakes.journal())
    empty = tmp_path / "empty.jsonl"
    empty.write_bytes(b"")
    none = [
        write_bundle(tmp_path / name, [r for r in fakes.journal() if not r.passed]) for name in ("x", "y")
    ]
    choice = msgspec.structs.replace(fakes.bundle(fakes.journal()).choice, pick="gone")
    lost = write_bundle(tmp_path / "lost", fakes.journal(), choice=choice)
    for paths, prices, words in (
        ([folder], {}, "only one column"),
        ([folder, tmp_path / "nowhere"], {}, "is not there"),
        ([folder, empty], {}, "holds no record"),
        ([folder, lost], {}, "the pick is not among"),
        (none, {}, "no plan passed in any"),
        ([folder, folder], {"mi250x": 2.0}, "no such column"),
    ):
        with pytest.raises(InputError, match=words):
            collect(paths, prices)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["a", "=1", "a=", "a=x", "a=0", "a=-1", "a=nan", "a=inf"])
def test_bad_prices(text: str) -> None:
    with pytest.raises(InputError, match="NAME=VALUE"):
        parse_prices([text])


def test_a_price_of_a_name_with_an_equals_sign() -> None:
    assert parse_prices(["a=b=2.5"]) == {"a=b": 2.5}
