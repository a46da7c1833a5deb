"""Simulated times against times worked out by hand, on a machine with round figures."""
from __future__ import annotations

from dataclasses import replace

import pytest

from minigraph.base import MXNetError
from minigraph.memory.machine import Machine
from minigraph.plan.plan import OUT_STREAM, Kind
from minigraph.plan.simulate import simulate

from .build import Maker, chain, corrupt, swap

ROUND = Machine("round", 1 << 30, flops=16.0, bandwidth=64.0, copy_out=16.0, copy_in=32.0, launch_seconds=0.0,
                source="made up")


def test_a_step_is_as_slow_as_its_arithmetic_or_its_traffic() -> None:
    # a product: 1600 operations at 16 a second; a step in place: 128 bytes at 64 a second
    result = simulate(chain(), ROUND)
    assert (result.end - result.start).tolist() == [100.0, 2.0, 100.0]
    assert result.seconds == 202.0
    assert result.busy_seconds == (202.0, 0.0, 0.0)


def test_the_launch_costs_once_an_instruction_that_does_something() -> None:
    slow = Machine("slow", 1, 1e30, 1e30, 1e30, 1e30, 3.0, "made up")
    assert simulate(chain(), slow).seconds == pytest.approx(9.0)
    assert simulate(swap(), slow).busy_seconds == pytest.approx((12.0, 3.0, 3.0))


def test_a_copy_overlaps_with_computation_until_it_is_waited_for() -> None:
    # unary 2 s each, binary 3 s; copy out 4 s, copy in 2 s.
    # compute: a 0-2, b 2-4, wait for the copy (2-6) to 6, c 6-8; the copy in 6-8 hides behind c; out 8-11
    result = simulate(swap(), ROUND)
    assert result.seconds == 11.0
    assert result.busy_seconds == (9.0, 4.0, 2.0)
    assert result.stall_seconds == (2.0, 2.0, 6.0)
    assert (result.copied_out_bytes, result.copied_in_bytes) == (64, 64)
    assert result.start.tolist() == [0, 2, 0, 2, 6, 2, 4, 6, 0, 6, 8, 8, 8]
    assert result.end.tolist() == [2, 2, 2, 6, 6, 4, 6, 8, 6, 8, 8, 8, 11]


def test_records_and_waits_take_their_streams_time() -> None:
    plan, slow = swap(), replace(ROUND, event_seconds=1.0)
    before, after = simulate(plan, ROUND), simulate(plan, slow)
    events = [sum(stream == s and kind in (Kind.RECORD, Kind.WAIT) for stream, kind in zip(
        plan.instructions.stream, plan.instructions.kind, strict=True)) for s in range(len(plan.streams))]
    assert [b - a for a, b in zip(before.busy_seconds, after.busy_seconds, strict=True)] == pytest.approx(events)
    assert after.seconds > before.seconds
    recorded, waiting = 1, 2
    assert after.end[recorded] == after.start[recorded] + 1.0 and after.end[waiting] == after.end[recorded] + 1.0


def test_two_streams_without_events_overlap_wholly() -> None:
    m = Maker()
    data, a, b = m.value("data"), m.value("a"), m.value("b")
    m.run("t_unary", (data,), (a,))
    m.run("t_unary", (data,), (b,), stream=OUT_STREAM)
    result = simulate(m.plan(inputs=(data,), outputs=(a, b)), ROUND)
    assert result.seconds == 2.0
    assert result.stall_seconds == (0.0, 0.0, 0.0)


def test_a_fill_writes_its_bytes() -> None:
    m = Maker()
    a = m.value("a")
    m.fill(a, 1.0)
    assert simulate(m.plan(outputs=(a,)), ROUND).seconds == 1.0


def test_a_range_is_simulated_alone_after_the_ranges_before_it() -> None:
    plan = swap()
    plan.ranges.clear()
    plan.ranges.update({"forward": (0, 5), "backward": (5, 13)})
    assert simulate(plan, ROUND, "forward").seconds == 6.0
    backward = simulate(plan, ROUND, "backward")
    assert len(backward.start) == 8
    assert backward.seconds == 7.0
    assert (backward.copied_out_bytes, backward.copied_in_bytes) == (0, 64)
    with pytest.raises(MXNetError, match="no range 'eval'; it has forward, backward"):
        simulate(plan, ROUND, "eval")


def test_waiting_for_what_is_never_recorded_is_an_error() -> None:
    with pytest.raises(MXNetError, match="event 77"):
        simulate(corrupt(swap(), i_event=(6, 77)), ROUND)


def test_the_text_names_machine_and_streams() -> None:
    text = simulate(swap(), ROUND).text()
    assert "11000.000 ms on round" in text
    assert "out      busy 4000.000 ms, stalled 2000.000 ms" in text


def test_a_copy_to_or_from_a_file_takes_the_slower_of_link_and_disk() -> None:
    plan = swap()
    filed = replace(plan, arenas=(*plan.arenas[:2], replace(plan.arenas[2], space="file")))
    for disk, out, into in ((8.0, 8.0, 8.0), (24.0, 4.0, 64 / 24), (1e9, 4.0, 2.0)):
        machine = replace(ROUND, disk_bytes_per_second=disk)
        assert simulate(filed, machine).busy_seconds[1:] == (out, into)
        assert simulate(plan, machine).busy_seconds[1:] == (4.0, 2.0)
