"""The terminal's table: fits 80 columns, says what to do, cannot be steered by a name."""

from __future__ import annotations

from pathlib import Path

from fakes import records as fakes
from fakes import variants
from rich.console import Console, RenderableType

from wavefit.report.terminal import measurements, one_line, summary, table, variant
from wavefit.schema import Failure


def text(shown: RenderableType, width: int = 80) -> str:
    console = Console(width=width, force_terminal=False, color_system=None)
    with console.capture() as capture:
        console.print(shown)
    return capture.get()


def test_table_fits_80_columns_and_keeps_every_figure() -> None:
    records = fakes.journal()
    shown = text(table(records, fakes.bundle(records).choice, fakes.REFUSALS))
    lines = shown.splitlines()
    assert max(map(len, lines)) <= 80
    first = lines[1].split()
    assert first == ["ort_migraphx", "fp16", "1", "7.05", "7.92", "151", "268", "MiB", "160", "mJ", "picked"]
    assert "…" not in shown


def test_failures_and_refusals_come_with_their_fix() -> None:
    records = fakes.journal()
    words = " ".join(text(table(records, fakes.bundle(records).choice, fakes.REFUSALS)).split())
    assert "timeout at open: torch.compile had not finished after 600 s -> raise --deadline" in words
    assert "ort_directml: DirectML is Windows only -> use ort_migraphx or ort_webgpu on Linux" in words
    assert "ort_migraphx int8 batch 1: answers moved" in words


def test_a_run_that_loadgen_calls_not_valid_is_noted() -> None:
    bad = fakes.scenario("Offline", 0.05, 20.0, valid=False, reasons=("raise the expected rate",))
    record = fakes.measured(
        "ort_cpu", fakes.cpu(), 0.05, measurement=fakes.measurement(0.05, scenarios=(bad,))
    )
    words = " ".join(text(table([record], fakes.bundle([record]).choice)).split())
    assert "ort_cpu fp32 batch 1: LoadGen calls its Offline run not valid: raise the expected rate" in words


def test_summary_ends_with_the_sentence_and_what_to_open() -> None:
    records = fakes.journal()
    bundle = fakes.bundle(records)
    words = " ".join(text(summary(Path("resnet50.wavefit"), bundle, records), 200).split())
    assert " ".join(bundle.choice.sentence.split()) in words
    assert words.endswith(
        f"report: {Path('resnet50.wavefit/report.html')} run it: wavefit run resnet50.wavefit"
    )


def test_nothing_picked_offers_nothing_to_run() -> None:
    records = [record for record in fakes.journal() if not record.passed]
    shown = text(summary(Path("x.wavefit"), fakes.bundle(records), records))
    assert "wavefit run" not in shown
    assert "No plan has a measurement." in shown


def test_plans_of_two_gpus_name_their_device() -> None:
    records = [fakes.measured("torch_gpu", fakes.gpu(id=name), 0.01) for name in ("gpu0", "gpu1")]
    shown = text(table(records, fakes.bundle(records).choice))
    assert "torch_gpu fp32 on gpu0" in shown
    assert "torch_gpu fp32 on gpu1" in shown


def test_measurements_show_every_scenario() -> None:
    shown = text(measurements(fakes.journal(), fakes.REFUSALS))
    assert shown.count("SingleStream") == shown.count("Offline") == 8
    assert max(map(len, shown.splitlines())) <= 80


def test_one_line() -> None:
    assert one_line(fakes.journal()[0]) == "ort_cpu fp32 batch 1: p50 51.1 ms, 20.9/s, answers unchanged"
    failed = fakes.failed("r", fakes.cpu(), Failure(kind="crash", stage="open", reason="SIGSEGV"))
    assert one_line(failed) == "r fp32 batch 1: crash at open: SIGSEGV"


def test_a_name_cannot_steer_the_terminal() -> None:
    steer = "\x1b[2J\x07[red]name[/red]\r\nnext"
    failed = fakes.failed(steer, fakes.cpu(), Failure(kind="error", stage="open", reason=steer, fix=steer))
    shown = text(table([failed], fakes.bundle([failed]).choice)) + one_line(failed)
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert "\r" not in shown
    assert "[red]name[/red]" in shown


def test_a_variant_is_a_few_short_lines_and_every_note_is_told_once() -> None:
    records = fakes.journal()
    made = (variants.half(), variants.integer())
    shown = text(
        summary(Path("x.wavefit"), fakes.bundle(records, variants=made, model=fakes.model()), records)
    )
    lines = shown[shown.index("Variants") :].splitlines()[: 2 * 5 + 2]
    assert [line.strip() for line in lines] == [
        "Variants",
        "fp16: 118 of 122 nodes in fp16; 48.6 MiB of weights, was 97.5 MiB",
        "8.4e-04 from fp32 (relative L2); top1 97.6 %, was 97.6 % on 250 items",
        "3 nodes on scaled numbers; 1 evaluation in 12.4 s",
        "kept back: /layer3/5/Add (Add), /pool (ReduceMean)",
        "int8: 26 of 122 nodes in int8; 24.4 MiB of weights, was 97.5 MiB",
        "1.9e-02 from fp32 (relative L2); top1 97.2 %, was 97.6 % on 250 items",
        "percentile 99.99 calibration, bias correction; 72 evaluations in 108 s",
        "kept back: node1 (Conv), node2 (Conv), node3 (Conv) and 11 more",
        "note on fp16, int8: calibrated on 12 items, which is few",
        "",
        lines[-1].strip(),
    ]
    assert max(map(len, shown.splitlines())) <= 80


def test_a_variant_by_itself_gives_every_reason() -> None:
    shown = text(variant(variants.integer(), fakes.model(), "out.onnx", 12), 200)
    assert shown.count("stays in fp32: with it in int8 the guard does not pass") == 12
    assert "2 more nodes stay: --json has them" in shown
    none = text(variant(variants.half(kept=(), scaled=()), fakes.model(), "out.onnx", 12))
    assert "no node had to be kept back" in none


def test_a_variant_that_mixes_precisions_names_each() -> None:
    mixed = variants.integer(nodes={"fp32": 1, "fp16": 3, "int8": 9})
    assert "9 of 13 nodes in int8, 3 in fp16; " in text(variant(mixed, fakes.model(), "out.onnx", 0), 120)
