"""Values due from host memory: kept in the order of the steps that need them, and when the first copy must begin."""
from __future__ import annotations

import random

from minigraph.memory.policies.due import Due

STARTS = [0.0, 1.0, 3.0, 4.0, 8.0, 9.0]
SECONDS = [0.5, 0.25, 2.0, 1.5, 0.75, 1.0, 3.0, 0.125]


def latest_start(pairs: list[tuple[int, int]]) -> float:
    """When the first of some copies must begin, going through them from the last to the first."""
    latest = float("inf")
    for use, entry in reversed(pairs):
        latest = min(latest, STARTS[min(use, len(STARTS) - 1)]) - SECONDS[entry]
    return latest


def test_order_and_latest_start_are_those_of_all_values_that_are_away() -> None:
    draw = random.Random(5)
    due, away = Due(STARTS, SECONDS.__getitem__), dict[int, int]()
    for _ in range(400):
        entry = draw.randrange(len(SECONDS))
        if entry in away:
            del away[entry]
            due.discard(entry)
        else:
            away[entry] = draw.choice([0, 1, 2, 3, 4, 1 << 60])
            due.add(entry, away[entry])
        pairs = sorted((use, e) for e, use in away.items())
        assert list(due) == pairs and len(due) == len(pairs)
        assert all((e in due) == (e in away) for e in range(len(SECONDS)))
        assert abs(due.latest() - latest_start(pairs)) < 1e-12 or not pairs and due.latest() == float("inf")


def test_a_value_whose_step_has_passed_waits_for_its_next_one() -> None:
    due = Due(STARTS, SECONDS.__getitem__)
    for entry, use in ((0, 1), (1, 2), (2, 4)):
        due.add(entry, use)
    due.pass_to(3, {0: 5, 1: 3}.__getitem__)
    assert list(due) == [(3, 1), (4, 2), (5, 0)]
    assert due.latest() == latest_start(list(due))
