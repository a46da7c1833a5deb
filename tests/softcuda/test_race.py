"""The race detector is silent about right programs, and knows the ways in which work gets ordered."""
from __future__ import annotations

import pytest

from .programs import race


def races(outcome):
    assert outcome.error is None, outcome.error
    return outcome.counters["races"]


@pytest.mark.parametrize("how", ["stream", "event", "query", "context"])
def test_waiting_on_the_host_orders_streams(run, how):
    assert races(run(race.ordered_by_host, how, RACE=1)) == 0


def test_without_a_wait_on_the_host_the_same_work_is_a_race(run):
    assert races(run(race.ordered_by_host, "not at all", RACE=1)) == 1


def test_declared_regions_of_one_allocation_are_apart(run):
    assert races(run(race.disjoint_regions, True, RACE=1)) == 0
    assert races(run(race.disjoint_regions, False, RACE=1)) == 1


def test_latest_region_wins_and_the_rest_of_older_ones_stays(run):
    assert races(run(race.declare_region_again, RACE=1)) == 0


def test_reads_do_not_race(run):
    assert races(run(race.concurrent_reads, RACE=1)) == 0


def test_copies_race_on_pinned_memory_too(run):
    assert races(run(race.pinned_buffer_shared_by_copies, True, RACE=1)) == 0
    assert races(run(race.pinned_buffer_shared_by_copies, False, RACE=1)) == 1


def test_host_access_after_a_wait_is_no_race(run):
    assert races(run(race.touch_after_sync, RACE=1)) == 0


def test_detector_is_off_unless_asked_for(run):
    assert races(run(race.ordered_by_host, "not at all")) == 0
