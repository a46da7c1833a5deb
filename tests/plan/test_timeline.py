"""The timeline page: what it holds, and that a browser draws it."""
from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from minigraph.base import MXNetError
from minigraph.memory.machine import get_machine
from minigraph.plan.plan import AGAIN, Plan
from minigraph.plan.report import report
from minigraph.plan.simulate import simulate
from minigraph.plan.timeline import html

from .build import Maker, chain, scattered, swap
from .test_techniques import planned

BROWSER = next((path for path in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if path), None)


def data_of(page: str) -> dict[str, Any]:
    """The plan's data as the page's script reads them."""
    found = re.search(r'<script type="application/json" id="plan">(.*?)</script>', page, re.S)
    assert found is not None
    return json.loads(found[1])


def test_a_page_holds_every_instruction_and_storage_of_the_plan() -> None:
    made = planned("plain")
    data = data_of(html(made, "P100", budget="1GiB"))
    assert data["instructions"]["name"] == list(made.instructions.name)
    assert data["buffers"]["name"] == list(made.buffers.name)
    assert data["budget"] == 2**30 and data["planned"] == made.planned_bytes
    found = report(made)
    assert (data["peak"], data["peak_bytes"]) == (found.peak_instruction[0], found.peak_live_bytes)
    simulation = simulate(made, get_machine("P100"))
    assert data["machine"] == "P100" and data["seconds"] == simulation.seconds
    assert data["instructions"]["end"] == pytest.approx((simulation.end * 1e6).tolist(), abs=1e-3)


def test_storages_of_the_page_come_to_the_live_bytes_of_the_report() -> None:
    made = planned("vdnn_all", host_budget="1GiB")
    data = data_of(html(made))
    held, peak = data["storages"], data["peak"]
    live = [s for s in range(len(held["bytes"])) if held["born"][s] <= peak < held["dies"][s]]
    assert sum(held["bytes"][s] for s in live) == data["peak_bytes"]
    by_class = report(made).by_class
    assert {data["classes"][held["class"][s]] for s in live} == set(by_class)


def test_what_runs_again_is_marked() -> None:
    m = Maker()
    source, a, b = m.value("data", buffer_class="input"), m.value("a"), m.value("b", buffer_class="output")
    m.run("t_unary", (source,), (a,))
    m.run("t_unary", (source,), (b,), name=f"a{AGAIN}1")
    assert data_of(html(m.plan(inputs=(source,), outputs=(b,))))["instructions"]["kind"] == [0, 6]


def test_a_page_asks_nothing_of_the_network() -> None:
    page = html(chain())
    assert set(re.findall(r"https?://[^\"'\s]+", page)) == {"http://www.w3.org/2000/svg"}  # a name, not an address
    assert not re.search(r"<link|<img|<iframe|\bsrc=|@import|\bfetch\(|XMLHttpRequest|import\(", page)


def test_names_from_a_network_cannot_break_out_of_the_page() -> None:
    m = Maker()
    hostile = "</script><script>alert(1)</script>$title$data"
    source, a = m.value("data", buffer_class="input"), m.value(hostile, buffer_class="output")
    m.run("t_unary", (source,), (a,))
    page = html(m.plan(inputs=(source,), outputs=(a,)), title="<b>x</b>")
    assert "<script>alert" not in page and "<b>x</b>" not in page
    assert data_of(page)["buffers"]["name"][1] == hostile


def test_an_unknown_machine_and_a_budget_that_is_none_are_refused() -> None:
    with pytest.raises(MXNetError, match="no machine 'abacus'"):
        html(chain(), "abacus")
    with pytest.raises(ValueError, match="no byte count"):
        html(chain(), budget="much")


def drawn(page: str, tmp_path: Path, *, at: tuple[float, float], fragment: str = "") -> str:
    """The page's document in a browser, once it is drawn and the pointer is at a place of the chart: as shares of its
    width and, in pixels, from its top."""
    if BROWSER is None:
        pytest.skip("no Chromium is installed")
    point = f"""<script>window.addEventListener("load", () => {{ const box = chart.getBoundingClientRect();
        chart.dispatchEvent(new MouseEvent("mousemove", {{bubbles: true, clientX: box.left + {at[0]} * box.width,
                                                         clientY: box.top + {at[1]}}})); }});</script></body>"""
    path = tmp_path / "page.html"
    path.write_text(page.replace("</body>", point), encoding="utf-8")
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile",
               "--window-size=1280,900", "--virtual-time-budget=5000", "--dump-dom", f"{path.as_uri()}{fragment}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def tooltip(document: str) -> str:
    found = re.search(r'<div id="tip"[^>]*>(.*?)</div>\s*<script', document, re.S)
    assert found is not None
    return re.sub(r"<[^>]+>", " ", found[1])


@pytest.mark.parametrize("fragment", ["", "#time"])
def test_a_browser_draws_bands_lines_and_streams_and_names_what_is_under_the_pointer(fragment, tmp_path) -> None:
    made = planned("vdnn_all", host_budget="1GiB")
    document = drawn(html(made, "P100", budget=made.planned_bytes), tmp_path, at=(0.5, 395), fragment=fragment)
    bands = set(re.findall(r'class="band" data-class="(\w+)"', document))
    assert {"parameter", "activation", "backward"} <= bands
    assert set(re.findall(r'data-stream="(\w+)"', document)) == {"compute", "out", "in"}
    assert re.search(r">planned \d", document) and re.search(r">peak \d", document) and re.search(">budget ", document)
    text = tooltip(document)
    assert "live" in text and "float32" in text and "made at" in text and "last needed at" in text
    assert any(name in text for name in made.buffers.name)
    assert document.count("<tr>") > 10  # what is live at the peak


def test_mapped_tensors_are_drawn_as_device_bytes_and_their_addresses_are_told(tmp_path) -> None:
    data = data_of(html(scattered()))
    assert (data["planned"], data["peak_bytes"], data["mapped"]) == (320, 256, 256)
    assert data_of(html(chain()))["mapped"] == 0
    document = drawn(html(scattered()), tmp_path, at=(0.5, 300))
    assert "further addresses" in document[document.index('id="figures"'):document.index("<svg")]


def test_a_browser_tells_what_runs_on_a_stream(tmp_path) -> None:
    document = drawn(html(swap()), tmp_path, at=(0.5, 440))
    assert re.search(r"stream (compute|out|in)", tooltip(document))


def test_twenty_thousand_instructions_come_to_a_drawing_of_pixels(tmp_path) -> None:
    m = Maker()
    value = source = m.value("data", buffer_class="input")
    kept = []
    for k in range(10_000):
        value, before = m.value(f"v{k}"), value
        m.run("t_unary", (before,), (value,))
        kept.append(value)
    for k in reversed(range(10_000)):
        value, before = m.value(f"g{k}", buffer_class="backward"), value
        m.run("t_binary", (before, kept[k]), (value,))
    made: Plan = m.plan(inputs=(source,), outputs=(value,))
    document = drawn(html(made), tmp_path, at=(0.5, 300))
    svg = document[document.index('<svg id="chart"'):document.index("</svg>")]
    assert len(svg) < 200_000
    assert 'data-class="activation"' in svg and 'class="stream"' in svg
    assert "t_unary" in tooltip(document) or "t_binary" in tooltip(document)
