"""The page in a real browser: it reads as it should, asks for nothing, complains of nothing, fits a phone."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes import records as fakes
from fakes import variants
from msgspec.structs import replace

from wavefit.report.page import render

websocket = pytest.importorskip("websocket")

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        BROWSER is None, reason=f"no browser found: none of {', '.join(NAMES)} is on the PATH"
    ),
]

SWITCHES = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-port=0",
    "--remote-allow-origins=*",
)
WAIT_S = 60


class Tab:
    """A tab driven through the DevTools protocol; keeps every event that it was sent."""

    def __init__(self, address: str) -> None:
        self._socket = websocket.create_connection(address, timeout=WAIT_S)
        self._ids = itertools.count(1)
        self.events: list[dict[str, Any]] = []
        for domain in ("Network", "Log", "Runtime", "Page"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._ids)
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv())
            if message.get("id") == number:
                assert "error" not in message, message
                return dict(message["result"])
            self.events.append(message)

    def open(self, path: Path, width: int, scheme: str = "light") -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=800,
            deviceScaleFactor=1,
            mobile=width < 500,
        )
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.events.clear()
        self.call("Page.navigate", url=path.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(json.loads(self._socket.recv()))

    def ask(self, expression: str) -> Any:
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def named(self, *methods: str) -> list[dict[str, Any]]:
        return [event["params"] for event in self.events if event.get("method") in methods]

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(scope="module")
def tab() -> Iterator[Tab]:
    assert BROWSER is not None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [BROWSER, *SWITCHES, f"--user-data-dir={profile}", "about:blank"]
        browser = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        assert browser.stderr is not None
        try:
            line = next(line for line in browser.stderr if "DevTools listening on" in line)
            host = line.split("ws://")[1].split("/")[0]
            with urllib.request.urlopen(f"http://{host}/json", timeout=WAIT_S) as answer:
                pages = [one for one in json.load(answer) if one["type"] == "page"]
            tab = Tab(pages[0]["webSocketDebuggerUrl"])
            yield tab
            tab.close()
        finally:
            browser.terminate()
            browser.wait(WAIT_S)
            browser.stderr.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    long = "a_name_without_a_break_" * 12
    gpu = fakes.gpu(name=long)
    journals = {
        "laptop": fakes.journal(),
        "hostile": [
            fakes.measured("<script>document.title='ran'</script>", fakes.gpu(name="<img src=x onerror=f(1)>"), 0.01)
        ],
        "long": [
            fakes.measured(long, gpu, 0.01 * batch, options={long: 1}, batch=batch, model=fakes.model(name=long))
            for batch in (1, 2)
        ],
        "lower": fakes.journal(),
        "nothing": [],
    }  # fmt: skip
    kept = variants.integer().kept
    named = [replace(kept[0], node=long, reason=f"its output `{long}` is large"), *kept[1:]]
    found = {"lower": (variants.half(), variants.integer(kept=tuple(named)), variants.integer(name="int8-2"))}
    made = {}
    for name, journal in journals.items():
        made[name] = folder / f"{name}.html"
        bundle = fakes.bundle(journal, name=name, model=fakes.model(), variants=found.get(name, ()))
        made[name].write_text(render(bundle, journal), encoding="utf-8")
    return made


def test_its_text_reads_as_it_should(tab: Tab, pages: dict[str, Path]) -> None:
    tab.open(pages["laptop"], 1280)
    text = tab.ask("document.body.innerText")
    for words in (
        "ort_migraphx fp16 batch 1 wins on latency",
        "Example Graphics",
        "answers moved",
        "HIP out of memory",
        "use ort_migraphx or ort_webgpu on Linux",
        "rapl package-0",
        "wavefit run laptop.wavefit",
        "wavefit optimize resnet50.onnx",
    ):
        assert words in text, words


@pytest.mark.parametrize("name", ["laptop", "hostile", "long", "lower", "nothing"])
def test_no_request_leaves_and_nothing_is_complained_of(tab: Tab, pages: dict[str, Path], name: str) -> None:
    tab.open(pages[name], 1280)
    addresses = [params["request"]["url"] for params in tab.named("Network.requestWillBeSent")]
    assert [address for address in addresses if not address.startswith("data:")] == [pages[name].as_uri()]
    assert tab.named("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded") == []
    assert tab.ask("document.title") == f"{name} – wavefit report"  # noqa: RUF001


@pytest.mark.parametrize("width", [320, 375, 800, 1400])
@pytest.mark.parametrize("name", ["laptop", "hostile", "long", "lower", "nothing"])
def test_the_page_never_scrolls_sideways(tab: Tab, pages: dict[str, Path], name: str, width: int) -> None:
    tab.open(pages[name], width)
    tab.ask("document.querySelectorAll('details').forEach(one => one.open = true)")
    # A desktop's scroll bar takes 15 pixels of the width; a phone's takes none.
    inner = tab.ask("document.documentElement.clientWidth")
    assert width - 20 <= inner <= width
    assert tab.ask("document.documentElement.scrollWidth") <= inner


@pytest.mark.parametrize("width", [375, 1400])
@pytest.mark.parametrize(("name", "pictures"), [("laptop", 2), ("lower", 3)])
def test_one_of_each_picture_shows_and_its_text_is_not_tiny(
    tab: Tab, pages: dict[str, Path], name: str, pictures: int, width: int
) -> None:
    tab.open(pages[name], width)
    seen = "[...document.querySelectorAll('svg')].filter(one => one.getClientRects().length)"
    assert tab.ask(f"{seen}.length") == pictures
    heights = tab.ask(
        f"{seen}.flatMap(s => [...s.querySelectorAll('.axis text')].map(t => t.getBoundingClientRect().height))"
    )
    assert min(heights) >= 11


CONTRAST = """
(() => {
  const channel = c => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const parse = text => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const ground = one => {
    for (; one; one = one.parentElement) {
      const color = parse(getComputedStyle(one).backgroundColor);
      if (color.length < 4 || color[3] > 0) return color;
    }
  };
  const poor = [];
  for (const one of document.querySelectorAll('body *:not(svg):not(svg *)')) {
    if (![...one.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
    const [a, b] = [light(parse(getComputedStyle(one).color)), light(ground(one))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) poor.push(`${one.tagName}.${one.className} ${ratio.toFixed(2)} ${one.textContent.slice(0, 30)}`);
  }
  return poor;
})()
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["laptop", "lower"])
def test_text_stands_out_by_wcag_aa(tab: Tab, pages: dict[str, Path], name: str, scheme: str) -> None:
    """WCAG 2.2, 1.4.3: a contrast of 4.5 to 1 for text, by its formula of relative luminance."""
    tab.open(pages[name], 1280, scheme)
    assert tab.ask(CONTRAST) == []
    ground = tab.ask("getComputedStyle(document.body).backgroundColor")
    assert ground == {"light": "rgb(251, 250, 247)", "dark": "rgb(21, 23, 26)"}[scheme]


@pytest.mark.parametrize("width", [1140, 1300, 1400])
def test_the_table_of_plans_is_whole_on_a_desktop(tab: Tab, pages: dict[str, Path], width: int) -> None:
    tab.open(pages["laptop"], width)
    table = "document.querySelector('[aria-label=\"Measured plans\"]')"
    assert tab.ask(f"{table}.scrollWidth") <= tab.ask(f"{table}.clientWidth")
