"""The benchmark of auto at twice the published batches: what fits whole is as fast as plain, and is planned."""
from __future__ import annotations

from benchmarks.doubled import CAPACITIES, CASES, Case, measure


def test_what_fits_plainly_keeps_its_speed_and_has_a_verified_plan() -> None:
    lines = list(measure(Case("AlexNet", 4, "nobody"), with_plan=True))
    assert len(lines) == len(CAPACITIES)
    for line in lines:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert cells[1:3] == ["8", "2 x 4 (nobody)"]
        assert cells[4].endswith("100.0%") and cells[4] == cells[5]
        assert cells[6].endswith(", 100.0%")


def test_the_cases_are_twice_the_published_batches() -> None:
    assert {(case.network, case.batch) for case in CASES if case.system == "Capuchin"} == {
        ("ResNet-50", 2028), ("ResNet-152", 1596), ("InceptionV3", 1432), ("InceptionV4", 936)}
