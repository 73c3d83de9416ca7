"""The page's section on lower precisions: what it says of variants, what is on the front, why a plan is no faster."""

from __future__ import annotations

import itertools
import re
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import pytest
from fakes import records as fakes
from fakes import variants
from msgspec.structs import replace

from wavefit.report.figures import TIMES
from wavefit.report.page import render
from wavefit.report.plots import NARROW, WIDE
from wavefit.report.precision_plots import Moved, Trade, front, sensitivity, tradeoff
from wavefit.schema import KeptNode, Placement, ProviderShare, Record, Sensitivity, TaskMetric, Variant

HOSTILE = "<script>alert(1)</script>`<b>`\"'&"


def section(records: list[Record], *made: Variant, **changes: Any) -> str:
    html = render(fakes.bundle(records, variants=made, model=fakes.model(), **changes), records)
    found = re.search(r'<section id="precision">.*?</section>', html, re.S)
    return found[0] if found else ""


class Text(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.feed(html)

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def text(html: str) -> str:
    return " ".join(" ".join(Text(html).words).split())


def test_fp32_alone_has_no_such_section() -> None:
    fp32 = [record for record in fakes.journal() if record.plan.precision == "fp32"]
    assert section(fp32) == ""


def test_a_variant_is_told_beside_fp32() -> None:
    said = text(section(fakes.journal(), variants.half()))
    assert "fp32 the model 97.5 MiB top1 97.6 % 250 held-out items" in said
    assert f"fp16 118 fp16 4 fp32 48.6 MiB 0.499{TIMES} 8.4e-04 top1 97.6 % 1 evaluation 12.4 s" in said
    assert "118 of 122 nodes in fp16." in said
    assert "/a/MatMul to /a/Softmax (3 nodes), times 0.125: scores reach 2.4e+05" in said
    assert "fp16 : calibrated on 12 items, which is few" in said


def test_kept_nodes_come_with_operator_precision_reason_and_figures() -> None:
    said = text(section([], variants.half()))
    assert (
        "/layer3/5/Add Add fp32 its output reaches 1.3e+05, and half ends at 65504 max_abs 131,000, limit 65,504"
        in said
    )
    assert "/pool ReduceMean fp32 it sums past 65504" in said


def test_many_kept_nodes_are_folded_and_none_is_left_out() -> None:
    html = section([], variants.integer())
    kept = html[html.index("Kept back, and why") : html.index("How far each node alone")]
    open_, folded = kept.split("<details>")
    assert open_.count("with it in int8 the guard does not pass") == 12
    assert "<summary>2 more nodes</summary>" in folded
    assert folded.count("with it in int8 the guard does not pass") == 2


def test_how_it_was_made_leaves_out_what_did_not_help() -> None:
    said = text(section([], variants.integer()))
    assert "26 of 122 nodes in int8, by percentile 99.99 calibration, bias correction." in said
    assert "82 more have no int8 kernel of their own there, or nothing to gain by it." in said
    assert "SmoothQuant" not in said


def test_what_is_unknown_is_not_zero() -> None:
    said = text(section([], variants.half(error=None, task=None, kept=(), scaled=(), notes=())))
    assert f"48.6 MiB 0.499{TIMES} — — 1 evaluation" in said
    assert "No node had to be kept back." in said


def test_the_furthest_nodes_are_listed_by_rank_and_the_kept_ones_marked() -> None:
    html = section([], variants.integer())
    table = html[html.index('<table class="furthest">') :]
    rows = re.findall(
        r'class="number">(\d+)</span> <span><code>(\w+)</code> <small>([^<]*)</small>.*?<td>([^<]*)</td>',
        table,
    )
    assert len(rows) == 30
    assert rows[0] == ("1", "node40", "Conv", "not finite")
    assert rows[1] == ("2", "node38", "Conv", "3.8e-03")
    assert [int(row[0]) for row in rows] == list(range(1, 31))
    assert ("26", "node14", "Conv, kept back", "1.4e-03") in rows
    assert "10 more move them less." in html


def test_variants_of_one_search_share_its_picture() -> None:
    html = section([], variants.integer(), variants.integer(name="int8-2", error=4e-3))
    assert html.count('aria-label="How far each of 40 nodes') == 2  # wide and narrow
    assert "How far each node alone moves the answers: see int8." in html
    assert "14 nodes kept back, and why" in html
    assert "int8, int8-2</strong>: calibrated on 12 items" in html


def test_names_and_reasons_are_only_text() -> None:
    kept = (KeptNode(node=HOSTILE, op=HOSTILE, precision="fp32", reason=HOSTILE, figures={HOSTILE: 1.0}),)
    moved = tuple(replace(each, node=HOSTILE, op=HOSTILE) for each in variants.integer().sensitivity)
    made = variants.integer(
        name=HOSTILE,
        target=HOSTILE,
        kept=kept,
        sensitivity=moved,
        notes=(HOSTILE,),
        recipe={HOSTILE: HOSTILE},
    )
    html = section(fakes.journal(), made)
    assert "<script" not in html
    assert "<b>" not in html
    for picture in re.findall(r"<svg.*?</svg>", html, re.S):
        ElementTree.fromstring(picture)
    assert html.count("&lt;script&gt;alert(1)") > 20


def task(drop: float) -> TaskMetric:
    return TaskMetric(name="top1", reference=0.976, candidate=0.976 - drop, samples=360, max_drop=0.01)


def three() -> list[Record]:
    """fp32 that loses nothing, fp16 that is fastest, int8 that is between them and loses most."""
    return [
        fakes.measured("ort_cpu", fakes.cpu(), 0.050, verdict=fakes.verdict(task=task(0.0))),
        fakes.measured("ort_cpu", fakes.cpu(), 0.020, precision="fp16", verdict=fakes.verdict(task=task(0.002))),
        fakes.measured("ort_cpu", fakes.cpu(), 0.030, precision="int8", verdict=fakes.verdict(task=task(0.004))),
    ]  # fmt: skip


def test_the_trade_off_is_of_what_the_device_lost() -> None:
    html = section(three())
    assert "↑ top1 lost, points" in html
    titles = re.findall(r"<title>(ort_cpu [^<]*p90[^<]*)</title>", html)
    assert any("fp16" in title and "0.200 points of top1 lost" in title for title in titles)
    assert any("int8" in title and "0.400 points of top1 lost" in title for title in titles)
    assert "No other plan beats 1, 3 on both." in html  # fp16, the pick, and fp32
    picture = next(p for p in re.findall(r"<svg.*?</svg>", html, re.S) if "latency-540" in p)
    assert 'class="series frontier"' in picture
    assert 'class="series allowed"' in picture


def test_without_labels_the_trade_off_is_of_the_error() -> None:
    records = [
        replace(record, verdict=fakes.verdict(10.0 ** (-7 + index))) for index, record in enumerate(three())
    ]
    html = section(records)
    assert "↑ distance from fp32 (relative L2)" in html
    assert "allowed at most" not in html
    assert "1.0e-06 from fp32" in html


def test_answers_that_moved_are_not_on_the_front() -> None:
    trades = [
        Trade(1, 5.0, 0.3, "pick", "a"),
        Trade(2, 1.0, 0.0, "moved", "b"),
        Trade(3, 9.0, 0.1, "passed", "c"),
        Trade(4, 9.5, 0.1, "passed", "d"),
        Trade(5, 4.0, 0.5, "passed", "e"),
    ]
    assert [trade.number for trade in front(trades, more_is_faster=False)] == [5, 1, 3]
    assert [trade.number for trade in front(trades, more_is_faster=True)] == [4]
    # 0.3 is not less than half of 0.5, and 0.1 is
    assert [trade.number for trade in front(trades, more_is_faster=False, factor=2)] == [5, 3]


def test_beside_a_plan_that_is_no_faster_stands_why() -> None:
    slow = fakes.measured(
        "ort_cpu", fakes.cpu(), 0.06, precision="int8",
        placement=Placement(
            providers=(ProviderShare(provider="CPUExecutionProvider", nodes=140),), source="onnxruntime profile"
        ),
    )  # fmt: skip
    fp32 = fakes.measured("ort_cpu", fakes.cpu(), 0.05, placement=fakes.CPU_ONLY)
    html = render(fakes.bundle([fp32, slow]), [fp32, slow])
    assert "it runs 140 kernels where fp32 runs 122" in text(html[html.index('id="no-faster"') :])
    assert html.count('<a href="#no-faster"') == 1
    assert "no-faster" not in render(fakes.bundle(three()), three())


def dots(svg: str) -> dict[str, float]:
    """Height of each numbered dot, from the top."""
    found = re.findall(r'<circle cx="[\d.]+" cy="([\d.]+)"[^>]*/><title>[^<]*</title><text [^>]*>(\d+)<', svg)
    return {number: float(y) for y, number in found}


@pytest.mark.parametrize("size", [WIDE, NARROW])
def test_nodes_stand_by_their_error(size: tuple[int, int]) -> None:
    errors = (1e-4, 1e-2, None, 1e-3, 0.0)
    rank = (4, 2, 1, 3, 5)
    nodes = [Moved(f"n{i}", "Conv", i + 1, rank[i], error, i == 1) for i, error in enumerate(errors)]
    svg = str(sensitivity("s", nodes, size))
    height = dots(svg)
    assert height["1"] < height["2"] < height["3"] < height["4"] == height["5"]
    # a factor of ten is the same distance everywhere
    assert height["3"] - height["2"] == pytest.approx(height["4"] - height["3"], rel=1e-3)
    assert "most n2 (Conv): the answers are not finite; 1 are kept back" in svg
    assert "n1 (Conv): 1.0e-02, kept back" in svg


@pytest.mark.parametrize("count", [1, 2, 2000])
def test_one_node_or_thousands_make_a_picture_of_bounded_size(count: int) -> None:
    nodes = [Moved(f"n{i}", "Conv", i + 1, i + 1, 1e-3, False) for i in range(count)]
    svg = str(sensitivity("s", nodes, NARROW))
    assert svg.count("<circle") == min(count, 30)
    assert len(svg) < 100_000


def test_numbers_do_not_cover_one_another() -> None:
    nodes = [Moved(f"n{i}", "Conv", i + 1, i + 1, 1e-3, False) for i in range(200)]
    svg = str(sensitivity("s", nodes, WIDE))
    places = sorted(map(float, re.findall(r'<circle cx="([\d.]+)"[^>]*/><title>[^<]*</title><text ', svg)))
    assert len(places) >= 3
    assert min(b - a for a, b in itertools.pairwise(places)) >= 16


def test_nothing_lost_anywhere_still_makes_a_picture() -> None:
    trades = [Trade(1, 1.0, 0.0, "pick", "a"), Trade(2, 1.0, 0.0, "passed", "b")]
    for allowed in (None, 0.0, 1.0):
        assert "<svg" in str(tradeoff("t", trades, trades[:1], allowed, WIDE))


def test_where_nothing_is_lost_it_is_said_and_no_empty_picture_is_made() -> None:
    lossless = [replace(record, verdict=fakes.verdict(task=task(0.0))) for record in three()]
    html = section(lossless)
    assert "No plan loses anything: in every precision that was measured top1 is what it is in fp32." in text(
        html
    )
    assert "<svg" not in html
    assert "No plan loses anything" not in section(three())


def test_nodes_of_which_none_moves_the_answers_make_no_picture() -> None:
    still = tuple(Sensitivity(node=f"n{number}", op="Relu", error=0.0) for number in range(3))
    html = section([], replace(variants.half(), sensitivity=still))
    assert "No node alone moves the answers." in html
    assert "<svg" not in html


def test_models_of_one_name_are_told_apart() -> None:
    records = three()
    other = replace(records[1], model=replace(records[1].model, sha256="b" * 64, precision="fp16"))
    page = render(fakes.bundle([records[0], other]), [records[0], other])
    models = re.search(r'<section id="model">.*?</section>', page, re.S)
    assert models is not None
    titles = re.findall(r"<h3>(.*?)</h3>", models[0])
    assert len(set(titles)) == 2
