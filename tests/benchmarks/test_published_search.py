"""The benchmark of published tables: the search, what it asks, and the page it writes."""
from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.published.__main__ import main
from benchmarks.published.search import NEVER, Setting, Step, largest, least_bytes, least_seconds
from benchmarks.published.tables import FIGURES, NETWORKS
from minigraph.memory.machine import MACHINES
from tests.memory.test_policies import convolutional

SETTING = Setting("P100", 1 << 40)


@pytest.mark.parametrize("start", [1, 10, 1000, 100_000])
@pytest.mark.parametrize("fixed, each, step", [(0, 1, 1), (700, 3, 1), (5000, 7, 64), (10_001, 1, 1)])
def test_the_search_finds_the_largest_that_fits(start: int, fixed: int, each: int, step: int) -> None:
    tried: list[int] = []

    def needed(n: int) -> int:
        tried.append(n)
        return fixed + each * -(-n // step) * step
    found = largest(needed, 10_000, start, 0.0)
    assert found == max((n for n in range(1, 10_001) if fixed + each * -(-n // step) * step <= 10_000), default=0)
    assert len(tried) == len(set(tried)) < 60


def test_the_search_stops_where_the_capacity_is_filled() -> None:
    tried: list[int] = []
    found = largest(lambda n: tried.append(n) or 200 + 11 * n, 10**6, 100, 0.01)
    assert 0.99 * 10**6 <= 200 + 11 * found <= 10**6 and len(tried) < 8


def small(n: int):
    return convolutional(), {"data": (n, 3, 16, 16)}


def test_what_a_policy_needs_by_the_quick_count_is_about_what_its_plan_takes() -> None:
    step = Step(small, 64, SETTING)
    found = step.candidates("superneurons")
    lowest = min(found, key=lambda c: c.peak_bytes)
    costs = [(c.peak_bytes, c.seconds) for c in found]
    fastest = least_seconds(costs, 1 << 60)
    assert fastest == pytest.approx(step.plain_seconds) and least_bytes(costs) == lowest.peak_bytes
    assert least_bytes(costs, fastest) > lowest.peak_bytes and least_bytes(costs, 0.0) == NEVER
    assert lowest.peak_bytes <= step.planned_bytes(lowest) <= 1.02 * lowest.peak_bytes


def test_every_figure_has_its_network_and_machine() -> None:
    assert len({(f.table, f.network, f.system) for f in FIGURES}) == len(FIGURES)
    assert all(f.network in NETWORKS and f.machine in MACHINES and f.published > 0 for f in FIGURES)


def test_depths_are_rounded_down_to_whole_units() -> None:
    symbol, shapes = NETWORKS["ResNet by depth"].build()(1920)
    names = symbol.list_arguments()
    assert shapes["data"] == (16, 3, 224, 224)
    assert sum(name.startswith("stage3") and name.endswith("conv1_weight") for name in names) == 595


def test_the_page_has_what_was_measured(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    page, document = tmp_path / "page.md", tmp_path / "figures.json"
    code = main(["--quick", "--only", "Table 5: batch / AlexNet", "--markdown", str(page), "--json", str(document)])
    assert code == 0 and "1489.355 | 1489.355" in capsys.readouterr().out
    found = json.loads(document.read_text())
    assert found["summary"]["reached"] == found["summary"]["by_their_policy"] == 2 and found["quick"]
    assert "| AlexNet | SuperNeurons | 1792 | superneurons: " in page.read_text()
