"""The page as a text: what it says, what it escapes, what it never loads."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import msgspec
from fakes import records as fakes

from wavefit.report.page import render
from wavefit.schema import Bundle, Failure, OutputError, Record, TensorSpec

HOSTILE = "<script>alert(1)</script>\"'&<img src=x onerror=alert(2)>"


class Page(HTMLParser):
    """Tags with their attributes, and the text outside of the style sheet."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._text: list[str] = []
        self._in_style = False
        self.feed(html)
        self.text = " ".join(" ".join(self._text).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._in_style = tag == "style"

    def handle_endtag(self, tag: str) -> None:
        self._in_style = False

    def handle_data(self, data: str) -> None:
        if not self._in_style:
            self._text.append(data)


def page(records: list[Record], **changes: Any) -> Page:
    return Page(render(fakes.bundle(records, **changes), records))


def test_says_the_pick_first_and_what_it_takes() -> None:
    records = fakes.journal()
    bundle = fakes.bundle(records)
    html = render(bundle, records)
    shown = Page(html)
    headline = re.search(r"<h1>(.*?)</h1>", html)
    assert headline is not None
    assert headline[1].startswith("ort_migraphx fp16 batch 1 wins on latency")
    pick = next(r for r in records if r.key == bundle.choice.pick)
    assert pick.measurement is not None
    assert pick.measurement.latency is not None
    assert f"{pick.measurement.latency.latency.p50_s * 1e3:.2f} ms" in shown.text
    assert "268 MiB" in shown.text
    assert "160 mJ" in shown.text


def test_says_why_what_failed_failed_and_what_mends_it() -> None:
    shown = page(fakes.journal())
    assert "HIP out of memory: tried to allocate 98 MiB" in shown.text
    assert "raise --deadline" in shown.text
    assert "DirectML is Windows only" in shown.text
    assert "use ort_migraphx or ort_webgpu on Linux" in shown.text
    assert "throughput had stopped rising at batch 8" in shown.text
    assert "First node that moved: /layer2/2/Add (Add)" in shown.text


def test_says_why_no_gpu_was_used() -> None:
    shown = page([fakes.measured("ort_cpu", fakes.cpu(), 0.05)])
    assert "No GPU was used. Why, and what would mend it" in shown.text
    assert "What cannot run here, and why" in shown.text
    ids = [attributes.get("id") for _, attributes in shown.tags]
    assert "refused" in ids
    # The GPU that nothing could use stands on the page as a device of the machine.
    assert "Example Graphics" in shown.text


def test_a_gpu_that_only_failed_is_not_a_gpu_that_was_used() -> None:
    failed = fakes.failed("torch_gpu", fakes.gpu(), Failure(kind="crash", stage="open", reason="SIGSEGV"))
    shown = page([fakes.measured("ort_cpu", fakes.cpu(), 0.05), failed], refusals=(), skipped=())
    assert "No GPU was used." in shown.text
    assert "crash at open: SIGSEGV" in shown.text
    assert sum(attributes.get("id") == "refused" for _, attributes in shown.tags) == 1


def test_a_gpu_whose_answers_moved_was_used() -> None:
    moved = fakes.record(fakes.plan("ort_webgpu", "gpu0"), fakes.gpu(), verdict=fakes.MOVED)
    shown = page([fakes.measured("ort_cpu", fakes.cpu(), 0.05), moved], refusals=(), skipped=())
    assert "No GPU plan passed." in shown.text
    assert "No GPU was used." not in shown.text


def test_accuracy_is_that_of_the_worst_output_with_what_was_allowed_of_it() -> None:
    near, label = fakes.verdict().outputs[0], OutputError(output="label", elements=8)
    far = msgspec.structs.replace(near, output="boxes", rel_l2=5.5e-6, rel_l2_float64=6.5e-6)
    record = fakes.measured("ort_cpu", fakes.cpu(), 0.05, verdict=fakes.verdict(outputs=(near, far, label)))
    assert "5.5e-06 6.5e-06 of 8.0e-06 allowed 2.5e-07" in page([record]).text
    missing = OutputError(output="gone", elements=0)
    moved = msgspec.structs.replace(record, verdict=fakes.verdict(outputs=(near, missing), passed=False))
    assert "5.5e-06" not in page([moved]).text
    assert "answers moved — — — — — —" in page([moved]).text


def test_what_was_not_measured_is_never_zero() -> None:
    bare = fakes.measurement(0.05, host_peak_bytes=None, new_shape_s=None, steady_after_runs=None, power=())
    record = fakes.measured("ort_cpu", fakes.cpu(), 0.05, measurement=bare, placement=None)
    html = render(fakes.bundle([record]), [record])
    assert "Not measured: no power meter could be read" in html
    assert "Not known for 1 ort_cpu fp32 batch 1." in html
    row = re.search(r"<tbody>\s*(.*?)</tr>", html, re.S)
    assert row is not None
    assert row[1].count("—") == 3  # peak memory, watts, joules
    assert not re.search(r"\b0 (MiB|B|W|J|mJ)\b", html)


def test_predicted_stands_beside_measured() -> None:
    shown = page(fakes.journal())
    assert "Predicted against measured" in shown.text
    assert "6.40 ms" in shown.text
    assert "Predicted against measured" not in page([fakes.measured("ort_cpu", fakes.cpu(), 0.05)]).text


def test_a_run_that_loadgen_calls_not_valid_is_noted() -> None:
    bad = fakes.scenario("SingleStream", 0.05, 20.0, valid=False, reasons=("too few queries",))
    record = fakes.measured(
        "ort_cpu", fakes.cpu(), 0.05, measurement=fakes.measurement(0.05, scenarios=(bad,))
    )
    assert "LoadGen calls its SingleStream run not valid: too few queries" in page([record]).text


def test_a_limit_that_is_missed_is_told_from_answers_that_moved() -> None:
    records = fakes.journal()
    bundle = fakes.bundle(records)
    limits = msgspec.structs.replace(bundle.request.constraints, max_latency_s=0.02)
    request = msgspec.structs.replace(bundle.request, constraints=limits)
    shown = page(records, request=request)
    assert "p90 latency 56.9 ms misses the limit of 20 ms" in shown.text
    assert "misses a limit" in shown.text


def test_names_from_models_and_devices_are_only_text() -> None:
    device = fakes.gpu(name=HOSTILE, driver=HOSTILE, machine=HOSTILE)
    spec = TensorSpec(name=HOSTILE, dtype="float32", shape=(HOSTILE, None, 3))
    model = fakes.model(name=HOSTILE, inputs=(spec,), nodes_by_type={HOSTILE: 3}, producer=HOSTILE)
    output = OutputError(output=HOSTILE, elements=1, rel_l2=None, nan=1)
    records = [
        fakes.measured(
            HOSTILE,
            device,
            0.01 * batch,
            batch=batch,
            model=model,
            options={HOSTILE: HOSTILE},
            verdict=fakes.verdict(warnings=(HOSTILE,), outputs=(output,)),
        )
        for batch in (1, 2)
    ]
    records.append(
        fakes.failed("r", device, Failure(kind="error", stage="open", reason=HOSTILE, fix=HOSTILE))
    )
    html = render(fakes.bundle(records, name=HOSTILE, command=HOSTILE, devices=(device,)), records)
    shown = Page(html)
    assert "script" not in {tag for tag, _ in shown.tags}
    assert "img" not in {tag for tag, _ in shown.tags}
    assert not [name for _, attributes in shown.tags for name in attributes if name.startswith("on")]
    assert shown.text.count("<script>alert(1)</script>") >= 10


def test_loads_nothing_and_forbids_it() -> None:
    shown = page(fakes.journal())
    policies = [a.get("content") for tag, a in shown.tags if tag == "meta" and a.get("http-equiv")]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'; img-src data:"]
    addresses = [
        value
        for _, attributes in shown.tags
        for name, value in attributes.items()
        if name in ("src", "href", "xlink:href")
    ]
    assert all(value and value.startswith(("#", "data:,")) for value in addresses)
    html = render(fakes.bundle(fakes.journal()), fakes.journal())
    assert "@import" not in html
    assert "url(" not in html
    assert not re.search(r"https?://(?!www\.w3\.org/)", html)


def test_every_picture_is_well_formed_and_told_in_words() -> None:
    html = render(fakes.bundle(fakes.journal()), fakes.journal())
    pictures = re.findall(r"<svg.*?</svg>", html, re.S)
    assert len(pictures) == 4  # two, each wide and narrow
    for picture in pictures:
        root = ElementTree.fromstring(picture)
        assert root.attrib["role"] == "img"
        assert len(root.attrib["aria-label"]) > 20
        assert {"script", "style", "a", "image"}.isdisjoint(one.tag.rpartition("}")[2] for one in root.iter())
    ids = re.findall(r'\bid="([^"]*)"', html)
    assert len(ids) == len(set(ids))


def test_dots_carry_the_numbers_of_the_table() -> None:
    records = fakes.journal()
    html = render(fakes.bundle(records), records)
    picture = next(p for p in re.findall(r"<svg.*?</svg>", html, re.S) if "pareto-540" in p)
    titles = re.findall(r"<title>(.*?)</title><text [^>]*>(\d+)</text>", picture)
    assert len(titles) == 8
    rows = dict(re.findall(r'class="number">(\d+)</span> <span class="label" title="([^"]*)"', html))
    for title, number in titles:
        assert title.startswith(rows[number] + ": p90 ")


def test_is_the_same_for_the_same_records() -> None:
    records = fakes.journal()
    assert render(fakes.bundle(records), records) == render(fakes.bundle(records), records)


def test_stands_with_nothing_measured() -> None:
    for records in ([], [r for r in fakes.journal() if not r.passed]):
        bundle: Bundle = fakes.bundle(records)
        shown = Page(render(bundle, records))
        assert "No plan has a measurement." in shown.text
        assert "Nothing was picked" in shown.text
        assert "svg" not in {tag for tag, _ in shown.tags}


def test_many_plans_and_long_names() -> None:
    records = [
        fakes.measured(
            "torch_gpu", fakes.gpu(), 0.004 * batch**0.8, batch=batch, options={"mode": "x" * 200, "k": k}
        )
        for batch in (1, 2, 4, 8, 16)
        for k in range(6)
    ]
    shown = page(records)
    assert all(record.plan.label in shown.text for record in records)
