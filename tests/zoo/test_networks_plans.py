"""A training step of every network of the zoo, at its usual batch, is planned next to the lower bound.

A few networks are planned always, all of them with MINIGRAPH_TEST_FULL=1.
"""
from __future__ import annotations

import json
import os

import pytest

import zoo
from benchmarks import zoo_plans

FULL = os.environ.get("MINIGRAPH_TEST_FULL") == "1"
PLANNED = [case for case in zoo_plans.CASES if case.quick or FULL]


@pytest.mark.parametrize("case", PLANNED, ids=lambda case: case.name.replace(" ", "-"))
def test_a_verified_plan_lies_within_half_a_percent_of_the_lower_bound(case):
    row = zoo_plans.measure(case)
    assert row.lower_bound_bytes <= row.planned_bytes <= zoo_plans.WORST_RATIO * row.lower_bound_bytes
    assert row.planned_bytes < row.naive_bytes and row.nodes > 10 and row.verify_seconds > 0


def test_every_network_of_the_zoo_is_planned():
    assert {case.network.removeprefix("zoo.") for case in zoo_plans.CASES} == set(zoo.NETWORKS)
    assert len({case.name for case in zoo_plans.CASES}) == len(zoo_plans.CASES)


def test_the_benchmark_writes_its_table_and_its_figures(tmp_path, capsys):
    file = tmp_path / "figures.json"
    assert zoo_plans.main(["--quick", "--only", "squeezenet", "--json", str(file)]) == 0
    figures = json.loads(file.read_text())
    row, = figures["networks"]
    assert row["name"] == "squeezenet 1.1" and figures["summary"]["worst_ratio"] == row["ratio"]
    assert "squeezenet 1.1" in capsys.readouterr().out


def test_the_benchmark_fails_above_its_ratio_and_refuses_unknown_names(monkeypatch, capsys):
    monkeypatch.setattr(zoo_plans, "WORST_RATIO", 0.5)
    assert zoo_plans.main(["--only", "mlp"]) == 1
    with pytest.raises(SystemExit):
        zoo_plans.main(["--only", "no such network"])
    assert "no such network" in capsys.readouterr().err
