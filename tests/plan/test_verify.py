"""The verifier accepts right plans, and follows values and lifetimes through broken ones."""
from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from minigraph.plan.plan import Output, Persistent, Plan
from minigraph.plan.verify import verify

from .build import Maker, chain, corrupt, swap, training
from .failing import assert_names, failure


@pytest.mark.parametrize("make", [chain, training, swap])
def test_a_right_plan_is_verified_and_counted(make: Any) -> None:
    plan = make()
    result = verify(plan)
    assert (result.instructions, result.buffers) == (len(plan), len(plan.buffers))
    assert result.checks > len(plan)
    assert result.seconds > 0


def test_a_plan_without_instructions_is_right() -> None:
    m = Maker()
    weight = m.value("weight", arena="persistent")
    verify(m.plan(persistent=((weight, weight),), outputs=(weight,)))
    verify(Maker().plan())


def test_tensors_without_elements_take_part_in_the_rules() -> None:
    m = Maker()
    data, a = m.value("data", 0), m.value("a", 0)
    m.run("t_unary", (data,), (a,))
    plan = m.plan(inputs=(data,), outputs=(a,))
    verify(plan)
    assert "before it is written" in str(failure(corrupt(plan, i_reads=(0, (a,)))))


# -- reads see their writes --------------------------------------------------------------------------------------
def test_an_offset_off_by_one_line_is_caught_where_the_bytes_are_lost() -> None:
    m = Maker()
    data, a, b, c = (m.value(name) for name in ("data", "a", "b", "c"))
    m.run("t_dense", (data, data), (a,))
    m.run("t_dense", (data, data), (b,))
    m.run("t_binary", (a, b), (c,))
    plan = m.plan(inputs=(data,), outputs=(c,))
    verify(plan)
    error = failure(corrupt(plan, b_offset=(b, 64)))
    assert_names(error, (0, 1), byte_range=(64, 128))


def test_overlapping_live_buffers_are_caught_at_the_shared_bytes_only() -> None:
    m = Maker()
    data, a = m.value("data"), m.value("a", 48)
    b, c = m.value("b", 32, at=m.buffers.offset[a] + 128), m.value("c")
    m.run("t_dense", (data, data), (a,))
    m.run("t_dense", (data, data), (b,))
    m.run("t_dense", (a, b), (c,))
    error = failure(m.plan(inputs=(data,), outputs=(c,)))
    assert_names(error, (0, 1), byte_range=(192, 256))


def test_a_read_of_bytes_that_were_taken_is_caught_even_when_lifetimes_claim_death() -> None:
    m = Maker()
    data, a, b, c = (m.value(name) for name in ("data", "a", "b", "c"))
    m.run("t_unary", (data,), (a,))
    m.run("t_unary", (data,), (b,))
    m.run("t_binary", (a, b), (c,))
    plan = corrupt(m.plan(inputs=(data,), outputs=(c,)), b_offset=(b, 64), b_dies=(a, 1))
    error = failure(plan)
    assert_names(error, (0, 2), byte_range=(64, 128))
    assert "after it has died" in str(error)


def test_a_read_before_its_write_is_caught() -> None:
    error = failure(corrupt(chain(), i_reads=(0, (6, 1))))
    assert_names(error, (0, 2))
    assert "before it is written" in str(error)


def test_a_missing_read_or_write_is_caught() -> None:
    assert "1 reads and 1 writes" in str(failure(corrupt(chain(), i_reads=(2, (5,)))))
    assert "2 reads and 0 writes" in str(failure(corrupt(chain(), i_writes=(2, ()))))


def test_reading_the_old_version_of_a_weight_after_its_update_is_caught() -> None:
    plan = corrupt(training(), i_reads=(3, (2, 1)), b_dies=(1, 4))
    error = failure(plan)
    assert_names(error, (-1, 2), arena="persistent", byte_range=(0, 64))
    plan = corrupt(training(), i_reads=(3, (2, 1)))
    assert "after it has died" in str(failure(plan))


def test_reading_the_new_version_of_a_weight_before_its_update_is_caught() -> None:
    error = failure(corrupt(training(), i_reads=(1, (2, 4))))
    assert_names(error, (1, 2), arena="persistent")


def test_a_buffer_is_written_once() -> None:
    m = Maker()
    data, a, b = m.value("data"), m.value("a"), m.value("b")
    m.run("t_unary", (data,), (a,))
    m.run("t_unary", (a,), (b,))
    m.run("t_unary", (data,), (a,))
    error = failure(m.plan(inputs=(data,), outputs=(a, b)))
    assert_names(error, (0, 2), byte_range=(64, 128))
    assert "again" in str(error)


def test_a_fill_before_the_write_that_gives_the_value_is_right() -> None:
    m = Maker()
    data, a, b = m.value("data"), m.value("a"), m.value("b")
    m.fill(a, 0.0)
    m.run("t_unary", (data,), (a,))
    m.run("t_unary", (a,), (b,))
    verify(m.plan(inputs=(data,), outputs=(b,)))


def test_an_unread_input_may_be_gone_but_only_where_the_op_says_so() -> None:
    m = Maker()
    data, a = m.value("data"), m.value("a")
    b, c = m.value("b", at=m.buffers.offset[a]), m.value("c")
    m.run("t_unary", (data,), (a,))
    m.run("t_unary", (data,), (b,))
    like = m.run("t_like", (b, a), (c,), unread=(1,))
    plan = m.plan(inputs=(data,), outputs=(c,))
    verify(plan)
    error = failure(corrupt(plan, i_unread=(like, ())))
    assert "after it has died" in str(error)
    assert "reads all but [1]" in str(failure(corrupt(plan, i_unread=(like, (0, 1)))))


def test_a_view_reads_the_value_that_it_names() -> None:
    error = failure(corrupt(chain(), b_shares=(5, 2)))  # a view of `a`, whose bytes `b` takes over
    assert_names(error, (0, 1), byte_range=(64, 128))


def test_writing_into_a_view_is_refused() -> None:
    assert "which is a view" in str(failure(corrupt(chain(), i_writes=(2, (5,)))))


def test_a_part_of_a_buffer_that_is_overwritten_makes_its_view_unreadable() -> None:
    m = Maker()
    data, whole = m.value("data"), m.value("whole", 32)
    left, right = m.value("left", over=whole, view=True), m.value("right", over=whole, view=True, at=128)
    m.run("t_dense", (data, data), (whole,))
    new = m.value("new", over=right)
    m.run("t_unary", (right,), (new,))
    out = m.value("out")
    m.run("t_binary", (left, new), (out,))
    plan = m.plan(inputs=(data,), outputs=(out,))
    plan.buffers.dies[left] = 2
    assert "after it has died" in str(failure(plan))
    plan.buffers.dies[left] = 3
    error = failure(plan)  # the value `whole` is needed until 3, but half of it ends at 1
    assert_names(error, (0, 1), byte_range=(128, 192))


# -- lifetimes and both ends ------------------------------------------------------------------------------------
def test_lifetimes_must_be_honest() -> None:
    error = failure(corrupt(swap(), b_dies=(1, 5)))  # instruction 5 reads %1
    assert_names(error, (0, 5), byte_range=(64, 128))
    assert "is the first to write" in str(failure(corrupt(swap(), b_born=(3, 4))))
    assert "die later" in str(failure(corrupt(swap(), b_dies=(3, 5))))
    assert "no instruction does" in str(failure(with_orphan()))


def with_orphan() -> Plan:
    plan = chain()
    plan.buffers.add("orphan", 1, 0, 0, (0,), np.dtype(np.float32), born=1, dies=2)
    return plan


def test_an_overstated_lifetime_is_caught_where_its_bytes_are_used_again() -> None:
    assert_names(failure(corrupt(swap(), b_dies=(1, 8))), (0, 7), byte_range=(64, 128))


def test_a_value_before_the_program_needs_to_be_given() -> None:
    plan = dataclasses.replace(chain(), inputs={})
    assert "neither an input nor persistent" in str(failure(plan))
    plan = dataclasses.replace(chain(), inputs={"data": 0, "a": 2})
    assert "must be born at -1" in str(failure(plan))


def test_two_inputs_on_the_same_bytes_are_caught() -> None:
    m = Maker()
    left = m.value("left")
    right, out = m.value("right", at=0), m.value("out")
    m.run("t_binary", (left, right), (out,))
    error = failure(m.plan(inputs=(left, right), outputs=(out,)))
    assert_names(error, (-1, -1), byte_range=(0, 64))


def test_an_output_that_is_overwritten_before_the_end_is_caught() -> None:
    m = Maker()
    data, out = m.value("data"), m.value("out")
    later = m.value("later", at=m.buffers.offset[out])
    m.run("t_unary", (data,), (out,))
    m.run("t_unary", (data,), (later,))
    plan = m.plan(inputs=(data,), outputs=(out,))
    assert_names(failure(plan), (0, 1), byte_range=(64, 128))
    assert_names(failure(corrupt(plan, b_dies=(out, 1))), (1, 2), byte_range=(64, 128))


def test_an_output_or_a_persistent_tensor_that_dies_before_the_end_is_caught() -> None:
    error = failure(dataclasses.replace(training(), outputs=(Output("gradient", 3),)))
    assert_names(error, (1, 4), byte_range=(128, 192))
    assert "needed to the end" in str(error)
    assert_names(failure(corrupt(training(), b_dies=(4, 3), i_reads=(3, (2, 2)))), (2, 4), arena="persistent")


def test_a_persistent_tensor_that_does_not_end_at_home_is_caught() -> None:
    plan = training()
    moved = dataclasses.replace(plan, persistent=(Persistent("weight", 1, 5),))
    error = failure(dataclasses.replace(moved, outputs=()))
    assert "must end where it started" in str(error)
    assert set(error.instructions) == {-1, 3}


def test_a_persistent_tensor_that_is_overwritten_is_caught() -> None:
    m = Maker()
    weight, data = m.value("weight", arena="persistent"), m.value("data")
    thief = m.value("thief", arena="persistent", at=0)
    m.run("t_unary", (data,), (thief,))
    error = failure(m.plan(inputs=(data,), persistent=((weight, weight),)))
    assert_names(error, (-1, 0), arena="persistent", byte_range=(0, 64))


def test_a_gradient_computed_over_the_last_steps_gradient_is_right() -> None:
    m = Maker()
    data, old = m.value("data"), m.value("old", arena="persistent")
    new = m.value("new", arena="persistent", at=0)
    m.run("t_unary", (data,), (new,))
    verify(m.plan(inputs=(data,), persistent=((old, new),)))


def test_reading_and_writing_the_same_buffer_is_no_way_to_work_in_place() -> None:
    m = Maker()
    data, a = m.value("data"), m.value("a")
    m.run("t_unary", (data,), (a,))
    m.run("t_unary", (a,), (a,))
    assert_names(failure(m.plan(inputs=(data,), outputs=(a,))), (0, 1), byte_range=(64, 128))
