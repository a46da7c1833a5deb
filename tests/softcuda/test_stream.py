"""Streams and events order work as CUDA's do, in every schedule; schedules are what README.md says."""
from __future__ import annotations

import pytest

from .programs import stream

SCHEDULES = ["threads", "eager", "lazy", "random"]
every_schedule = pytest.mark.parametrize("schedule", SCHEDULES)


@every_schedule
def test_event_wait_orders_a_kernel_behind_a_copy(run, schedule):
    outcome = run(stream.wait_for_copy, SCHED=schedule, RACE=1)
    assert outcome.value == 0 and outcome.counters["races"] == 0


@every_schedule
def test_long_chains_across_streams_run_in_order(run, schedule):
    assert run(stream.ping_pong, 3000, SCHED=schedule).value == 3000.0


@every_schedule
def test_null_stream_is_ordered_with_blocking_streams(run, schedule):
    outcome = run(stream.null_stream_orders_blocking_streams, SCHED=schedule, RACE=1)
    assert outcome.value == 13.0 and outcome.counters["races"] == 0


@every_schedule
def test_polling_comes_to_an_end(run, schedule):
    assert run(stream.query_until_done, SCHED=schedule).value == "done"


def test_elapsed_time_is_positive_and_refused_without_timing(run):
    assert run(stream.time_between_events).value == [True, True]


def test_recording_an_event_again_does_not_move_earlier_waits(run):
    assert run(stream.event_recorded_twice, SCHED="lazy").value == [False, 1.0]


def test_destroyed_handles_are_refused(run):
    outcome = run(stream.stale_handles)
    assert outcome.value == [400, 400]      # CUDA_ERROR_INVALID_HANDLE
    assert "names no live stream" in outcome.messages and "names no live event" in outcome.messages


def test_lazy_runs_nothing_before_a_wait_and_eager_everything(run):
    assert run(stream.lazy_copy_has_not_run, SCHED="lazy").value == [3.0, 0.0]
    assert run(stream.lazy_copy_has_not_run, SCHED="eager").value == [0.0, 0.0]


def test_random_schedule_follows_the_seed(run):
    def last_writer(seed):
        return run(stream.unordered_writes, SCHED="random", SEED=seed).value

    by_seed = [last_writer(seed) for seed in range(6)]
    assert len(set(by_seed)) > 1
    assert [last_writer(seed) for seed in range(6)] == by_seed


def test_jitter_keeps_what_is_ordered(run):
    assert run(stream.wait_for_copy, JITTER_US=3000).value == 0
