"""Device and pinned memory, copies, capacity and counters behave as CUDA's."""
from __future__ import annotations

import pytest

from .programs import memory, planted

SCHEDULES = ["threads", "eager", "lazy", "random"]


def test_capacity_and_compute_capability_are_settings(run):
    name, capability, free, total, device_total = run(memory.describe_device, MEM="64M", CC=80).value
    assert "softcuda" in name
    assert capability == [8, 0]
    assert free == total == device_total == 64 << 20


def test_out_of_memory_is_a_memory_error_and_freeing_makes_room_again(run):
    outcome = run(memory.fill_memory_and_recover, MEM="8.5M")
    assert outcome.value == [8, 1 << 19, 1 << 20]


def test_capacity_is_kept_to_the_byte(run):
    assert run(memory.allocate_exactly, 5000, MEM="5000").value == 0
    outcome = run(memory.allocate_exactly, 5001, MEM="5000")
    assert outcome.error == ["MemoryError", "cuMemAlloc failed: out of memory"]


def test_copies_and_fills_move_the_right_bytes(run):
    assert run(memory.round_trip).value == [True, True, 1000.0, 14000]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_pageable_source_may_be_overwritten_after_the_call(run, schedule):
    assert run(memory.pageable_source_is_staged, SCHED=schedule).value == 0


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_copy_to_pageable_memory_is_complete_after_the_call(run, schedule):
    assert run(memory.pageable_target_is_complete, SCHED=schedule).value == 0


def test_freed_addresses_are_quarantined_with_guards_and_reused_poisoned_without(run):
    assert run(memory.reuse_address).value == [False, 1024]
    assert run(memory.reuse_address, GUARD=0).value == [True, 1024]


def test_part_of_an_arena_can_be_poisoned(run):
    assert run(memory.poison_part).value == [100, True]


def test_memory_is_not_poison_if_not_asked_for(run):
    assert run(planted.read_uninitialised, POISON=0).value == 0


def test_allocations_end_with_their_context(run):
    outcome = run(memory.primary_context, LEAKS=1)
    assert outcome.value == [1400, 400, 0.0]
    assert "LEAK: 1 device allocations (1000 bytes)" in outcome.messages


def test_counters_count(run):
    outcome = run(memory.count_things)
    counters = outcome.counters
    assert outcome.value == counters["bytes_peak"] == 800
    wanted = {"allocations": 2, "frees": 2, "launches": 3, "copies": 2, "memsets": 2, "bytes_live": 0,
              "overruns": 0, "bytes_to_device": 400, "bytes_to_host": 400}
    assert {name: counters[name] for name in wanted} == wanted
