"""The benchmark of published tables: the search, what it asks, and the page it writes."""
from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.published.__main__ import main
from benchmarks.published.bench import AUTO, FULL, Bench, Ours, Row, setting
from benchmarks.published.page import claims, summary
from benchmarks.published.search import MOMENTUM, NEVER, Setting, Step, largest, least_bytes, least_seconds
from benchmarks.published.tables import FIGURES, HOST_BYTES, NETWORKS, Figure
from minigraph.memory.machine import MACHINES
from minigraph.memory.policies import POLICIES, Strategy
from minigraph.passes.schedule import plain
from minigraph.planning import plan
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


def tiny(n: int):
    return convolutional(2), {"data": (n, 3, 16, 16)}


class Tiny:
    """Stands for a network of the tables."""

    def build(self):
        return tiny


@pytest.fixture
def figure(monkeypatch: pytest.MonkeyPatch) -> Figure:
    """A small network in three quarters of what its plain order takes."""
    monkeypatch.setitem(NETWORKS, "tiny", Tiny())
    whole = Step(tiny, 64, SETTING).candidates("plain")[0].peak_bytes
    return Figure("Table 1: batch", "tiny", "SuperNeurons", "superneurons", 64, whole * 3 // 4, "P100")


def test_auto_is_asked_as_a_plan_with_the_capacity_as_its_budget(figure: Figure) -> None:
    row = Bench().measure(figure)
    auto = row.of(AUTO)
    found = plan(*tiny(64), "sgd", "step", "auto", budget=figure.capacity_bytes, host_budget=HOST_BYTES,
                 machine="P100", optimizer_params=MOMENTUM).figures
    assert auto is not None and auto.fits and auto.bytes <= figure.capacity_bytes
    assert auto.slower == pytest.approx(found.step_seconds / found.plain_step_seconds, rel=0.02) and auto.slower >= 1.0
    assert not row.ours[-1].behind(row.ours[0])


def test_the_full_search_is_asked_where_a_policy_is_ahead_and_is_never_behind(
        figure: Figure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(POLICIES, "auto", Strategy(plain, "fastest", combines=True))
    monkeypatch.setattr("benchmarks.published.search.AUTO", POLICIES["auto"])
    row = Bench().measure(figure)
    own, auto, full = (row.of(policy) for policy in ("superneurons", AUTO, FULL))
    assert own is not None and auto is not None and full is not None
    assert not auto.fits and auto.slower is None and auto.behind(own)
    assert full.fits and not full.behind(own)
    assert summary([row])["auto_slower"] == ["Table 1: SuperNeurons, tiny (does not fit)"]
    assert summary([row])["missed_by_auto"] == summary([row])["full_behind"] == []


def test_the_largest_sizes_fit_and_that_of_auto_is_not_the_smaller_one(figure: Figure) -> None:
    bench = Bench()
    row = bench.measure(figure)
    bench.search(row)
    own, auto = row.of("superneurons"), row.of(AUTO)
    assert own is not None and auto is not None and own.largest is not None and auto.largest is not None
    assert 64 < own.largest <= auto.largest
    for ours in (own, auto):
        assert ours.planned_bytes is not None and ours.planned_bytes <= figure.capacity_bytes
    with pytest.raises(ValueError):
        min(c.peak_bytes for c in Step(tiny, 2 * own.largest, setting(figure)).candidates("superneurons")
            if c.peak_bytes <= figure.capacity_bytes)


def test_the_page_names_each_row_where_a_claim_does_not_hold() -> None:
    figures = [Figure("Table 1: batch", name, "X", "lms", 8, 100, "P100") for name in ("a", "b", "c")]
    rows = [Row(figures[0], [Ours("lms", 50, True, 1.2, 20), Ours(AUTO, 40, True, 1.5, 10)]),
            Row(figures[1], [Ours("lms", 120, False), Ours(AUTO, 130, False)]),
            Row(figures[2], [Ours("lms", 50, True, 1.2), Ours(AUTO, 60, True, 1.0), Ours(FULL, 50, True, 1.0)])]
    found = summary(rows)
    assert found["missed"] == ["Table 1: X, b"] and found["missed_by_auto"] == ["Table 1: X, b (0.00 GB)"]
    assert found["auto_slower"] == ["Table 1: X, a (1.250)"]
    assert found["auto_larger"] == ["Table 1: X, b (1.083)", "Table 1: X, c (1.200)"]
    assert found["full_behind"] == [] and found["auto_smaller"] == ["Table 1: X, a (10 for 20)"]
    assert [line.rpartition(": ")[2] for line in claims(rows)[4:5]] == ["none."]


def test_every_figure_has_its_network_and_machine() -> None:
    assert len({(f.table, f.network, f.system) for f in FIGURES}) == len(FIGURES)
    assert all(f.network in NETWORKS and f.machine in MACHINES and f.published > 0 for f in FIGURES)
    assert all(f.policy in {None, "plain", *POLICIES} for f in FIGURES)


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
