"""The race detector goes by memory and not by addresses, and graphs run on whatever their addresses show."""
from __future__ import annotations

import re

import pytest

from .programs import mapping_order


def races(outcome):
    assert outcome.error is None, outcome.error
    return outcome.counters["races"]


@pytest.mark.parametrize("schedule", ["threads", "lazy"])
def test_unordered_work_on_one_page_by_two_addresses_is_a_race(run, schedule):
    outcome = run(mapping_order.write_one_page_by_two_addresses, False, RACE=1, SCHED=schedule)
    assert races(outcome) == 1
    assert re.search(r"RACE write after write: axpy on stream 2 vs axpy on stream 1, bytes (\w+)\.\.\w+ "
                     r"\(512 bytes into a 2097152-byte mapping\), \1 being the other's (?!\1)\w+:", outcome.messages)


def test_an_event_orders_work_on_one_page_by_two_addresses(run):
    assert races(run(mapping_order.write_one_page_by_two_addresses, True, RACE=1)) == 0


@pytest.mark.parametrize(("distance", "found"), [(0, 1), (252, 1), (256, 0), (4096, 0)])
def test_only_bytes_that_both_use_race(run, distance, found):
    assert races(run(mapping_order.write_two_parts_of_a_page, distance, RACE=1)) == found


def test_different_pages_do_not_race(run):
    assert races(run(mapping_order.write_two_pages, RACE=1)) == 0


def test_a_page_is_not_taken_for_the_one_that_its_address_showed_before(run):
    assert races(run(mapping_order.write_one_address_twice, RACE=1)) == 0


def test_copy_over_several_pages_races_with_a_kernel_on_one_of_them(run):
    outcome = run(mapping_order.copy_over_a_page_in_use, RACE=1)
    assert races(outcome) == 1
    assert "RACE write after write: a copy to the device on stream 2 vs axpy on stream 1" in outcome.messages


@pytest.mark.parametrize(("addresses", "distance", "found"), [(2, 0, 1), (2, 256, 0), (1, 0, 0)])
def test_one_launch_that_writes_what_it_reads_by_another_address_is_found(run, addresses, distance, found):
    outcome = run(mapping_order.read_and_write_in_one_launch, addresses, distance, RACE=1)
    assert races(outcome) == found
    assert ("RACE within axpy on the NULL stream: it writes memory that it uses by two" in outcome.messages) == found


@pytest.mark.parametrize("schedule", ["threads", "eager", "lazy", "random"])
def test_unmapping_under_unordered_work_is_a_race(run, schedule):
    outcome = run(mapping_order.unmap_in_use, False, RACE=1, SCHED=schedule)
    assert outcome.value == 64
    assert races(outcome) == 1
    message = "RACE write after read: an unmapping on the host vs a copy to the device on stream 1"
    assert message in outcome.messages


def test_unmapping_after_a_wait_is_no_race(run):
    assert races(run(mapping_order.unmap_in_use, True, RACE=1)) == 0


def test_mapping_during_a_capture_spoils_nothing_and_graphs_follow_their_addresses(run):
    outcome = run(mapping_order.replay_after_remapping, RACE=1)
    assert outcome.value == [3.0, 6.0]
    assert races(outcome) == 0


def test_graph_whose_copy_lost_its_page_is_a_fault(run):
    outcome = run(mapping_order.replay_copy_after_unmapping)
    assert outcome.error[1] == "cuCtxSynchronize failed: an illegal memory access was encountered"
    assert "a copy writes 256 bytes of device memory that has gone since it was asked for" in outcome.messages


def test_branches_of_a_graph_race_on_one_page_by_two_addresses(run):
    outcome = run(mapping_order.share_a_page_in_a_graph, RACE=1)
    assert races(outcome) >= 1
    assert "RACE write after write: axpy on branch 1 of graph 1 vs axpy on branch 0 of graph 1" in outcome.messages
