"""The verifier refuses plans whose places, operands and forms are wrong."""
from __future__ import annotations

import dataclasses

import pytest

from minigraph.plan.plan import Arena, BufferColumns, InstructionColumns, Plan
from minigraph.plan.verify import VerificationError, verify

from .build import Maker, chain, corrupt, swap, training
from .failing import assert_names, failure


# -- places ----------------------------------------------------------------------------------------------------
def test_a_misaligned_buffer_is_refused() -> None:
    error = failure(corrupt(chain(), b_offset=(2, 65)))
    assert_names(error, (0,), byte_range=(65, 129))
    assert "multiple of 64" in str(error)


@pytest.mark.parametrize("offset", [-64, 1 << 20])
def test_a_buffer_outside_its_arena_is_refused(offset: int) -> None:
    error = failure(corrupt(swap(), b_offset=(3, offset)))
    assert_names(error, (5,), byte_range=(offset, offset + 64))


def test_a_buffer_smaller_than_its_elements_is_refused() -> None:
    assert "needed_bytes 64" in str(failure(corrupt(swap(), b_bytes=(3, 60))))


def test_a_view_larger_than_what_it_views_is_refused() -> None:
    plan = corrupt(chain(), b_bytes=(5, 128), b_shape=(5, (32,)))
    error = failure(plan)
    assert_names(error, (1, 1))
    assert "does not lie inside buffer 4 'b'" in str(error)


def test_a_view_of_nothing_and_a_circle_of_views_are_refused() -> None:
    assert "view of nothing" in str(failure(corrupt(chain(), b_shares=(5, -1))))
    assert "circle" in str(failure(corrupt(chain(), b_shares=(2, 5))))


def test_an_unknown_arena_and_an_unknown_buffer_are_refused() -> None:
    assert "names an arena" in str(failure(corrupt(chain(), b_arena=(2, 7))))
    assert "names buffer 99" in str(failure(corrupt(chain(), i_reads=(1, (99,)))))
    assert "stream 5" in str(failure(corrupt(chain(), i_stream=(1, 5))))


def test_columns_of_different_lengths_are_refused() -> None:
    plan = chain()
    plan.buffers.dies.pop()
    assert "'dies' has 6 rows" in str(failure(plan))


def test_arenas_of_unknown_spaces_are_refused() -> None:
    plan = chain()
    arenas = (plan.arenas[0], Arena("transient", "moon", plan.arenas[1].bytes), plan.arenas[2])
    assert "'moon'" in str(failure(dataclasses.replace(plan, arenas=arenas)))


@pytest.mark.parametrize("sizes", [(-64,), (1 << 57,), (1 << 56, 64), (1 << 56,) * 200])
def test_arenas_of_more_bytes_than_addresses_reach_are_refused(sizes: tuple[int, ...]) -> None:
    plan = chain()
    more = [Arena(f"host{k}", "host", nbytes) for k, nbytes in enumerate(sizes)]
    assert "together have 0 to" in str(failure(dataclasses.replace(plan, arenas=(*plan.arenas, *more))))


def test_arenas_that_no_device_has_are_refused() -> None:
    plan = chain()
    persistent, transient, host = plan.arenas
    for arenas in ((transient, persistent, host), (persistent, host, transient), (persistent,),
                   (*plan.arenas, Arena("more", "device", 64)), (persistent, dataclasses.replace(transient, name="x"))):
        told = str(failure(dataclasses.replace(plan, arenas=arenas)))
        assert "they must be ['persistent', 'transient'], and stand before all others" in told
    assert "two arenas 'host'" in str(failure(dataclasses.replace(plan, arenas=(*plan.arenas, host))))


def test_a_persistent_tensor_in_transient_memory_is_refused() -> None:
    plan = corrupt(training(), b_arena=(1, 1))
    plan.buffers.arena[4] = 1
    assert "persistent tensor 'weight' is buffer 1 'weight', which lies in arena 'transient'" in str(failure(plan))


# -- what an instruction may overwrite --------------------------------------------------------------------------
def binary_in_place(op: str, same: bool) -> Plan:
    """An op that writes over its second input, or over a tensor that it reads through both."""
    m = Maker()
    data, a, b = m.value("data"), m.value("a"), m.value("b")
    m.run("t_dense", (data, data), (a,))
    m.run("t_dense", (data, data), (b,))
    out = m.value("out", over=b)
    m.run(op, (b, b) if same else (a, b), (out,))
    return m.plan(inputs=(data,), outputs=(out,))


def test_in_place_over_an_input_needs_a_declared_pair() -> None:
    verify(binary_in_place("t_binary", same=False))
    error = failure(binary_in_place("t_first", same=False))
    assert_names(error, (1, 2))
    assert "does not allow" in str(error)


def test_in_place_over_a_tensor_read_twice_needs_a_pair_for_each_position() -> None:
    verify(binary_in_place("t_binary", same=True))
    assert_names(failure(binary_in_place("t_first", same=True)), (1, 2))


def test_in_place_must_be_the_same_bytes() -> None:
    m = Maker()
    data, wide = m.value("data"), m.value("wide", 32)
    m.run("t_unary", (data,), (wide,))
    out = m.value("out", 16, over=wide, at=m.buffers.offset[wide])
    m.run("t_unary", (wide,), (out,))
    assert_names(failure(m.plan(inputs=(data,), outputs=(out,))), (0, 1))


def test_in_place_must_be_stated() -> None:
    error = failure(corrupt(chain(), b_shares=(4, -1)))
    assert "shares" in str(error)
    assert_names(error, (0, 1))


def test_in_place_over_a_tensor_that_is_read_later_is_caught() -> None:
    m = Maker()
    data, a = m.value("data"), m.value("a")
    m.run("t_dense", (data, data), (a,))
    b, out = m.value("b", over=a), m.value("out")
    m.run("t_unary", (a,), (b,))
    m.run("t_binary", (a, b), (out,))
    error = failure(m.plan(inputs=(data,), outputs=(out,)))
    assert_names(error, (0, 1), byte_range=(64, 128))


def test_an_update_must_be_on_the_bytes_of_what_it_changes() -> None:
    m = Maker()
    weight, gradient = m.value("weight", arena="persistent"), m.value("gradient")
    after = m.value("after", arena="persistent")
    m.run("t_update", (weight, gradient), (after,))
    error = failure(m.plan(inputs=(gradient,), persistent=((weight, after),)))
    assert "mutates input 0" in str(error)
    assert_names(error, (-1, 0), arena="persistent")
    assert "mutates" in str(failure(corrupt(training(), i_writes=(2, (1,)))))


def test_two_outputs_on_the_same_bytes_are_refused() -> None:
    m = Maker()
    data, left = m.value("data"), m.value("left")
    right = m.value("right", at=m.buffers.offset[left])
    m.run("t_pair", (data,), (left, right))
    assert "overlapping bytes" in str(failure(m.plan(inputs=(data,), outputs=(left, right))))


@pytest.mark.parametrize("offset, what", [(0, "input 0"), (64, "output 0")])
def test_a_workspace_on_the_bytes_of_an_operand_is_refused(offset: int, what: str) -> None:
    error = failure(corrupt(chain(), b_offset=(3, offset)))
    assert what in str(error) and "workspace" in str(error)
    assert 0 in error.instructions


def test_a_workspace_on_the_bytes_of_a_live_tensor_is_caught() -> None:
    m = Maker()
    data, kept, a, out = (m.value(name) for name in ("data", "kept", "a", "out"))
    scratch = m.value("scratch", at=m.buffers.offset[kept])
    m.run("t_unary", (data,), (kept,))
    m.run("t_dense", (data, data), (a,), workspace=scratch)
    m.run("t_binary", (kept, a), (out,))
    assert_names(failure(m.plan(inputs=(data,), outputs=(out,))), (0, 1), byte_range=(64, 128))


def test_one_workspace_may_serve_several_instructions() -> None:
    m = Maker()
    data, a, b, scratch = (m.value(name) for name in ("data", "a", "b", "scratch"))
    m.run("t_dense", (data, data), (a,), workspace=scratch)
    m.run("t_dense", (data, a), (b,), workspace=scratch)
    verify(m.plan(inputs=(data,), outputs=(b,)))


@pytest.mark.parametrize("scratch", ["data", "kept", "late", "out"])
def test_a_buffer_with_a_value_cannot_be_a_workspace(scratch: str) -> None:
    m = Maker()
    data, kept, a, late, out = (m.value(name) for name in ("data", "kept", "a", "late", "out"))
    given = {"data": data, "kept": kept, "late": late, "out": out}[scratch]
    m.run("t_unary", (data,), (kept,))
    m.run("t_dense", (kept, kept), (a,), workspace=given if scratch != "kept" else -1)
    m.run("t_binary", (kept, a), (late,), workspace=given if scratch == "kept" else -1)
    m.run("t_binary", (late, a), (out,))
    error = failure(m.plan(inputs=(data,), outputs=(out,)))
    assert "is the workspace of instruction" in str(error) or "overlapping bytes" in str(error)


# -- forms -------------------------------------------------------------------------------------------------------
def test_ranges_cover_the_instructions_without_overlap() -> None:
    plan = swap()
    verify(dataclasses.replace(plan, ranges={"second": (5, 13), "first": (0, 5)}))
    for ranges in ({"first": (0, 6), "second": (5, 13)}, {"forward": (0, 4), "backward": (5, 13)},
                   {"step": (0, 12)}, {"step": (1, 13)}, {}):
        with pytest.raises(VerificationError, match="range"):
            verify(dataclasses.replace(plan, ranges=ranges))


def test_copies_go_the_right_way_and_keep_their_size() -> None:
    assert "they must be equal" in str(failure(corrupt(swap(), b_bytes=(2, 60), b_shape=(2, (15,)))))
    assert "'device'" in str(failure(corrupt(swap(), i_kind=(3, 3))))
    assert "'host'" in str(failure(corrupt(swap(), i_reads=(5, (2,)))))
    assert "must read one buffer" in str(failure(corrupt(swap(), i_reads=(3, ()))))


def test_fills_and_events_and_unknown_ops_and_kinds_are_checked() -> None:
    assert "must write one buffer" in str(failure(corrupt(swap(), i_kind=(0, 1))))
    assert "must name an event" in str(failure(corrupt(swap(), i_event=(1, -1))))
    assert "no operator 'nonsense'" in str(failure(corrupt(chain(), i_op=(1, "nonsense"))))
    assert "unknown kind 9" in str(failure(corrupt(chain(), i_kind=(1, 9))))
    assert "only a computation" in str(failure(corrupt(swap(), i_workspace=(3, 4))))


def test_empty_columns_are_a_plan() -> None:
    plan = dataclasses.replace(chain(), buffers=BufferColumns(), instructions=InstructionColumns(), persistent=(),
                               inputs={}, outputs=(), ranges={}, arenas=())
    verify(plan)
