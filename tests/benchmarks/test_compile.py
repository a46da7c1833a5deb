"""The compile benchmark: chains have about the nodes they are asked for, and growth is time a node."""
from __future__ import annotations

import pytest

from benchmarks import compile as benchmark


def row(family: str, nodes: int, seconds: float) -> benchmark.Row:
    return benchmark.Row(family, nodes, nodes, seconds, {"pack": seconds}, 0, 0)


def test_growth_is_one_where_time_is_proportional_to_nodes() -> None:
    rows = [row("a", 1000, 1.0), row("a", 5000, 5.0), row("b", 10, 1.0), row("b", 100, 100.0)]
    assert benchmark.growths(rows) == pytest.approx({"a": 1.0, "b": 10.0})


def test_a_chain_has_about_the_nodes_that_it_is_asked_for() -> None:
    found = benchmark.compile_once(benchmark.Case("chain", 500))
    assert 0.7 * 500 <= found.nodes <= 1.3 * 500
    assert set(found.pass_seconds) >= {"schedule", "pack", "verify"} and found.peak_bytes >= found.import_bytes
    assert sum(found.pass_seconds.values()) <= found.seconds


def test_what_takes_longer_than_the_limit_is_left_out_and_named() -> None:
    assert benchmark.measure(benchmark.CASES[0], 1, limit_seconds=1e-3) is None
    text = benchmark.markdown([row("a", 1000, 1.0)], ["chain, 50000"])
    assert "Not compiled within the limit: chain, 50000." in text
