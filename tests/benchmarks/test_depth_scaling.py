"""The parts of the depth benchmark that decide: the search, the watcher and the ratios."""
from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import depth_networks, depth_scaling
from benchmarks.watch import peak_bytes, watch
from minigraph.base import MXNetError

if not sys.platform.startswith("linux"):
    pytest.skip("peak memory is read from /proc", allow_module_level=True)
MIB = 2**20
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("limit", [0, 1, 3, 7, 50, 333])
def test_bisection_finds_the_largest_that_fits(limit: int) -> None:
    tried: list[int] = []

    def fits(n: int) -> bool:
        tried.append(n)
        return n <= limit
    assert depth_scaling.deepest(fits, 1, 0.0) == limit
    assert len(tried) == len(set(tried)) < 25


def test_bisection_stops_at_the_resolution() -> None:
    found = depth_scaling.deepest(lambda n: n <= 999, 2, 0.1)
    assert 999 / 1.1 <= found <= 999


def test_the_watcher_ends_a_process_above_the_cap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "greedy.py").write_text("import time; x = bytearray(200 * 2**20); time.sleep(60)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = watch("greedy", [], 100 * MIB)
    assert found.killed and not found.fits and found.peak_bytes > 100 * MIB


def test_a_short_peak_above_the_cap_does_not_escape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "brief.py").write_text("from benchmarks.watch import peak_bytes; import json; "
                                       "x = bytearray(90 * 2**20); x = None; "
                                       "print(json.dumps({'peak_bytes': peak_bytes()}))")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert not watch("brief", [], 60 * MIB).fits
    below = watch("brief", [], 400 * MIB)
    assert below.fits and 90 * MIB < below.peak_bytes < 400 * MIB


def test_a_process_that_fails_does_not_fit_and_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken.py").write_text("raise SystemExit('no luck')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = watch("broken", [], None)
    assert not found.fits and not found.killed and "no luck" in found.error


def test_peak_bytes_counts_pages_that_were_given_back() -> None:
    code = """
import numpy as np
from benchmarks.watch import peak_bytes
before = peak_bytes()
block = np.ones(64 * 2**20, np.uint8)
del block
print(peak_bytes() - before)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert int(done.stdout) >= 32 * MIB, "a process of its own: others may have had a higher peak before"
    assert peak_bytes(2**30) == 0


def test_a_compiled_plan_trains_and_its_loss_falls(tmp_path: Path) -> None:
    given = argparse.Namespace(depth=8, batch=4, steps=2, plan=str(tmp_path / "p.json"), memory="auto", budget="4MiB")
    compiled = depth_networks.compile_plan(given)
    assert compiled["planned_bytes"] <= 4 * MIB
    found = depth_networks.train_minigraph(given)
    assert found["planned_bytes"] == compiled["planned_bytes"]
    assert all(np.isfinite(found["losses"])) and len(found["seconds"]) == 2


def test_a_budget_that_is_too_small_tells_the_least(tmp_path: Path) -> None:
    given = argparse.Namespace(depth=8, batch=4, plan=str(tmp_path / "p.json"), memory="auto", budget="100kB")
    assert depth_networks.compile_plan(given)["least_bytes"] > 100_000


def test_first_values_depend_on_the_name_alone() -> None:
    one, two = (depth_networks.initial_value(name, (8, 4, 3, 3)) for name in ("a_weight", "b_weight"))
    assert np.array_equal(one, depth_networks.initial_value("a_weight", (8, 4, 3, 3))) and not np.array_equal(one, two)
    assert depth_networks.initial_value("a_gamma", (2,)).tolist() == [1, 1]


def test_the_time_ratio_is_taken_against_the_faster_checkpointing() -> None:
    def taken(seconds: float) -> dict[str, float]:
        return {"median": seconds, "least": seconds, "most": seconds}
    rows = [{"depth": 8, "torch block": taken(4.0), "torch sqrt": taken(2.0), "minigraph auto": taken(3.0)},
            {"depth": 14, "torch eager": taken(1.0)}]
    assert depth_scaling.time_ratio(rows) == 1.5


def test_what_a_process_takes_beside_its_arenas_is_learnt_from_runs_that_fitted(tmp_path: Path) -> None:
    bench = depth_scaling.Bench(512 * MIB, 32, 1, tmp_path)
    bench.runs = [depth_scaling.Run("minigraph", "plain", 20, True, 100 * MIB, 50 * MIB),
                  depth_scaling.Run("minigraph", "plain", 182, True, 506 * MIB, 448 * MIB),
                  depth_scaling.Run("minigraph", "plain", 200, False, 513 * MIB, 493 * MIB)]
    assert bench._overhead(1000) > 58 * MIB * 1.5


def test_an_earlier_run_gives_pytorchs_depths_and_where_minigraph_begins(tmp_path: Path,
                                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    bench, asked = depth_scaling.Bench(512 * MIB, 32, 1, tmp_path), []

    def run(mode: str, depth: int, steps: int) -> depth_scaling.Run:
        asked.append(depth)
        return depth_scaling.Run("minigraph", mode, depth, depth <= 300, 1)
    monkeypatch.setattr(bench, "minigraph", run)
    earlier = {"torch eager": 74, "torch block": 242, "torch sqrt": 338, "minigraph plain": 182, "minigraph auto": 242}
    found = depth_scaling.search(bench, 4, 0.1, earlier)
    assert found["torch checkpoint"] == 338 and found["torch eager"] == 74
    assert asked[0] == 92 and {122, 242} <= set(asked) and 270 <= found["minigraph auto"] <= 300
    path = tmp_path / "earlier.json"
    path.write_text(json.dumps({"summary": {"cap_bytes": 512 * MIB, "batch": 8, "threads": 1}}))
    with pytest.raises(MXNetError, match="is of a run with cap, batch and threads"):
        depth_scaling.earlier_figures(str(path), bench)
    assert depth_scaling.earlier_figures(None, bench) is None
