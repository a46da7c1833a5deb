"""The verifier proves the order of accesses on different streams."""
from __future__ import annotations

import pytest

from minigraph.plan.plan import IN_STREAM, OUT_STREAM, Plan
from minigraph.plan.verify import verify

from .build import Maker, corrupt, swap
from .failing import assert_names, failure


def skip(plan: Plan, i: int) -> Plan:
    """The plan with a wait that holds nothing up: it records an event of which nobody hears."""
    return corrupt(plan, i_kind=(i, 4), i_event=(i, 99))


@pytest.mark.parametrize("wait, pair, arena", [(2, (0, 3), "transient"), (6, (3, 7), "transient"),
                                               (8, (3, 9), "host"), (11, (9, 12), "transient")])
def test_a_dropped_wait_is_caught(wait: int, pair: tuple[int, int], arena: str) -> None:
    error = failure(skip(swap(), wait))
    assert_names(error, pair, arena=arena, byte_range=(0, 64) if arena == "host" else None)
    assert "does not wait for" in str(error)


def test_freeing_a_copys_source_before_the_copy_was_waited_for_is_caught() -> None:
    m = Maker()
    data, a, on_host = m.value("data"), m.value("a"), m.value("on_host", arena="host")
    b = m.value("b", at=m.buffers.offset[a])
    m.run("t_unary", (data,), (a,))
    m.record(0)
    m.wait(0, OUT_STREAM)
    m.copy_out(a, on_host)
    m.run("t_unary", (data,), (b,))
    assert_names(failure(m.plan(inputs=(data,), outputs=(b,))), (3, 4), byte_range=(64, 128))


def test_a_wait_before_its_record_is_caught_in_list_order() -> None:
    error = failure(corrupt(swap(), i_event=(2, 2)))
    assert sorted(error.instructions) == [2, 10]
    assert "before instruction 10" in str(error)
    error = failure(corrupt(swap(), i_event=(2, 77)))
    assert "which nothing records" in str(error)


def test_an_event_is_recorded_once() -> None:
    error = failure(corrupt(swap(), i_event=(10, 1), i_kind=(11, 4)))
    assert sorted(error.instructions) == [4, 10]


def test_an_instruction_on_the_wrong_stream_is_caught() -> None:
    assert_names(failure(corrupt(swap(), i_stream=(7, IN_STREAM))), (5, 7))


def test_order_passes_through_a_third_stream() -> None:
    m = Maker()
    data, a = m.value("data"), m.value("a")
    b, out = m.value("b", at=m.buffers.offset[a]), m.value("out")
    m.run("t_unary", (data,), (a,))
    m.record(0)
    m.wait(0, OUT_STREAM)
    m.record(1, OUT_STREAM)
    m.wait(1, IN_STREAM)
    m.run("t_unary", (data,), (b,), stream=IN_STREAM)
    m.run("t_unary", (b,), (out,), stream=IN_STREAM)
    plan = m.plan(inputs=(data,), outputs=(out,))
    verify(plan)
    assert_names(failure(skip(plan, 2)), (0, 5), byte_range=(64, 128))


def test_reads_on_two_streams_need_no_order() -> None:
    m = Maker()
    data, a, b = m.value("data"), m.value("a"), m.value("b")
    m.run("t_unary", (data,), (a,))
    m.run("t_unary", (data,), (b,), stream=OUT_STREAM)
    verify(m.plan(inputs=(data,), outputs=(a, b)))


def test_one_workspace_on_two_streams_is_caught() -> None:
    m = Maker()
    data, a, b, scratch = (m.value(name) for name in ("data", "a", "b", "scratch"))
    m.run("t_dense", (data, data), (a,), workspace=scratch)
    m.run("t_dense", (data, data), (b,), workspace=scratch, stream=OUT_STREAM)
    assert_names(failure(m.plan(inputs=(data,), outputs=(a, b))), (0, 1), byte_range=(192, 256))
