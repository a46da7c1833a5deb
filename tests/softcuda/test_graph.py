"""Stream capture and graph launch behave as CUDA's; PyCUDA has neither, so the programs call the library."""
from __future__ import annotations

import pytest

from .programs import graph


@pytest.mark.parametrize("schedule", ["threads", "eager", "lazy", "random"])
def test_captured_fork_and_join_runs_at_each_launch_and_not_before(run, schedule):
    outcome = run(graph.graph_fork_and_join, SCHED=schedule, RACE=1)
    assert outcome.value == [13, [0.0, 13.0, 26.0, 39.0]]
    assert outcome.counters["races"] == 0
    assert outcome.counters["graph_launches"] == 3


@pytest.mark.parametrize("schedule", ["threads", "lazy", "random"])
def test_launches_of_one_graph_follow_each_other_across_streams(run, schedule):
    outcome = run(graph.graph_launched_on_two_streams, SCHED=schedule, RACE=1)
    assert outcome.value == 10.0 and outcome.counters["races"] == 0


def test_event_behind_a_graph_orders_other_work(run):
    assert run(graph.graph_beside_unordered_work, True, RACE=1).counters["races"] == 0


def test_capture_ends_on_the_stream_where_it_began(run):
    assert run(graph.capture_ends_elsewhere).value == 903    # CUDA_ERROR_STREAM_CAPTURE_UNMATCHED


def test_capture_refuses_to_wait_for_work_outside_it(run):
    outcome = run(graph.capture_waits_for_outside)
    assert "dependency created on uncaptured work" in outcome.error[1]


FORBIDDEN = ["alloc", "synchronous copy", "pageable copy", "stream sync", "context sync"]


@pytest.mark.parametrize("what", FORBIDDEN)
def test_call_that_no_graph_can_hold_is_refused_and_spoils_the_capture(run, what):
    error, result = run(graph.capture_forbidden, what).value
    assert "not permitted when stream is capturing" in error
    assert result == 901                # CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
